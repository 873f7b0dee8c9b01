"""What Dynamo leaves to Python without a graph. A backend is called for graphs alone, so here each frame is looked at.

Relies on ``convert_frame.ConvertFrameAssert.__call__`` with its ``_torchdynamo_orig_backend``, ``_one_graph``,
``_export`` and ``_box``, on ``InstructionTranslatorBase.log_graph_break``, on ``exc.BackendCompilerFailed``, on
``compiler_fn`` and ``kwargs`` of torch.compile's backend, and on ``__compiled_fn…``, the name by which a converted
frame calls its graph.
"""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any
from unittest import mock

import torch
from torch._dynamo import convert_frame, exc, symbolic_convert

from stages.capture.sources import function_name

_GRAPH = "__compiled_fn"
_watched: dict[Any, Callable[..., None]] = {}
"""Backend → what is told of the frames that Dynamo converts for it."""


def watch_frames(backend: Callable[..., Any], tell: Callable[..., None]) -> None:
    """From now on ``tell`` hears of each frame that ``torch.compile(…, backend)`` runs in Python without a graph.

    Told are a graph break before a frame's first operation, and a frame that Dynamo gives up (a break from which it
    can't resume, or too many recompilations). A break after a graph is told to the backend with that graph. Not seen
    are frames that Dynamo never looks at, and those that hold no tensor.

    Args:
        backend: as registered with torch; other backends are converted as before.
        tell: gets why, in words, and the ``mode`` and ``options`` of torch.compile; what it raises, the caller of the
            compiled function gets as a failure of the backend.
    """
    _watched[backend] = tell
    original = convert_frame.ConvertFrameAssert.__call__
    if getattr(original, "_watches", False):
        return

    @functools.wraps(original)
    def convert(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        found = _watch_of(self)
        if found is None:
            return original(self, frame, *args, **kwargs)
        with _noted_breaks() as breaks:
            try:
                result = original(self, frame, *args, **kwargs)
            except (exc.Unsupported, exc.UserError) as error:
                if not getattr(self._box, "error_on_graph_break", False) and not _hides_nothing(str(error)):
                    _tell(self, found, frame.f_code, _in_words(error, _stack(error)), cause=error)
                raise
        hiding = [reason for reason in breaks if not _hides_nothing(reason)]
        if hiding and not _calls_graph(result):
            _tell(self, found, frame.f_code, hiding[-1])
        return result

    convert._watches = True  # type: ignore[attr-defined]
    convert_frame.ConvertFrameAssert.__call__ = convert  # type: ignore[method-assign]


def _hides_nothing(reason: str) -> bool:
    """Whether a break leaves no result unchecked: the frame raises, for its caller to see, or asked for the break."""
    return reason.startswith(("Observed exception", "Call to `torch._dynamo.graph_break()`"))


def _watch_of(converter: Any) -> Callable[..., None] | None:
    if converter._one_graph or converter._export:  # there a break is an error already
        return None
    backend = converter
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    function = getattr(backend, "compiler_fn", backend)
    try:
        tell = _watched.get(function)
    except TypeError:  # a backend without a hash
        return None
    return None if tell is None else functools.partial(tell, **getattr(backend, "kwargs", {}))


def _tell(
    converter: Any, tell: Callable[..., None], code: CodeType, reason: str, cause: BaseException | None = None
) -> None:
    place = f"{function_name(code.co_name)} ({code.co_filename}:{code.co_firstlineno})"
    try:
        tell(f"what Python runs of {place} is in no graph, so it was not checked: {reason}")
    except Exception as error:  # noqa: BLE001 - as torch treats whatever a backend raises
        raise exc.BackendCompilerFailed(converter._torchdynamo_orig_backend, error, None) from cause


def _calls_graph(result: Any) -> bool:
    guarded = result.guarded_code
    return guarded is not None and any(name.startswith(_GRAPH) for name in guarded.code.co_names)


@contextlib.contextmanager
def _noted_breaks() -> Iterator[list[str]]:
    """The graph breaks that Dynamo meets meanwhile, in words. Dynamo's lock is held: nothing else compiles."""
    original = symbolic_convert.InstructionTranslatorBase.log_graph_break
    noted: list[str] = []

    def note(translator: Any, *args: Any, **kwargs: Any) -> None:
        errors = [value for value in (*args, *kwargs.values()) if isinstance(value, BaseException)]
        words = errors[0] if errors else kwargs.get("reason", args[1] if len(args) > 1 else "")
        noted.append(_in_words(words, _stack(*errors) or list(torch._guards.TracingContext.extract_stack())))
        original(translator, *args, **kwargs)

    with mock.patch.object(symbolic_convert.InstructionTranslatorBase, "log_graph_break", note):
        yield noted


def _stack(*errors: BaseException) -> list[traceback.FrameSummary]:
    return list(getattr(errors[0], "real_stack", None) or ()) if errors else []


def _in_words(reason: Any, stack: list[traceback.FrameSummary]) -> str:
    """The first line, and the user's line."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    place = f"  at {stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    return f"{lines[0] if lines else 'unknown reason'}{place}"
