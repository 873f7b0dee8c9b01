"""TorchDynamo: one recorded compilation with its graph breaks, guards and recompilations.

Relies on ``torch._dynamo.optimize`` (what ``torch.compile`` calls) for its guard hooks, and on Dynamo's placeholders'
``grapharg``. ``InstructionTranslatorBase.log_graph_break`` is called once a break, whether or not a graph came of it.
The ``graph_breaks`` log tells of frames that Dynamo gave up.
"""

import contextlib
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import fx
from torch._dynamo import convert_frame, symbolic_convert
from torch._guards import CompileContext

from inductor_debug.models.torch_text import function_name
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder, parse_frames
from inductor_debug.stages.torch_internals.break_text import reason_in
from inductor_debug.stages.torch_internals.fx_records import PlaceholderInfo, RecordContext, module_path, source_of
from inductor_debug.stages.torch_internals.fx_values import node_value, shape_of

CompileKey = tuple[int, int] | None
"""Frame and how many times it was compiled: what ties a guard or a break to the graph of the same compilation."""

_OBJECT_ID = re.compile(r"(___check_(?:obj|type)_id\(.*?, )\d{6,}(\))")
_UNRESUMABLE = "Failed to handle graph break gracefully"
_PREAMBLES = ("Encountered graph break", _UNRESUMABLE, "Graph Break Reason")
_SKIPPED = "Graph break: torch.compile cannot properly resume"


@dataclass
class BreakEvent:
    """One graph break. ``kind`` is "break", or "skipped_frame" where Dynamo left the whole frame to Python."""

    key: CompileKey
    kind: str
    reason: str
    detail: str
    source: SourceLine | None
    stack: list[SourceLine] = field(default_factory=list)


@dataclass
class GuardEvent:
    """One guard of one compilation. ``code`` holds the conditions as Python, object addresses left out."""

    key: CompileKey
    type: str
    name: str
    scope: str
    code: list[str]
    source: SourceLine | None


@dataclass
class RecompileEvent:
    """A guard that failed, so that a frame was compiled again as ``key``. ``reason`` begins with the old one's id."""

    key: CompileKey
    reason: str
    function: str
    file: str
    line: int


@dataclass
class CompilationLog:
    """What Dynamo said while it compiled."""

    sources: SourceFinder
    breaks: list[BreakEvent] = field(default_factory=list)
    guards: list[GuardEvent] = field(default_factory=list)
    recompiles: list[RecompileEvent] = field(default_factory=list)


def current_compile_key() -> CompileKey:
    """The compilation that runs now; None outside one. A restarted attempt has its predecessor's key."""
    compile_id = CompileContext.current_compile_id()
    frame = getattr(compile_id, "frame_id", None)
    count = getattr(compile_id, "frame_compile_id", None)
    return None if frame is None or count is None else (frame, count)


def reset() -> None:
    """Forget everything Dynamo compiled in this process."""
    torch._dynamo.reset()


def dynamic_shapes(dynamic: bool | None) -> contextlib.AbstractContextManager[None]:
    """What ``torch.compile(dynamic=dynamic)`` sets while it compiles, for what is compiled without saying so."""
    if dynamic is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[None] = torch._dynamo.config.patch(
        assume_static_by_default=not dynamic, automatic_dynamic_shapes=dynamic
    )
    return found


def compile_recorded(
    module: torch.nn.Module,
    backend: Callable[[fx.GraphModule, list[Any]], Callable[..., Any]],
    log: CompilationLog,
    dynamic: bool | None,
) -> Callable[..., Any]:
    """``torch.compile(module, backend=backend, dynamic=dynamic)`` that writes guards and recompilations to ``log``.

    Compilation happens in the first call; make it inside :func:`recorded_breaks`.

    Args:
        module: the model.
        backend: gets each graph and its example inputs, and gives what runs it.
        log: gets the events.
        dynamic: as of torch.compile.
    """
    return torch._dynamo.optimize(
        backend,
        dynamic=dynamic,
        guard_export_fn=lambda guards: log.guards.extend(_guard_events(guards, log.sources)),
        guard_fail_fn=lambda failure: log.recompiles.append(_recompile(failure)),
    )(module)


def _recompile(failure: Any) -> RecompileEvent:
    code = failure.orig_code
    return RecompileEvent(
        key=current_compile_key(),
        reason=str(failure.reason),
        function=function_name(code.co_name),
        file=code.co_filename,
        line=code.co_firstlineno,
    )


def _guard_events(guards: Iterable[Any], sources: SourceFinder) -> Iterator[GuardEvent]:
    key = current_compile_key()
    for guard in sorted(guards):
        name = guard.name() if callable(guard.name) else guard.name
        code = list(dict.fromkeys(guard.code_list or []))
        kind = guard.create_fn_name()
        if kind == "TENSOR_MATCH":
            code.insert(0, _tensor_condition(name, guard.obj_weakref))
        yield GuardEvent(
            key=key,
            type=kind,
            name=name,
            scope=guard.source.name.lower() if guard.source is not None else "",
            code=[_OBJECT_ID.sub(r"\1…\2", str(condition)) for condition in code],
            source=sources.own_frame(_frames(guard.user_stack or [])),
        )


def _tensor_condition(name: str, reference: Any) -> str:
    """What TENSOR_MATCH (which torch checks in C++, without Python code) holds the tensor to."""
    tensor = reference() if callable(reference) else reference
    if not isinstance(tensor, torch.Tensor):
        return f"check_tensor({name})"
    shape = shape_of(tensor)
    return (
        f"check_tensor({name}, {type(tensor).__name__}, {tensor.dtype}, device={str(tensor.device)!r}, "
        f"requires_grad={tensor.requires_grad}, traced_size={shape})"
    )


def _frames(stack: Iterable[traceback.FrameSummary]) -> list[SourceLine]:
    return [
        SourceLine(frame.filename, frame.lineno or 0, (frame.line or "").strip(), function_name(frame.name))
        for frame in stack
    ]


@contextlib.contextmanager
def recorded_breaks(log: CompilationLog) -> Iterator[None]:
    """While open, every graph break of this process is written to ``log``, those that made no graph included."""

    def record(translator: Any, reason: str, error: BaseException | None, stack: list[traceback.FrameSummary]) -> None:
        if not getattr(error, "logged", False):
            log.breaks.append(_break_event(reason, _frames(stack), translator, log.sources))

    with told_breaks(record), _skipped_frames(log):
        yield


def told_breaks(
    tell: Callable[[Any, str, BaseException | None, list[traceback.FrameSummary]], None],
) -> contextlib.AbstractContextManager[Any]:
    """While open, ``tell`` gets the translator, torch's message, the error and the frames of each graph break."""
    original = symbolic_convert.InstructionTranslatorBase.log_graph_break

    def told(translator: Any, *args: Any, **kwargs: Any) -> None:
        error = next((value for value in (*args, *kwargs.values()) if isinstance(value, BaseException)), None)
        stack = getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack()
        tell(translator, str(kwargs.get("reason", args[1] if len(args) > 1 else "")), error, list(stack))
        original(translator, *args, **kwargs)

    return mock.patch.object(symbolic_convert.InstructionTranslatorBase, "log_graph_break", told)


def _break_event(reason: str, frames: list[SourceLine], translator: Any, sources: SourceFinder) -> BreakEvent:
    if not frames:
        code = translator.f_code
        frames = [SourceLine(code.co_filename, translator.lineno or code.co_firstlineno, "", code.co_name)]
    lines = [line for line in reason.splitlines() if line.strip()]
    skipped = any(line.startswith(_UNRESUMABLE) for line in lines)
    while len(lines) > 1 and lines[0].startswith(_PREAMBLES):
        lines = lines[1:]
    return _event("skipped_frame" if skipped else "break", lines, frames, sources)


def _event(kind: str, lines: list[str], frames: list[SourceLine], sources: SourceFinder) -> BreakEvent:
    detail = "\n".join(lines)
    return BreakEvent(current_compile_key(), kind, reason_in(detail), detail, sources.own_frame(frames), frames)


class _SkippedFrameHandler(logging.Handler):
    def __init__(self, log: CompilationLog) -> None:
        super().__init__(logging.DEBUG)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith(_SKIPPED):
            return
        frames = list(parse_frames(message))
        error = record.exc_info[1] if record.exc_info else None
        lines = [line for line in str(error or message).splitlines() if line.strip()]
        self.log.breaks.append(_event("skipped_frame", lines, frames, self.log.sources))


@contextlib.contextmanager
def _skipped_frames(log: CompilationLog) -> Iterator[None]:
    logger = convert_frame.graph_break_log
    level, propagate = logger.level, logger.propagate
    handler = _SkippedFrameHandler(log)
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.DEBUG):  # else somebody else wants these lines too
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    silenced = [(other, other.level) for other in logger.handlers if other is not handler and not logger.propagate]
    for other, _ in silenced:
        other.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        for other, other_level in silenced:
            other.setLevel(other_level)


def break_after(gm: fx.GraphModule) -> str | None:
    """Why Dynamo ended a graph before its frame's end, with the user's line; None where it did not."""
    cause = getattr(gm, "compile_subgraph_reason", None)
    if cause is None or not cause.graph_break:
        return None
    return with_line(cause.reason, cause.user_stack)


def with_line(reason: Any, stack: Sequence[traceback.FrameSummary] | None) -> str:
    """Why, and the user's line."""
    place = f"  at {stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    return f"{reason_in(str(reason)) or 'unknown reason'}{place}"


def dynamo_placeholders(gm: fx.GraphModule, context: RecordContext) -> list[PlaceholderInfo]:
    """What each placeholder of a Dynamo graph stands for, in order: the model's parameter or buffer, or an input."""
    return [_placeholder(node, context) for node in gm.graph.nodes if node.op == "placeholder"]


def _placeholder(node: fx.Node, context: RecordContext) -> PlaceholderInfo:
    source = source_of(node, context)
    argument = node.meta.get("grapharg")
    example = getattr(argument, "example", None) if argument is not None else None
    known = context.tensors.get(id(example)) if isinstance(example, torch.Tensor) else None
    if known is not None:
        name, role = known
        return PlaceholderInfo(name, role, name.rpartition(".")[0], source)
    origin = getattr(argument, "source", None)
    name = getattr(origin, "name", "") if origin is not None else ""
    name = name() if callable(name) else name
    role = "parameter" if isinstance(node_value(node), torch.nn.Parameter) else "input"
    local = re.match(r"^[LG]\['([^']+)'\](.*)$", str(name))  # L['args'][0]: args[0] as the user's frame knows it
    shown = f"{local[1]}{local[2]}" if local else str(name)
    return PlaceholderInfo(shown, role, module_path(node, context.modules), source)
