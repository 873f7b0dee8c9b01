"""What a command line asks of Hydra: to show a configuration, one run, or the jobs of a sweep.

Nothing is written before every job of the command has been composed and validated.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write

from inductor_debug.models.errors import ConfigurationError, UserError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.fingerprint import fingerprint
from inductor_debug.pipeline.config.hydra_checks import check_count, check_hydra, check_package
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.validate import to_config, validate
from inductor_debug.pipeline.directory import summary
from inductor_debug.pipeline.directory.ownership import DirectoryRefused, claim_sweep, unwritable
from inductor_debug.pipeline.run import runner
from inductor_debug.pipeline.run.composition import Session
from inductor_debug.pipeline.run.interruption import resumed_by
from inductor_debug.pipeline.run.restoring import Expected
from inductor_debug.pipeline.run.sweep import sweep_exit_code, write_sweep_table
from inductor_debug.stages.artifacts.files import REPORT_PAGE
from inductor_debug.stages.formatting import counted

logger = logging.getLogger(f"{__package__}.entry")

BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_OURS_TO_STORE = "hydra.output_subdir=null"
_MULTIRUN = "hydra.mode=MULTIRUN"


def show(session: Session, args: argparse.Namespace) -> int:
    if args.cfg and args.package is not None:
        composed = session.compose(None)
        with session.readable_errors():
            check_package(composed, args.package)
    with session.readable_errors():
        if args.cfg:
            session.hydra.show_cfg(session.name, args.overrides, args.cfg, args.package, args.resolve)
        else:
            session.hydra.show_info(args.info, config_name=session.name, overrides=args.overrides)
    return 0


def is_sweep(session: Session, args: argparse.Namespace) -> bool:
    """True for ``--multirun`` and where the configuration says ``hydra.mode: MULTIRUN``."""
    if args.multirun:
        return True
    with session.readable_errors():
        composed = session.hydra.compose_config(
            config_name=session.name,
            overrides=session.overrides,
            run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
            validate_sweep_overrides=False,
        )
    return bool(composed.hydra.mode == RunMode.MULTIRUN)


def single(session: Session) -> int:
    composed = session.compose(RunMode.RUN)
    with session.readable_errors():
        directory = Path(composed.hydra.run.dir)
    check(session, composed)
    session.overrides += ["hydra.mode=RUN", _OURS_TO_STORE]
    task = partial(run_job, flags=session.flags, expected=session.expected)
    with session.readable_errors():
        try:
            result = session.hydra.run(config_name=session.name, task_function=task, overrides=session.overrides)
        except OSError as error:
            raise unwritable(directory, "hydra.run.dir", error) from error
    return result.return_value.tell()


def sweep(session: Session) -> int:
    session.overrides += [_MULTIRUN, _OURS_TO_STORE]
    master = session.compose(RunMode.MULTIRUN)
    planned = planned_jobs(session, master)
    if planned == []:
        typed = " ".join(word for word in session.overrides if word not in (_MULTIRUN, _OURS_TO_STORE))
        raise ConfigurationError(
            f"--multirun: got {typed}, which makes no run; valid: a value or more for each "
            "key; glob(PATTERN) matches names of a group's files alone.\nTry: python -m pipeline --help"
        )
    configurations, folders = [], []
    for number, overrides in enumerate(planned or ()):
        with session.readable_errors(overrides):
            composed = session.hydra.config_loader.load_sweep_config(master, overrides)
            folders.append(_job_folder(composed, number))
        configurations.append(check(session, composed, overrides))
    described = [fingerprint(configuration) for configuration in configurations]
    overwrite = any(configuration.runner.overwrite for configuration in configurations)
    if not described:  # its sweeper decides as it goes
        described = [word for word in session.overrides if "runner.overwrite=" not in word]
        overwrite = bool(master.runner.overwrite)
    with session.readable_errors():
        directory = Path(master.hydra.sweep.dir)
    with claim_sweep(directory, described, folders, overwrite=overwrite):
        return _run_sweep(session, directory.absolute())


def _job_folder(composed: Any, number: int) -> str:
    """A job's directory, relative to the sweep's, as Hydra will name it."""
    with read_write(composed.hydra), open_dict(composed.hydra):
        composed.hydra.job.num, composed.hydra.job.id = number, f"job_id_{number}"
        return str(composed.hydra.sweep.subdir)


def _run_sweep(session: Session, directory: Path) -> int:
    started: list[Path] = []
    task = partial(run_job, flags=session.flags, started=started, expected=session.expected)
    try:
        with session.readable_errors():
            batches = session.hydra.multirun(config_name=session.name, task_function=task, overrides=session.overrides)
    except KeyboardInterrupt as error:
        typed = [word for word in session.overrides if word not in (_MULTIRUN, _OURS_TO_STORE)]
        again = [word for word in typed if not word.startswith("hydra.sweep.dir=")]
        resumed_by(error, [*session.flags, "--multirun", *again, f"hydra.sweep.dir={directory}"])
        if started:  # a launcher that runs its jobs elsewhere does not tell
            table = write_sweep_table(started[0].parent, started)
            logger.warning("sweep interrupted in its run %d: table of the runs so far %s", len(started), table)
        raise
    if not isinstance(batches, list):
        logger.warning("the sweeper returned no jobs, so no sweep.csv was written and the exit code is not established")
        return summary.EXIT_CRASHED
    jobs = [job for batch in batches for job in batch]
    directories = [Path(job.hydra_cfg.hydra.runtime.output_dir) for job in jobs]
    codes = [job.return_value.tell() for job in jobs]
    refused = {
        directory: (job.return_value.refused, list(job.overrides))
        for job, directory in zip(jobs, directories, strict=True)
        if job.return_value.refused
    }
    table = write_sweep_table(directories[0].parent, directories, refused)
    code = max(sweep_exit_code(job for job in directories if job not in refused), *codes)
    logger.info("sweep of %s: exit code %d, table %s", counted(len(jobs), "run"), code, table)
    return code


def planned_jobs(session: Session, master: Any) -> list[list[str]] | None:
    """Every job's overrides, as the basic sweeper will make them; None for a sweeper that decides as it goes."""
    sweeper = master.hydra.sweeper
    if sweeper._target_ != BASIC_SWEEPER:
        logger.warning("%s decides its jobs as it goes: each is checked only when it starts", sweeper._target_)
        return None
    with session.readable_errors():
        params: Any = OmegaConf.to_container(sweeper.params, resolve=True) if sweeper.params else {}
        words = [f"{key}={value}" for key, value in params.items()] + list(master.hydra.overrides.task)
        parsed = OverridesParser.create(config_loader=session.hydra.config_loader).parse_overrides(words)
        check_count(parsed)
        return BasicSweeper.split_arguments(parsed, None)[0]


def check(session: Session, composed: Any, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a composed job (of a sweep, with its overrides); touches no file.

    Raises:
        ConfigurationError: it can't be run.
    """
    choices = dict(composed.hydra.runtime.choices)
    check_hydra(composed.hydra)
    with session.readable_errors(overrides, choices):
        arguments.check_mappings(session.folders, choices)
        with read_write(composed), open_dict(composed):
            composed.pop("hydra")
        config = to_config(composed)
        validate(config)
    return config


class Ended(NamedTuple):
    """How a job ended: its exit code, and why its directory was refused."""

    code: int
    refused: str = ""

    def tell(self) -> int:
        """The exit code, after a refusal was told."""
        if self.refused:
            sys.stderr.write(f"{self.refused}\n")
        return self.code


def run_job(
    composed: Any, flags: Sequence[str] = (), started: list[Path] | None = None, expected: Expected | None = None
) -> Ended:
    """Hydra's task: one run, and its end. Only KeyboardInterrupt gets out, so that a sweep's other jobs go on.

    Args:
        composed: the job's configuration.
        flags: the command line's, see :func:`_flags`.
        started: the run's directory is appended.
        expected: of a stored run that is made again, what compiled it.
    """
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    in_sweep = hydra.mode == RunMode.MULTIRUN  # its table tells of a rejected job too
    if started is not None:
        started.append(directory)
    overrides = list(hydra.overrides.task)
    flags = [*flags, *(word for word in hydra.overrides.hydra if word.lstrip("+").startswith("hydra.searchpath="))]
    if in_sweep and any(word.startswith("experiment=") for word in overrides):
        flags.append("hydra.mode=RUN")  # the experiment may say that it is a sweep: this is one run of it
    try:
        files, config = _stored_configuration(composed), to_config(composed)
        more: dict[str, Any] = {"keep_rejected": in_sweep, "flags": flags, "expected": expected, "files": files}
        code = runner.run(config, directory, overrides, **more)
    except DirectoryRefused as error:
        if started is not None:
            started.remove(directory)  # what is there is none of this sweep's
        return Ended(summary.EXIT_CONFIGURATION, str(error))
    except UserError as error:
        logger.error("%s", error)
        return Ended(summary.EXIT_CONFIGURATION)
    except SystemExit as error:
        logger.error("the run ended itself with exit code %s", error.code)
        return Ended(summary.EXIT_CRASHED)
    except Exception:
        logger.exception("the run in %s crashed", directory)
        return Ended(summary.EXIT_CRASHED)
    report = directory / REPORT_PAGE.path
    if report.is_file():
        logger.info("report: %s", report)
    return Ended(code)


def _stored_configuration(composed: Any) -> dict[str, str]:
    """Hydra's three files. Hydra itself would write them before anybody has asked whose directory it is."""
    hydra: Any = HydraConfig.instance().cfg
    parts = {"config": composed, "hydra": hydra, "overrides": hydra.hydra.overrides.task}
    return {f".hydra/{name}.yaml": OmegaConf.to_yaml(part) for name, part in parts.items()}
