"""From what Dynamo's hooks said during one call to a record of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from inductor_debug.models.errors import root_cause
from inductor_debug.stages.artifacts.guards import Break, Guard, Limit, Recompile
from inductor_debug.stages.formatting import in_one_line
from inductor_debug.stages.guards import suggestions
from inductor_debug.stages.guards.records import (
    LIMIT_HIT,
    NEW_FRAMES,
    RECOMPILED,
    REFUSED_BY_COMPILER,
    REUSED,
    Call,
    CompiledFrame,
)
from inductor_debug.stages.torch_internals.break_text import is_recompile_limit, parse_break
from inductor_debug.stages.torch_internals.dynamo import (
    BreakEvent,
    CompilationLog,
    CompileKey,
    GuardEvent,
    RecompileEvent,
)
from inductor_debug.stages.torch_internals.guard_hooks import FrameEvent, FrameLog
from inductor_debug.stages.torch_internals.guard_text import (
    Reason,
    parse_reason,
    tensor_named,
    unscoped,
    with_layout,
    without_counters,
)

SHAPE_ENV = "SHAPE_ENV"


@dataclass
class Reader:
    """Reads the logs of one session, call after call.

    Attributes:
        log, hooks: what is written during a call, emptied before the next.
        numbers: compilation → number of its graph, over all calls.
        dynamic: as torch.compile was given it.
        guards: those of every frame so far, by compile id.
    """

    log: CompilationLog
    hooks: FrameLog
    numbers: dict[CompileKey, int]
    dynamic: bool | None
    guards: dict[str, list[Guard]] = field(default_factory=dict)

    def read(self, raised: Exception | None) -> Call:
        """The record of the call that has just ended."""
        frames = [self._frame(event) for event in self.hooks.frames]
        self.guards |= {frame.compile_id: frame.guards for frame in frames}
        call = Call(
            outcome=REUSED,
            message="" if raised is None else in_one_line(root_cause(raised)),
            frames=frames,
            recompiles=[self._recompile(event) for event in self.log.recompiles],
            limits=list(self._limits()),
            breaks=[self._break(event) for event in self.log.breaks if not is_recompile_limit(event.detail)],
        )
        call.outcome = _outcome(call, raised)
        return call

    def graph(self, key: CompileKey) -> str | None:
        number = self.numbers.get(key)
        return None if number is None else f"g{number}.dynamo"

    def _frame(self, event: FrameEvent) -> CompiledFrame:
        exported = [guard for guard in self.log.guards if guard.key == event.key]
        guards = [item for guard in exported for item in _guards(guard, event)]
        if exported:
            guards += [Guard(kind, "", "", [without_counters(condition)], None) for kind, condition in event.relations]
        return CompiledFrame(
            compile_id=compile_id(event.key),
            graph=self.graph(event.key),
            code=event.code,
            function=event.function,
            file=event.file,
            line=event.line,
            guards=guards,
        )

    def _recompile(self, event: RecompileEvent) -> Recompile:
        reason = parse_reason(event.reason)
        limit = next((item for item in self.hooks.limits if item.key == event.key), None)
        return Recompile(
            compile_id=compile_id(event.key),
            graph=self.graph(event.key),
            failed=reason.failed,
            failed_graph=next((self.graph(key) for key in self.numbers if compile_id(key) == reason.failed), None),
            guard=reason.guard,
            source=self._source(reason) or self._commented(reason, event.file),
            function=event.function,
            file=event.file,
            line=event.line,
            limit=None if limit is None else f"torch._dynamo.config.{limit.limit}={limit.value}",
            suggestion=suggestions.for_recompile(reason.guard, self.dynamic),
        )

    def _source(self, reason: Reason) -> str | None:
        """The line that made a guard necessary. torch names the guard's object without its scope, ``L['x']`` as x."""
        text, tensor = reason.guard, tensor_named(reason.guard)
        for guard in self.guards.get(reason.failed, []):
            if unscoped(guard.name) == tensor or any(text in (code, unscoped(code)) for code in guard.code):
                return guard.source
        return None

    def _commented(self, reason: Reason, compiled: str) -> str | None:
        """The line in torch's comment on a condition on sizes; it has the end of the file's path alone.

        Args:
            compiled: the file of the frame that was compiled again.
        """
        if reason.place is None:
            return None
        end, line = reason.place
        sources = [guard.source for guard in self.guards.get(reason.failed, []) if guard.source]
        files = {compiled, *(source.rpartition(":")[0] for source in sources)}
        found = [file for file in files if file.endswith(end)]
        return f"{found[0]}:{line}" if len(found) == 1 else None

    def _limits(self) -> Iterator[Limit]:
        for event in self.hooks.limits:
            told = next((item for item in self.log.recompiles if item.key == event.key), None)
            place = ("", "", 0) if told is None else (told.function, told.file, told.line)
            yield Limit(event.limit, event.value, compile_id(event.key), *place)

    def _break(self, event: BreakEvent) -> Break:
        text, place = parse_break(event.detail), event.source
        return Break(
            graph=self.graph(event.key),
            compile_id=compile_id(event.key),
            kind=event.kind,
            reason=text.reason or event.reason,
            explanation=text.explanation,
            suggestion=suggestions.for_break(event.detail),
            hints=text.hints,
            documentation=text.documentation,
            **(vars(place) if place else dict.fromkeys(("file", "line", "code", "function"))),
            stack=[str(frame) for frame in event.stack],
        )


def compile_id(key: CompileKey) -> str:
    """``0/1``: the second compilation of the first frame; empty outside one."""
    return "" if key is None else f"{key[0]}/{key[1]}"


def _outcome(call: Call, raised: Exception | None) -> str:
    if raised is not None:
        return REFUSED_BY_COMPILER
    if call.limits:
        return LIMIT_HIT
    if call.recompiles or any(not frame.compile_id.endswith("/0") for frame in call.frames):
        return RECOMPILED
    return NEW_FRAMES if call.frames else REUSED


def _guards(event: GuardEvent, frame: FrameEvent) -> Iterator[Guard]:
    """A guard as a record, with what it holds a tensor to; the conditions on symbolic sizes each for itself."""
    source = str(event.source) if event.source else None
    code, name = [without_counters(condition) for condition in event.code], without_counters(event.name)
    if event.type == SHAPE_ENV:
        yield from (Guard(SHAPE_ENV, "", event.scope, [condition], source) for condition in code)
        return
    size, stride = frame.layouts.get(event.name, (None, None)) if event.type == "TENSOR_MATCH" else (None, None)
    if size is not None and code:
        code[0] = with_layout(code[0], size, stride)
    yield Guard(event.type, name, event.scope, code, source, size, stride)
