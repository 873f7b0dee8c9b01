"""Runs the stages of one configuration in worker processes and leaves a complete run directory.

The parent (this module) composes nothing and computes nothing. It starts a worker, listens to its events, watches its
memory and time, and records the outcome of each stage. A worker that dies costs one stage; the next worker goes on with
the rest.
"""

import contextlib
import dataclasses
import datetime
import logging
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError, UserError
from inductor_debug.pipeline.cache.folders import results_kept, shared_cache
from inductor_debug.pipeline.cache.store import FOLDER, Cache
from inductor_debug.pipeline.cache.turns import machine_folder
from inductor_debug.pipeline.config.arguments import directory_word
from inductor_debug.pipeline.config.fingerprint import fingerprint
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.pipeline.directory import manifest, summary
from inductor_debug.pipeline.directory.folders import made
from inductor_debug.pipeline.directory.names import CONFIGURATION_ERROR, MANIFEST, SUMMARY
from inductor_debug.pipeline.directory.ownership import claim_run
from inductor_debug.pipeline.directory.records import TorchFound
from inductor_debug.pipeline.directory.refusals import unwritable
from inductor_debug.pipeline.directory.rundir import FULL, DiskFull, RunDirectory, is_no_space, run_id
from inductor_debug.pipeline.run import compiled_by
from inductor_debug.pipeline.run.console import LAST
from inductor_debug.pipeline.run.events import PREFLIGHT, Event, Found
from inductor_debug.pipeline.run.interruption import Interruption, resumed_by
from inductor_debug.pipeline.run.last_lines import last_lines
from inductor_debug.pipeline.run.parent.environment import for_reproduction, make_caches, worker_environment
from inductor_debug.pipeline.run.parent.forking import fork_server
from inductor_debug.pipeline.run.parent.session import MARKER, WorkerSession, log_event
from inductor_debug.pipeline.run.plan import Plan, batch_of, execution_order, settings_of
from inductor_debug.pipeline.run.restoring import Expected, resuming
from inductor_debug.pipeline.run.standing import Standing
from inductor_debug.stages.artifacts.records import Run, StageRecord
from inductor_debug.stages.backends.plugins import adding_distributions
from inductor_debug.stages.registry import is_timed
from inductor_debug.stages.torch_internals.versions import warning_for

logger = logging.getLogger(__name__)


def run(
    config: Any,
    directory: Path,
    overrides: Sequence[str] = (),
    *,
    keep_rejected: bool = False,
    flags: Sequence[str] = (),
    stage_classes: Mapping[str, str] | None = None,
    expected: Expected | None = None,
    files: Mapping[str, str] | None = None,
) -> int:
    """Run one experiment.

    Args:
        config: a ``pipeline.config.schema.Config``: the fields of ``stages.settings.Settings``, ``stages`` (name →
            options, in order) and ``runner`` (``timeout_s`` a stage, ``memory_limit``, ``isolation``, ``cache``).
        directory: the run directory; made if it is not there. What an earlier run of the same configuration left there
            is removed first, with ``runner.overwrite`` what any earlier run left.
        overrides: what the user typed, recorded in ``summary.json``.
        keep_rejected: keep the directory of a configuration that can't be run instead of removing what the run left
            there. It holds ``configuration_error.json``, which a sweep's table reads.
        flags: those of the command line that the overrides need to mean the same, recorded in ``summary.json``.
        stage_classes: stages beyond the registry's, name → ``"module:Class"``.
        expected: of a stored run that is made again, what compiled it.
        files: path in the run directory → text to store there first (Hydra's record of the configuration).

    Returns:
        0: every stage passed. 1: a verdict failed. 2: the configuration can't be run; the message is on stderr. 3: a
        stage crashed, ran out of memory or timed out, or the disk is full.

    Raises:
        DirectoryRefused: the directory is another's, or can't be written; nothing in it was changed.
        KeyboardInterrupt: on Ctrl-C, SIGTERM or SIGHUP, after the worker was killed and the summary written.
    """
    known = tuple(stage_classes or ())
    kept = results_kept(config.runner, expected is not None)
    stands = None if kept is None or known else Standing(config, kept, in_sweep=keep_rejected)
    claim = claim_run(directory, fingerprint(config), overwrite=config.runner.overwrite, stages=known, stands=stands)
    if claim.stands and stands is not None:
        with claim:
            extra = None if keep_rejected else LAST
            logger.info("%s came to its end before, and nothing that its result depends on has changed: it stands "
                        "(runner.cache=false makes it anew)", claim.path, extra=extra)  # fmt: skip
            return stands.code
    if stands is not None and stands.why:
        logger.info("%s holds this run already, but %s: it runs again", claim.path, stands.why)
    with claim, Interruption(at_once=config.runner.isolation == "none") as interruption:
        rundir = RunDirectory(claim.path, claim=claim)
        _prepare(rundir, files or {})
        try:
            with _logging_to(rundir.log) as log:
                try:
                    runner = partial(
                        Runner, config, rundir, overrides, stage_classes, flags, expected, interruption, keep_rejected
                    )
                    return _run(runner, rundir, overrides, keep_rejected)
                except Exception as error:  # noqa: BLE001 - one message, whatever the system refused
                    trace = (type(error), error, error.__traceback__)  # for the log alone: a terminal gets one message
                    log.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 0, "the run crashed", (), trace))
                    reason = f"{FULL} ({error})" if is_no_space(error) else f"{type(error).__name__}: {error}"
                    logger.error("the run in %s crashed: %s; its result could not be stored", rundir.path, reason)
                    return summary.EXIT_CRASHED
        finally:
            rundir.release_reserve()


def _prepare(rundir: RunDirectory, files: Mapping[str, str]) -> None:
    """Keep room for the last records, and store the first files; DirectoryRefused where they can't be written."""
    try:
        rundir.reserve()
        for name, text in files.items():
            rundir.store(name, text)
        rundir.log.touch()
    except OSError as error:
        rundir.discard()
        raise unwritable(rundir.path, "hydra.run.dir", error) from error


def _run(runner: Callable[[], "Runner"], rundir: RunDirectory, overrides: Sequence[str], keep_rejected: bool) -> int:
    try:
        return runner().run()
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        message, rejected = str(error), {"exit_code": summary.EXIT_CONFIGURATION, "overrides": list(overrides)}
    if keep_rejected:
        rundir.remove_caches()
        rundir.forget_stages()
        rundir.store(CONFIGURATION_ERROR, rejected | {"message": message})
    else:
        rundir.discard()
    return summary.EXIT_CONFIGURATION


class Runner:
    """One run.

    Args:
        config, overrides, flags, stage_classes, expected: as for :func:`run`.
        rundir: the run directory, claimed by this process.
        interruption: tells of a signal that ends the run.
        in_sweep: whether it is a job of a sweep.
    """

    def __init__(
        self,
        config: Any,
        rundir: RunDirectory,
        overrides: Sequence[str],
        stage_classes: Mapping[str, str] | None,
        flags: Sequence[str],
        expected: Expected | None,
        interruption: Interruption,
        in_sweep: bool = False,
    ) -> None:
        self.options = config.runner
        self.interruption = interruption
        if self.options.timeout_s <= 0:
            raise ConfigurationError(f"runner.timeout_s: got {self.options.timeout_s}; valid: seconds above 0.")
        if not config.stages:
            raise ConfigurationError("stages: none is selected.\nTry: 'stages=[capture,constrain,report]'")
        self.memory_limit = memory_limit_of(self.options.memory_limit)
        self.log_limit = memory_limit_of(self.options.log_limit, "runner.log_limit")
        self.cache_limit = memory_limit_of(self.options.cache_limit, "runner.cache_limit")
        self.rundir = rundir
        began = time.time()
        settings = settings_of(config)
        order = execution_order(config.stages)
        # Without ``runner.compiler_cache`` the caches are private to the run and removed after it: compilation is cold.
        caches = shared_cache(self.options.cache_dir) if self.options.compiler_cache else rundir.make_cache()
        self.environment = worker_environment(make_caches(caches))
        self.reproduction = for_reproduction(settings, self.environment)
        machine, kept = machine_folder(), results_kept(self.options, expected is not None)
        if kept is not None and self.options.cache_dir is not None and not os.path.isdir(kept / FOLDER):
            made(kept, "runner.cache_dir")  # one that others fill may be there to be read alone
        self.plan = Plan(
            directory=str(rundir.path),
            settings=settings,
            stages={name: config.stages[name] for name in order},
            run=Run(
                id=run_id(rundir.path),
                identity=rundir.identity,
                model=settings.model.name,
                accel=settings.accel.name,
                backend=settings.backend.shown,
                dtype=settings.dtype,
                device=settings.device,
                mode=settings.mode,
                flags=list(flags),
                overrides=list(overrides),
                started=datetime.datetime.fromtimestamp(began).astimezone().isoformat(timespec="microseconds"),
            ),
            remaining=order,
            stage_classes=dict(stage_classes or {}),
            memory_limit=self.memory_limit,
            log_limit=self.log_limit,
            timeout_s=self.options.timeout_s,
            reproduction=self.reproduction,
            began=began,
            expected=expected,
            cache=None if kept is None else str(kept),
            own_results=self.options.cache is None and not in_sweep,
            in_sweep=in_sweep,
            machine=None if machine is None else str(machine),
        )
        variables = self.environment | self.reproduction
        self.described = self.plan.described = manifest.describe_run(settings, variables, rundir.identity)
        self.plan.compiled_by = compiled_by.described(self.described, os.environ, variables, adding_distributions())

    def run(self) -> int:
        """Run all stages and write ``summary.json`` and ``manifest.json``. UserError where nothing could run."""
        interrupted: KeyboardInterrupt | None = None
        untried = warning_for(self.described.versions["torch"] or "")
        if untried is not None:
            logger.warning("%s", untried)
        try:
            self._run_stages()
        except KeyboardInterrupt as error:
            interrupted = error
            self._record_rest("interrupted", "not run: the run was interrupted")
        except DiskFull as error:
            self.rundir.remove_caches()  # which may be what fills it
            self._record_rest(f"its result could not be stored: {error}", f"not run: {error}")
        finally:
            self.interruption.at_once = False
            self.rundir.remove_caches()
            self.rundir.tidy_unfinished()
            self._prune()
        code = self._finish()
        if self.plan.in_sweep and interrupted is None:
            self.interruption.check()  # one that came since the last stage ended: no further job is to start
        if interrupted is not None:
            resumed_by(interrupted, *self._resuming())
            raise interrupted
        return code

    def _resuming(self) -> tuple[list[str], str]:
        """The words of the command that goes on in the run's directory, and what they are for."""
        words = [*self.plan.run.overrides, directory_word("hydra.run.dir", self.rundir.path)]
        return resuming(self.plan.expected, self.plan.run.flags, words)

    def _prune(self) -> None:
        """Hold the cache to its limit, where this run kept anything. One that others fill is theirs to hold."""
        kept = any(record.key and not record.cached for record in self.rundir.stage_records().values())
        if self.plan.cache is not None and kept and os.access(self.plan.cache, os.W_OK):
            Cache(Path(self.plan.cache)).hold(self.cache_limit)

    def _run_stages(self) -> None:
        if self.options.isolation == "none":
            self._run_in_process()
            return
        while self.plan.remaining:
            self.interruption.check()
            before = len(self.plan.remaining)
            self.plan.batch = batch_of(self.plan.remaining, self.plan.reproduction)
            self._run_worker(self.environment | ({} if any(map(is_timed, self.plan.batch)) else self.reproduction))
            self._forget_finished()
            self.plan.preflight = False
            assert len(self.plan.remaining) < before, "every worker finishes a stage or is blamed for one"

    def _run_in_process(self) -> None:
        """All stages in this process, for a debugger: nothing is caught but what Python raises."""
        from inductor_debug.pipeline.run.processes.worker import Worker

        before = dict(os.environ)
        os.environ.update(self.environment | self.reproduction)
        tempfile.tempdir = None  # what it found before, it would keep
        try:
            Worker(self.plan, self._handle_in_process, isolated=False).run()
        finally:
            os.environ.clear()
            os.environ.update(before)
            tempfile.tempdir = None

    def _handle_in_process(self, event: Event) -> None:
        log_event(event)
        if isinstance(event, Found):
            self._note_devices(event.devices)

    def _note_devices(self, found: TorchFound | None) -> None:
        """Of all processes of the run."""
        if found is not None:
            devices = dataclasses.replace(self.described.devices, found=found.after(self.described.devices.found))
            self.described = dataclasses.replace(self.described, devices=devices)

    def _run_worker(self, environment: Mapping[str, str]) -> None:
        server = fork_server(environment, [*self.plan.reproduction, MARKER]) if self.plan.in_sweep else None
        session = WorkerSession(self.plan, environment, self.rundir, self.options.timeout_s, server)
        try:
            session.serve(self.interruption.check)
        finally:
            session.close()
        if server is not None:
            server.needed_torch += session.needed_torch
        self._note_devices(session.devices)
        self.plan.compiled_by = session.compiled_by or self.plan.compiled_by
        if session.rejected is not None:
            raise ConfigurationError(session.rejected)
        if session.full is not None:
            raise DiskFull(session.full)
        if session.ending is not None:
            self._blame(session.stage, session.stage_seconds, *session.ending)

    def _blame(self, stage: str, seconds: float, status: str, message: str, cause: str) -> None:
        """Record a worker's end with the stage that ran; one that ended between two stages costs none of them."""
        records = self.rundir.stage_records()
        unfinished = [name for name in self.plan.remaining if name not in records]
        if stage in unfinished:
            self._record(stage, status, seconds, message, cause)
        elif unfinished == self.plan.remaining:
            when = "while the stages were being checked" if stage == PREFLIGHT else "before the stage started"
            self._record(unfinished[0], status, seconds, f"{when}: {message}")
        else:
            logger.warning("between stages the worker %s: %s", status, message)

    def _forget_finished(self) -> None:
        records = self.rundir.stage_records()
        self.plan.remaining = [name for name in self.plan.remaining if name not in records]

    def _record(self, name: str, status: str, seconds: float, message: str, cause: str = "") -> None:
        self.rundir.store_stage(StageRecord(name, status, round(seconds, 3), message, cause=cause))
        logger.error("%s %s: %s", name, status, message)

    def _record_rest(self, message: str, rest: str) -> None:
        """Where a run ends before its time: the first unfinished stage crashed, those behind it did not run."""
        self._forget_finished()
        status = summary.CRASHED
        for name in self.plan.remaining:
            self._record(name, status, 0.0, message)
            status, message = summary.SKIPPED, rest

    def _finish(self) -> int:
        records = self.rundir.stage_records()
        seconds = time.time() - self.plan.began
        result = summary.build_summary(self.plan.run, self.plan.stages, records, seconds, self.plan.compiled_by)
        self.rundir.store(SUMMARY, result)
        for line in last_lines(result, records, self.rundir.path, seconds):
            logger.info("%s", line, extra=None if self.plan.in_sweep else LAST)
        if any(record.status == summary.CRASHED and FULL in record.message for record in records.values()):
            logger.error("Try: %s, once there is room", shlex.join(["inductor-debug", *self._resuming()[0]]))
        self.rundir.store(MANIFEST, manifest.build_manifest(self.described, self.rundir, self.plan.stages, records))
        for mistake in dict.fromkeys(record.mistake for record in records.values() if record.mistake):
            sys.stderr.write(f"{mistake}\n")
        return summary.exit_code(records.values())


class _QuietHandler(logging.FileHandler):
    """What a full disk does not take is not logged, and said nowhere else."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of what could not be written before
            super().close()


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[logging.Handler]:
    """Append this package's log records to ``path``, unless a handler of the application's already does."""
    root, ours = logging.getLogger(), logging.getLogger("inductor_debug")
    for theirs in root.handlers:
        if getattr(theirs, "baseFilename", None) == str(path):
            yield theirs
            return
    handler = _QuietHandler(path)
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    level = ours.level
    if ours.getEffectiveLevel() > logging.INFO:
        ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    try:
        yield handler
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)
        handler.close()
