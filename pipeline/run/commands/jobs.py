"""What a command line asks of Hydra: to show a configuration, one run, or the jobs of a sweep.

Nothing is written before every job of the command has been composed and validated.
"""

import argparse
import contextlib
import gc
import logging
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline import live
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.fingerprint import fingerprint
from inductor_debug.pipeline.config.hydra_checks import check_count, check_hydra, check_package, check_values
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.validate import to_config, validate
from inductor_debug.pipeline.directory import store, summary
from inductor_debug.pipeline.directory.ownership import claim_sweep, is_owned, read_owner
from inductor_debug.pipeline.directory.refusals import unwritable
from inductor_debug.pipeline.loudness import loudness
from inductor_debug.pipeline.run import console, progress
from inductor_debug.pipeline.run.commands.clusters import check_launcher
from inductor_debug.pipeline.run.commands.composed_once import without_hydra
from inductor_debug.pipeline.run.commands.composition import Session
from inductor_debug.pipeline.run.commands.job import Ended, run_job
from inductor_debug.pipeline.run.commands.origin import Origin
from inductor_debug.pipeline.run.error_words import headline
from inductor_debug.pipeline.run.interruption import resumed_by
from inductor_debug.pipeline.run.parent.forking import close_fork_server
from inductor_debug.pipeline.run.plan import execution_order
from inductor_debug.pipeline.run.restoring import resuming
from inductor_debug.pipeline.run.sweep import PAGE, sweep_exit_code, write_sweep_table
from inductor_debug.pipeline.terminal import print_json
from inductor_debug.stages.artifacts.files import SUMMARY
from inductor_debug.stages.formatting import counted

logger = logging.getLogger(f"{__package__}.entry")

Task = Callable[[Any], Ended]
"""What Hydra calls with a job's configuration."""
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_OURS_TO_STORE = "hydra.output_subdir=null"
_MULTIRUN = "hydra.mode=MULTIRUN"
_ENDED = {
    summary.EXIT_PASSED: "passed",
    summary.EXIT_FAILED: "failed",
    summary.EXIT_CONFIGURATION: "rejected",
    summary.EXIT_CRASHED: "crashed",
}


def show(session: Session, args: argparse.Namespace) -> int:
    session.shows = f"--cfg {args.cfg}" if args.cfg else f"--info {args.info}"
    if args.cfg and args.package is not None:
        composed = session.compose(RunMode.RUN)
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
    if "BasicLauncher" not in str(composed.hydra.launcher._target_):
        logger.warning("a launcher runs the jobs of a sweep: without --multirun, this one run is made here")
    config = check(session, composed)
    typed = [word for word in session.overrides if not word.startswith("hydra.run.dir=")]
    words = [*typed, arguments.directory_word("hydra.run.dir", directory)]
    session.overrides += ["hydra.mode=RUN", _OURS_TO_STORE]
    with _seen(session, [config]) as task, session.readable_errors():
        try:
            result = session.hydra.run(config_name=session.name, task_function=task, overrides=session.overrides)
        except OSError as error:
            raise unwritable(directory, "hydra.run.dir", error) from error
        except KeyboardInterrupt as error:
            if not getattr(error, "__notes__", None):  # it came before the run began, or when it was over
                resumed_by(error, *resuming(session.expected, session.flags, words))
            raise
    code: int = result.return_value.tell()
    if session.as_json:
        stored = not result.return_value.refused and (directory / SUMMARY.path).is_file()
        summary_of = store.read_summary(directory) if stored else None
        print_json({"run": str(directory.absolute()), "exit_code": code, "summary": summary_of})
    return code


@contextlib.contextmanager
def _seen(session: Session, configurations: Sequence[Config], runs: int | None = None) -> Iterator[Task]:
    """What Hydra is to call for each job, and its console as the command line asks; on a terminal with a display.

    A debugger (``runner.isolation=none``) gets the terminal for itself, and so do a launcher's processes.

    Args:
        session: whose overrides are added to.
        configurations: of the jobs.
        runs: of a sweep; None for a single run.
    """
    task: Task = partial(run_job, origin=Origin.here(), flags=session.flags, expected=session.expected)
    alone = bool(configurations) and all(each.runner.isolation == "process" for each in configurations)
    displayed = alone and live.is_shown(prints=not session.as_json)
    session.overrides[:0] = console.overrides(loudness(), displayed=displayed, on_stderr=session.as_json)
    if not displayed:  # with isolation=none the model prints into this process's streams
        with contextlib.redirect_stdout(sys.stderr) if session.as_json else contextlib.nullcontext():
            yield task
        return

    def shown(composed: Any) -> Ended:
        bars.begin(execution_order(composed.stages))
        ended = task(composed)
        bars.end()
        return ended

    with progress.display(runs) as bars:
        yield shown


class Planned(NamedTuple):
    """A sweep before anything of it runs.

    Attributes:
        master: its configuration. directory: its own.
        configurations: of its jobs; empty where its sweeper decides as it goes. folders: theirs, relative to its own.
    """

    master: Any
    directory: Path
    configurations: list[Config]
    folders: list[str]


def plan(session: Session) -> Planned:
    """Compose and validate every job of a sweep; ConfigurationError where one is not valid, or there is none."""
    typed = list(session.overrides)
    session.overrides += [_MULTIRUN, _OURS_TO_STORE]
    master = session.compose(RunMode.MULTIRUN)
    with session.readable_errors():
        named = str(master.hydra.sweep.dir)
    directory = Path(named).absolute()
    if named.strip():  # else each job's check says so
        # a launcher may start jobs elsewhere
        session.overrides.append(f"hydra.sweep.dir={arguments.quoted(str(directory))}")
        master = session.compose(RunMode.MULTIRUN)
    planned = planned_jobs(session, master)
    if planned == []:
        raise ConfigurationError(
            f"--multirun: got {' '.join(typed)}, which makes no run; valid: a value or more for each "
            "key; glob(PATTERN) matches names of a group's files alone.\nTry: python -m pipeline --help"
        )
    configurations, folders = [], []
    for number, overrides in enumerate(planned or ()):
        with session.readable_errors(overrides):
            composed = session.hydra.config_loader.load_sweep_config(master, overrides)
            folders.append(_job_folder(composed, number))
        configurations.append(check(session, composed, overrides))
    return Planned(master, directory, configurations, folders)


def sweep(session: Session) -> int:
    typed = list(session.overrides)
    master, directory, configurations, folders = plan(session)
    described = [fingerprint(configuration) for configuration in configurations]
    overwrite = any(configuration.runner.overwrite for configuration in configurations)
    if not described:  # its sweeper decides as it goes
        described = [word for word in typed if "runner.overwrite=" not in word]
        overwrite = bool(master.runner.overwrite)
    devices = [device for each in configurations for device in (each.device, each.reference.device)]
    check_launcher(master.hydra.launcher, devices or _devices_of(master), several=len(configurations) != 1)
    here = "BasicLauncher" in str(master.hydra.launcher._target_)
    with claim_sweep(directory, described, folders, overwrite=overwrite):
        planned_for = {directory / name: known for name, known in zip(folders, described, strict=False)}
        try:
            with _seen(session, configurations if here else (), len(configurations)) as task:
                gc.freeze()  # or each collection would go over all that was imported and composed so far
                batches = _launched(session, task, directory, planned_for, typed)
            return batches if isinstance(batches, int) else _tabled(session, directory, batches)
        except KeyboardInterrupt as error:
            resumed_by(error, ["run", *_again(session.flags, typed, directory)])
            raise
        except OSError as error:
            again = shlex.join(["inductor-debug", "run", *_again(session.flags, typed, directory)])
            logger.error("the sweep's table could not be written (%s)\nTry: %s, once there is room",
                         error.strerror or error, again)  # fmt: skip
            return summary.EXIT_CRASHED
        finally:
            gc.unfreeze()
            close_fork_server()


def _devices_of(master: Any) -> list[str | None]:
    """What a sweep's own configuration says of devices; the sweeper may set others, or all."""
    found = (OmegaConf.select(master, key, throw_on_missing=False, throw_on_resolution_failure=False)
             for key in ("device", "reference.device"))  # fmt: skip
    return [None if value is None else str(value) for value in found]


def _job_folder(composed: Any, number: int) -> str:
    """A job's directory, relative to the sweep's, as Hydra will name it."""
    with read_write(composed.hydra), open_dict(composed.hydra):
        composed.hydra.job.num, composed.hydra.job.id = number, f"job_id_{number}"
        return str(composed.hydra.sweep.subdir)


def _launched(
    session: Session, task: Task, directory: Path, planned_for: Mapping[Path, str], typed: Sequence[str]
) -> Any:
    """What became of the jobs that Hydra's launcher ran, wherever that was; an exit code where it lost them.

    Args:
        task: what each job calls.
        directory: the sweep's.
        planned_for: a job's directory → the fingerprint of its configuration; empty where the sweeper decides.
        typed: the command line's overrides.
    """
    try:
        return session.hydra.multirun(config_name=session.name, task_function=task, overrides=session.overrides)
    except KeyboardInterrupt:
        started = _started(directory, planned_for)
        if started:
            logger.warning("sweep interrupted in its run %d: %s", len(started), _so_far(directory, started))
        raise
    except Exception as error:
        started = _started(directory, planned_for)
        if not started:
            with session.readable_errors():  # it may be a mistake in the launcher's options
                raise
        ended = [job for job in started if not is_owned(job)]
        there = _so_far(directory, ended) if ended else "no run has ended"
        left = len(planned_for) - len(ended)
        rest = f", without {counted(left, 'job')} that did not start, or may run still" if ended and left > 0 else ""
        launcher = type(error).__module__.partition(".")[0]
        logger.error("the launcher gave up (%s: %s): %s%s\nTo go on from there, once none runs: %s",
                     launcher, headline(error), there, rest,
                     shlex.join(["inductor-debug", "run", *_again(session.flags, typed, directory)]))  # fmt: skip
        return summary.EXIT_CRASHED


def _so_far(directory: Path, jobs: Sequence[Path]) -> str:
    """Write the table of jobs that have ended, and say where it is; or why there is none."""
    try:
        return f"table of the runs so far {write_sweep_table(directory, jobs).path}"
    except OSError as error:
        return f"no table of the runs so far could be written ({error.strerror or error})"


def _tabled(session: Session, directory: Path, batches: Any) -> int:
    """Write the table of a sweep's jobs, and say what came of them."""
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
    table = write_sweep_table(directory, directories, refused)
    code = max(sweep_exit_code(job for job in directories if job not in refused), *codes)
    for sentence in table.told:
        logger.info("%s", sentence)
    ended = Counter(codes)
    became = ", ".join(f"{ended[each]} {word}" for each, word in _ENDED.items() if ended[each])
    told = counted(len(jobs), "run"), became, code, table.path.with_name(PAGE), table.path
    logger.info("sweep of %s: %s (exit code %d). Page: %s, table: %s", *told, extra=console.LAST)
    if session.as_json:
        runs = [store.row(job) for job in directories if job not in refused]
        print_json({"sweep": str(directory), "exit_code": code, "table": str(table.path), "runs": runs})
    return code


def _again(flags: Sequence[str], typed: Sequence[str], directory: Path) -> list[str]:
    """Words of the command line that goes on with a sweep in its directory."""
    others = [word for word in typed if not word.startswith("hydra.sweep.dir=")]
    return [*flags, "--multirun", *others, arguments.directory_word("hydra.sweep.dir", directory)]


def _started(directory: Path, planned_for: Mapping[Path, str]) -> list[Path]:
    """The directories of the sweep's jobs that have been started."""
    known = planned_for or dict.fromkeys(path for path in sorted(directory.iterdir()) if path.is_dir())
    owners = {job: read_owner(job) for job in known}
    return [job for job, owner in owners.items() if owner is not None and known[job] in (None, owner.configuration)]


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
        check_values(parsed)
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
        with without_hydra(composed):
            config = to_config(composed)
        validate(config)
    return config
