"""The process in which stages run: ``python -P -m pipeline.run.processes.worker EVENTS_FD``, the plan on its input.

It reports through lines on the events' file descriptor, each a token and an event (:mod:`pipeline.run.events`).
"""

import contextlib
import dataclasses
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductor_debug.models.collection import kept_imports
from inductor_debug.models.errors import ConfigurationError, UserError, mistake_in
from inductor_debug.models.shapes import reader
from inductor_debug.pipeline.cache.turns import Machine
from inductor_debug.pipeline.config.imports import arrange_path
from inductor_debug.pipeline.directory.digest import artifact_digests
from inductor_debug.pipeline.directory.met import told_of, with_met
from inductor_debug.pipeline.directory.names import MANIFEST, SUMMARY
from inductor_debug.pipeline.directory.records import TorchFound
from inductor_debug.pipeline.directory.rundir import FULL, DiskFull, RunDirectory, is_no_space, run_id
from inductor_debug.pipeline.directory.summary import CRASHED, FAILED, PASSED, REPROS, SKIPPED, build_summary
from inductor_debug.pipeline.run import compiled_by
from inductor_debug.pipeline.run.error_words import cause_of, headline, is_no_resource, message_of
from inductor_debug.pipeline.run.events import (
    PREFLIGHT,
    Checked,
    Compiled,
    Done,
    Finished,
    Found,
    Full,
    Progress,
    Rejected,
    Started,
    Waiting,
    Warned,
)
from inductor_debug.pipeline.run.plan import ALWAYS_LAST, Plan
from inductor_debug.pipeline.run.processes.narrowing import narrowed
from inductor_debug.pipeline.run.processes.preflight import build_case, check_backend, check_eager, needs_eager
from inductor_debug.pipeline.run.processes.process import (
    Emit,
    describe_devices,
    keep_recursion_limit,
    limit_memory,
    prepare_process,
    writer,
)
from inductor_debug.pipeline.run.processes.reuse import MadeBy, Reuse
from inductor_debug.pipeline.run.restoring import Expected
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.artifacts.records import ReproRecord, StageRecord
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.formatting import noted
from inductor_debug.stages.process_end import leave
from inductor_debug.stages.registry import build_stage, declared
from inductor_debug.stages.torch_internals.dynamo_options import in_force

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions

logger = logging.getLogger("inductor_debug.pipeline.run.processes.worker")


class Worker:
    """Runs the remaining stages of a plan in this process.

    Args:
        plan: what to run.
        emit: told of every event.
        isolated: whether this is a process of its own, which may start others to measure in.
    """

    def __init__(self, plan: Plan, emit: Emit, *, isolated: bool = True) -> None:
        self.plan = plan
        self.emit = emit
        self.isolated = isolated
        self.directory = RunDirectory(Path(plan.directory), identity=plan.run.identity)
        self.context = StageContext(
            plan.settings,
            self.directory,
            progress=lambda text: self.emit(Progress(self.current, text)),
            compiled_with=self._tell_options,
            children={key: os.environ[key] for key in os.environ if key not in plan.reproduction} if isolated else None,
            time_s=plan.timeout_s if isolated else None,
            unfinished=self.directory.unfinished,
            folder=Path(plan.directory),
        )
        self.reuse = Reuse(plan, self.directory, os.environ, lambda stage, text: self.emit(Progress(stage, text)),
                           waiting=self._tell_waiting)  # fmt: skip
        self.machine = Machine(None if plan.machine is None else Path(plan.machine))
        self.stages: dict[str, Stage] = {}
        self.current = ""

    def run(self) -> None:
        """Check all stages, then run them in order; nothing that a stage raises gets out of here.

        Raises:
            ConfigurationError: in the preflight; no stage ran.
            DiskFull: a stage's record could not be stored.
        """
        with in_force(self.plan.settings.backend.dynamo):
            self._run_all()

    def _run_all(self) -> None:
        self.reuse.look(self.plan.remaining)
        with self._with_others():
            with kept_imports() if self.isolated else contextlib.nullcontext():
                for name in self.plan.remaining:
                    if name not in self.reuse.hits:  # building one imports what it needs, torch above all
                        self._build(name)
            if self.plan.preflight:
                self._preflight()
                self.emit(Checked())
            else:
                self._know_device()
        for name in self.plan.remaining if self.plan.batch is None else self.plan.batch:
            if name not in self.directory.stage_records():
                self._run_stage(name)
                self.reuse.release(name)
        self.emit(Found(self._devices()))
        self.emit(Done(self._needs_torch))

    @property
    def _needs_torch(self) -> bool:
        return any(stage.uses_torch for stage in self.stages.values())

    def _devices(self) -> TorchFound | None:
        """What torch found; nothing where it was only there, as in a forked worker."""
        return describe_devices() if self._needs_torch else None

    def _tell_waiting(self, text: str, waits: bool) -> None:
        self.emit(Waiting(text if waits else ""))

    def _with_others(self) -> AbstractContextManager[None]:
        """Work of a job of a sweep, which nobody on this machine measures meanwhile."""
        if not self.plan.in_sweep:
            return contextlib.nullcontext()
        return self.machine.together(partial(self._tell_waiting, "another process on this machine measures times"))

    def _at_its_turn(self, name: str) -> AbstractContextManager[None]:
        declaration = self._declaration(name)
        if declaration is None or not declaration.timed:
            return self._with_others()
        return self.machine.alone(partial(self._tell_waiting, f"{name} waits until nobody else works on this machine"))

    def _build(self, name: str) -> None:
        try:
            self.stages[name] = build_stage(name, self.plan.stages[name], self.plan.stage_classes)
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - a stage that can't be built is that stage's result
            self._record(name, CRASHED, 0.0, self._crash(name, error))

    def _preflight(self) -> None:
        for name in self.plan.remaining:
            self._check_needs(name)
        first = next((name for name, stage in self.stages.items() if stage.uses_torch), None)
        if first is not None:
            self._checked(first, partial(check_backend, self.plan))
            self._checked(first, partial(build_case, self.plan, self.context))
        for name, stage in self.stages.items():
            self._checked(name, lambda stage=stage: stage.check(self.context))  # type: ignore[misc]
        if first is not None:
            self._checked(first, self._describe_compiler)
        self._tell_differences(Expected.check)
        if first is not None and "case" in self.context.live and needs_eager(self.plan):
            self.emit(Progress(PREFLIGHT, "running the model once in eager mode"))
            self._checked(first, partial(check_eager, self.plan, self.context))

    def _describe_compiler(self) -> None:
        """Tell what compiles, with the model and the backend as they were built."""
        module = getattr(self.context.live.get("case"), "module", None)
        known = self.plan.compiled_by
        self._tell_compiled_by(compiled_by.of_process(known, self.plan.settings, module, describe_devices()))

    def _tell_differences(self, check: Callable[[Expected, CompiledBy], list[str]]) -> None:
        """Of a run that is made again: what differs from what compiled it, as ``check`` tells it."""
        if self.plan.expected is not None:
            for line in check(self.plan.expected, self.plan.compiled_by):
                self.emit(Warned(line))

    def _tell_compiled_by(self, found: CompiledBy) -> None:
        self.plan.compiled_by = found
        self.emit(Compiled(found))

    def _tell_options(self, seen: "CompilationOptions") -> None:
        """Tell of the compilers' options where the case was compiled, and of a rerun in which they are others."""
        self._tell_compiled_by(compiled_by.where_compiled(self.plan.compiled_by, seen))
        self._tell_differences(Expected.check_compiled)

    def _know_device(self) -> None:
        """A device of a vendor's may be known to torch only once the backend was built, as the preflight does."""
        if self.plan.settings.device.partition(":")[0] not in ("cpu", "cuda") and self.plan.remaining:
            self._checked(self.plan.remaining[0], partial(check_backend, self.plan))

    def _checked(self, name: str, check: Callable[[], object]) -> None:
        """Call a check. What is no mistake in the configuration is left to the stage, which meets it again."""
        try:
            check()
        except (Exception, SystemExit) as error:  # a model may raise anything
            mistake = mistake_in(error)
            if mistake is not None:
                raise mistake from error
            logger.warning("checking %s raised %s; the stage runs all the same", name, headline(error), exc_info=True)

    def _needs(self, name: str) -> tuple[str, ...]:
        return declared()[name].needs if name in self.reuse.hits else self.stages[name].needs

    def _check_needs(self, name: str) -> None:
        order = list(self.plan.stages)
        for need in self._needs(name) if name in self.reuse.hits or name in self.stages else ():
            if need not in order[: order.index(name)]:
                wanted = ",".join([need, *(item for item in order if item != need)])
                problem = "which comes after it" if need in order else "which is not selected"
                raise ConfigurationError(
                    f"stages: {name} needs {need}, {problem}; selected: {', '.join(order)}.\nTry: 'stages=[{wanted}]'"
                )

    def _run_stage(self, name: str) -> None:
        self.current = name
        reason = self._skip_reason(name)
        self.emit(Started(name, skipped=reason is not None))
        if reason is not None:
            self._record(name, SKIPPED, 0.0, reason)
            return
        if name == ALWAYS_LAST:
            self._show_preliminary_summary()
        records = self.directory.stage_records()
        began, told = time.perf_counter(), len(self.context.left)
        if self._restored(name, records, began):
            return
        if name not in self.stages:  # what was in the cache is gone
            self._build(name)
            if name not in self.stages:
                return
        stage = self.stages[name]
        order = list(self.plan.stages)
        earlier = {before: records[before] for before in order[: order.index(name)] if before in records}
        try:
            with self._at_its_turn(name):
                began = time.perf_counter()
                result = stage.run(narrowed(self.context, self._declaration(name), earlier))
            self._store(result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a stage raises is its result
            mistake = mistake_in(error)
            message = self._crash(name, error) if mistake is None else f"not established: {mistake}"
            result = self._with_left(StageResult("failed"), told)
            status = CRASHED if mistake is None else FAILED
            cause = "" if mistake is not None or is_no_resource(error) else cause_of(error)
            self._record(name, status, time.perf_counter() - began, message, result, mistake, cause)
        else:
            result = self._with_left(result, told)
            key = self.reuse.key(name, records)
            record = self._record(name, result.status, time.perf_counter() - began, result.message, result, key=key)
            if result.status in (PASSED, FAILED) and result.repeatable:
                self.reuse.keep(record, MadeBy(self.plan.compiled_by, self._devices()))

    def _declaration(self, name: str) -> Declaration | None:
        return None if name in self.plan.stage_classes else declared().get(name)

    def _restored(self, name: str, records: Mapping[str, StageRecord], began: float) -> bool:
        """Whether a stage need not run, since its result was in the cache."""
        found = self.reuse.restored(name, records)
        if found is None:
            return False
        record, entry = found
        summary, message = record.summary, record.message
        if REPROS in summary:
            ours = [dataclasses.replace(reader(ReproRecord)(item), met_in=None) for item in summary[REPROS]]
            summary, message = self._recognized(summary | {REPROS: ours}, message)
        seconds = round(time.perf_counter() - began, 3)
        message = noted(message, f"from the cache, of {run_id(Path(entry.run))}")
        self._stored(dataclasses.replace(record, summary=summary, message=message, seconds=seconds))
        if not self._needs_torch:  # what made it stands for what makes this run
            made_by = self.reuse.made_by(name, entry)
            self._tell_compiled_by(made_by.instead_of(self.plan.compiled_by))
            self.emit(Found(made_by.devices))
        return True

    def _with_left(self, result: StageResult, told: int) -> StageResult:
        """``result`` with what its stage left beside it, now stored; ``told`` is how much earlier stages had left."""
        for left in self.context.left[told:]:
            self._store(left)
            summary = result.summary | {key: result.summary.get(key, []) + part for key, part in left.summary.items()}
            result = dataclasses.replace(result, artifacts=result.artifacts | left.artifacts, summary=summary)
        return result

    def _skip_reason(self, name: str) -> str | None:
        if name == ALWAYS_LAST:
            return None
        records = self.directory.stage_records()
        constrain = records.get("constrain")
        known = declared().get(name)
        if known is not None and known.skipped_by_violation and constrain is not None and constrain.status == FAILED:
            return "the model does not fit the profile, which is strict"
        for need in self._needs(name):
            status = records[need].status if need in records else "absent"
            if status != PASSED:
                return f"needs {need}, which is {status}"
        return None

    def _store(self, result: StageResult) -> None:
        for name, content in result.artifacts.items():
            self.directory.store(name, content)

    def _record(
        self,
        name: str,
        status: str,
        seconds: float,
        message: str,
        result: StageResult | None = None,
        mistake: UserError | None = None,
        cause: str = "",
        key: str = "",
    ) -> StageRecord:
        """Store a stage's record and tell of it; ``mistake``, ``cause`` and ``key`` as of :class:`StageRecord`."""
        result = result or StageResult("skipped")
        summary, message = self._recognized(result.summary, message)
        record = StageRecord(
            name=name,
            status=status,
            seconds=round(seconds, 3),
            message=message,
            summary=summary,
            digest=result.digest,
            digests=artifact_digests(self.directory, result.digest),
            artifacts=sorted(result.artifacts),
            mistake=None if mistake is None else str(mistake),
            cause=cause,
            key=key,
        )
        self._stored(record)
        return record

    def _stored(self, record: StageRecord) -> None:
        try:
            self.directory.store_stage(record)
        except OSError as error:
            if is_no_space(error):
                raise DiskFull(f"{FULL} ({error.strerror}, {self.directory.path})") from error
            raise
        self.emit(Finished(record.name, record.status, record.seconds, record.message))

    def _recognized(self, summary: dict[str, Any], message: str) -> tuple[dict[str, Any], str]:
        """A stage's part of the summary and its message, with what earlier runs have met of its failures."""
        repros = summary.get(REPROS)
        if not repros or not all(isinstance(item, ReproRecord) for item in repros):  # none, or a package's own
            return summary, message
        repros = with_met(repros, self.directory.path, self.plan.run.started)
        return summary | {REPROS: repros}, noted(message, told_of(repros))

    def _crash(self, name: str, error: BaseException) -> str:
        logger.error("stage %s raised", name, exc_info=error)
        cast = getattr(self.context.live.get("case"), "cast", "")
        return message_of(error, self.plan.memory_limit, cast)

    def _show_preliminary_summary(self) -> None:
        """Let the report read the summary and the manifest as they are now; neither is stored before the run ends."""
        seconds = time.time() - self.plan.began
        records = self.directory.stage_records()
        summary = build_summary(self.plan.run, self.plan.stages, records, seconds, self.plan.compiled_by)
        overlay = {SUMMARY: summary, MANIFEST: self.plan.described}
        self.context.artifacts = RunDirectory(self.directory.path, overlay, identity=self.directory.identity)


def main(arguments: list[str]) -> int:
    """Read the plan and run it. Exit code 0 where every stage has a result, 2 for a configuration error."""
    events = int(arguments[0])
    os.set_inheritable(events, False)
    prepare_process()
    keep_recursion_limit()
    arrange_path()
    content = json.loads(sys.stdin.read())
    emit = writer(events, content.pop("token"))
    try:
        plan = Plan.from_json(content)
        limit_memory(plan.memory_limit, plan.settings.device)
        Worker(plan, emit).run()
    except UserError as error:
        emit(Rejected(str(error)))
        return 2
    except DiskFull as error:
        emit(Full(str(error)))
        return 3
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
