"""What a command line asks of Hydra: to show a configuration, one run, or the jobs of a sweep.

Nothing is written before every job of the command has been composed and validated.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.fingerprint import fingerprint
from inductor_debug.pipeline.config.hydra_checks import check_count, check_hydra, check_package
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.validate import to_config, validate
from inductor_debug.pipeline.directory import summary
from inductor_debug.pipeline.directory.ownership import claim_sweep, read_owner
from inductor_debug.pipeline.directory.refusals import unwritable
from inductor_debug.pipeline.run.composition import Session
from inductor_debug.pipeline.run.interruption import resumed_by
from inductor_debug.pipeline.run.job import run_job
from inductor_debug.pipeline.run.sweep import sweep_exit_code, write_sweep_table
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
        planned_for = {directory.absolute() / name: known for name, known in zip(folders, described, strict=False)}
        return _run_sweep(session, directory.absolute(), planned_for)


def _job_folder(composed: Any, number: int) -> str:
    """A job's directory, relative to the sweep's, as Hydra will name it."""
    with read_write(composed.hydra), open_dict(composed.hydra):
        composed.hydra.job.num, composed.hydra.job.id = number, f"job_id_{number}"
        return str(composed.hydra.sweep.subdir)


def _run_sweep(session: Session, directory: Path, planned_for: Mapping[Path, str]) -> int:
    """Let Hydra's launcher run the jobs, wherever that is, and write the table.

    Args:
        directory: the sweep's.
        planned_for: a job's directory → the fingerprint of its configuration; empty where the sweeper decides.
    """
    task = partial(run_job, flags=session.flags, expected=session.expected)
    try:
        with session.readable_errors():
            batches = session.hydra.multirun(config_name=session.name, task_function=task, overrides=session.overrides)
    except KeyboardInterrupt as error:
        typed = [word for word in session.overrides if word not in (_MULTIRUN, _OURS_TO_STORE)]
        again = [word for word in typed if not word.startswith("hydra.sweep.dir=")]
        resumed_by(error, [*session.flags, "--multirun", *again, f"hydra.sweep.dir={directory}"])
        known = planned_for or dict.fromkeys(path for path in sorted(directory.iterdir()) if path.is_dir())
        owners = {job: read_owner(job) for job in known}
        started = [job for job, owner in owners.items()
                   if owner is not None and known[job] in (None, owner.configuration)]  # fmt: skip
        if started:
            table = write_sweep_table(directory, started)
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
