"""From what Dynamo's hooks said during one call to a record of it."""

import re
from collections.abc import Iterator

from inductor_debug.stages.guards import suggestions
from inductor_debug.stages.guards.messages import said
from inductor_debug.stages.guards.records import (
    LIMIT_HIT,
    NEW_FRAMES,
    RECOMPILED,
    REFUSED_BY_COMPILER,
    REUSED,
    Break,
    Call,
    CompiledFrame,
    Guard,
    Limit,
    Recompile,
)
from inductor_debug.stages.torch_internals.dynamo import (
    BreakEvent,
    CompilationLog,
    CompileKey,
    GuardEvent,
    RecompileEvent,
)
from inductor_debug.stages.torch_internals.guard_hooks import FrameEvent, FrameLog

SHAPE_ENV = "SHAPE_ENV"
_LIMIT_REASON = "Dynamo recompile limit exceeded"
_COUNTERS = ((re.compile(r"(__builtins_dict__)_\d+"), r"\1"), (re.compile(r"(G\['\w*?_)\d{6,}_c\d+"), r"\1…"))
"""What differs between two compilations of one frame: numbers, addresses and Dynamo's count of compilations (``_c10``)
in the names of globals."""
_REASON = re.compile(r"^(?P<id>[\d!]*\d+/\d+(?:_\d+)?): (?P<guard>.*)", re.DOTALL)
_COMMENT = re.compile(r"\s{2,}# .*", re.DOTALL)
_PLACE = re.compile(r"# (?P<file>\S+):(?P<line>\d+) in ")
_TENSOR = re.compile(r"^tensor '(?P<name>.+?)' ")


class Reader:
    """Reads the logs of one session, call after call.

    Args:
        log, hooks: what is written during a call, emptied before the next.
        numbers: compilation → number of its graph, over all calls.
        dynamic: as torch.compile was given it.
    """

    def __init__(
        self, log: CompilationLog, hooks: FrameLog, numbers: dict[CompileKey, int], dynamic: bool | None
    ) -> None:
        self.log, self.hooks, self.numbers, self.dynamic = log, hooks, numbers, dynamic
        self.guards: dict[str, list[Guard]] = {}
        """Those of every frame so far, by compile id."""

    def read(self, raised: Exception | None) -> Call:
        """The record of the call that has just ended."""
        frames = [self._frame(event) for event in self.hooks.frames]
        self.guards |= {frame.compile_id: frame.guards for frame in frames}
        call = Call(
            outcome=REUSED,
            message="" if raised is None else said(raised),
            frames=frames,
            recompiles=[self._recompile(event) for event in self.log.recompiles],
            limits=list(self._limits()),
            breaks=[self._break(event) for event in self.log.breaks if not event.detail.startswith(_LIMIT_REASON)],
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
            guards += [Guard(kind, "", "", [_named(condition)], None) for kind, condition in event.relations]
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
        match = _REASON.match(event.reason)
        failed, text = (match["id"], match["guard"]) if match else ("", event.reason)
        guard = _COMMENT.sub("", text.partition("\nUser stack trace:")[0]).strip()
        limit = next((item for item in self.hooks.limits if item.key == event.key), None)
        return Recompile(
            compile_id=compile_id(event.key),
            graph=self.graph(event.key),
            failed=failed,
            failed_graph=self._graph_of(failed),
            guard=guard,
            source=self._source(failed, guard) or self._commented(failed, event),
            function=event.function,
            file=event.file,
            line=event.line,
            limit=None if limit is None else f"torch._dynamo.config.{limit.limit}={limit.value}",
            suggestion=suggestions.for_recompile(guard, self.dynamic),
        )

    def _graph_of(self, id: str) -> str | None:
        return next((self.graph(key) for key in self.numbers if compile_id(key) == id), None)

    def _source(self, id: str, text: str) -> str | None:
        """The line that made a guard necessary. torch names the guard's object without its scope, ``L['x']`` as x."""
        tensor = _TENSOR.match(text)
        for guard in self.guards.get(id, []):
            named = _unscoped(guard.name) == tensor["name"] if tensor else False
            if named or any(_unscoped(code) == text or code == text for code in guard.code):
                return guard.source
        return None

    def _commented(self, id: str, event: RecompileEvent) -> str | None:
        """The line in torch's comment on a condition on sizes; it has the end of the file's path alone."""
        places = list(_PLACE.finditer(event.reason))
        if not places:
            return None
        sources = [guard.source for guard in self.guards.get(id, []) if guard.source]
        files = {event.file, *(source.rpartition(":")[0] for source in sources)}
        found = [file for file in files if file.endswith(places[-1]["file"])]
        return f"{found[0]}:{places[-1]['line']}" if len(found) == 1 else None

    def _limits(self) -> Iterator[Limit]:
        for event in self.hooks.limits:
            told = next((item for item in self.log.recompiles if item.key == event.key), None)
            place = ("", "", 0) if told is None else (told.function, told.file, told.line)
            yield Limit(event.limit, event.value, compile_id(event.key), *place)

    def _break(self, event: BreakEvent) -> Break:
        text, place = suggestions.parse_break(event.detail), event.source
        return Break(
            graph=self.graph(event.key),
            compile_id=compile_id(event.key),
            kind=event.kind,
            reason=text.reason or event.reason,
            explanation=text.explanation,
            suggestion=suggestions.for_break(event.detail),
            hints=text.hints,
            documentation=text.documentation,
            file=place.file if place else None,
            line=place.line if place else None,
            function=place.function if place else None,
            code=place.code if place else None,
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
    code, name = [_named(condition) for condition in event.code], _named(event.name)
    if event.type == SHAPE_ENV:
        yield from (Guard(SHAPE_ENV, "", event.scope, [condition], source) for condition in code)
        return
    size, stride = frame.layouts.get(event.name, (None, None)) if event.type == "TENSOR_MATCH" else (None, None)
    if size is not None and code:
        code[0] = re.sub(r", traced_size=.*\)$", f", size={size}, stride={stride})", code[0])
    yield Guard(event.type, name, event.scope, code, source, size, stride)


def _named(text: str) -> str:
    for pattern, plain in _COUNTERS:
        text = pattern.sub(plain, text)
    return text


def _unscoped(text: str) -> str:
    """Without the scope, as torch words a failure: ``L['x']`` → ``x``."""
    return re.sub(r"L\['(.*?)'\]", r"\1", text)
