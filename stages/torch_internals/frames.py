"""What Dynamo leaves to Python without a graph. A backend is called for graphs alone, so here each frame is looked at.

Relies on ``convert_frame.ConvertFrameAssert``, its ``__init__`` with ``compiler_fn``, and its
``_torchdynamo_orig_backend``, ``_one_graph``, ``_export`` and ``_box``, on ``exc.BackendCompilerFailed``, on
``compiler_fn`` and ``kwargs`` of torch.compile's backend, on ``__compiled_fn…``, the name by which a converted frame
calls its graph, and of
``backends.registry`` on ``_BACKENDS`` (name → entry point), ``_COMPILER_FNS`` (name → what it led to) and, up to torch
2.13, on ``_tags``, which ``register_backend`` sets.
"""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any

from torch._dynamo import convert_frame, exc
from torch._dynamo.backends import registry

from inductor_debug.models.torch_text import function_name
from inductor_debug.stages.torch_internals.dynamo import told_breaks, with_line

_GRAPH = "__compiled_fn"


class WatchedBackend:
    """A backend that hears of each frame that ``torch.compile(…, backend)`` runs in Python without a graph.

    Told are a graph break before a frame's first operation, and a frame that Dynamo gives up (a break from which it
    can't resume, or too many recompilations). A break after a graph is told to the backend with that graph. Not seen
    are frames that Dynamo never looks at, and those that hold no tensor.

    torch has no hook for this. So what converts frames for this backend is made ours where ``torch.compile`` makes it,
    object by object: torch's class is patched from when torch looks the backend up until then. No import changes torch,
    nothing stays changed when ``torch.compile`` returned, and what converts for other backends is torch's own always.

    Args:
        compiler: the backend, as ``torch.compile`` takes it.
        tell: gets why, in words, and the ``mode`` and ``options`` of torch.compile; what it raises, the caller of the
            compiled function gets as a failure of the backend.

    Attributes:
        executor: who executes, see :class:`stages.artifacts.execution.Execution`.
    """

    executor = "own"

    def __init__(self, compiler: Callable[..., Any], tell: Callable[..., None]) -> None:
        self.__wrapped__, self.tell = compiler, tell
        self.__doc__, self.__module__, self.__qualname__ = compiler.__doc__, compiler.__module__, compiler.__qualname__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __name__(self) -> str:
        """torch.compile reads it of a backend that it is given."""
        _await_converter()
        return self.__wrapped__.__name__

    @property
    def by_name(self) -> "WatchedBackend":
        """The backend, as an entry point leads to it: torch loads one when it looks a backend up by name."""
        _await_converter()
        return self

    @property
    def _tags(self) -> tuple[str, ...]:
        return ()

    @_tags.setter
    def _tags(self, value: tuple[str, ...]) -> None:
        """Up to 2.13 torch sets them of a backend that it found by name; newer ones keep them in a table."""
        _await_converter()


def _await_converter() -> None:
    """Until torch has made what converts frames for a watched backend: make that one ours, then restore torch's own."""
    original = convert_frame.ConvertFrameAssert.__init__
    if getattr(original, "_awaits", False):
        return

    @functools.wraps(original)
    def init(self: Any, compiler_fn: Any, *args: Any, **kwargs: Any) -> None:
        original(self, compiler_fn, *args, **kwargs)
        if _watch_of(compiler_fn) is None:
            return
        convert_frame.ConvertFrameAssert.__init__ = original  # type: ignore[method-assign]
        _forget_names()
        if not self._one_graph and not self._export:  # there a break is an error already
            self.__class__ = _WatchedFrames

    init._awaits = True  # type: ignore[attr-defined]
    convert_frame.ConvertFrameAssert.__init__ = init  # type: ignore[method-assign]


def _forget_names() -> None:
    """Have torch look watched backends up again by name, as the first time: it keeps what their entry points led to."""
    for name, found in list(registry._COMPILER_FNS.items()):
        if isinstance(found, WatchedBackend):
            del registry._COMPILER_FNS[name]
            # in the place of an entry point that was loaded
            registry._BACKENDS[name] = SimpleNamespace(load=functools.partial(getattr, found, "by_name"))  # type: ignore[assignment]


class _WatchedFrames(convert_frame.ConvertFrameAssert):
    """Converts frames as torch does, for a watched backend, and tells those without a graph.

    It stands between torch's functions on the stack, by which torch knows the caller of a frame. So a frame under
    ``torch.compiler.disable(recursive=False)`` is converted, and thus checked, in place of being run in Python.
    """

    def __call__(self, frame: Any, *args: Any, **kwargs: Any) -> Any:
        tell = _watch_of(self)
        assert tell is not None, "it was made for a watched backend"
        with _noted_breaks() as breaks:
            try:
                result = super().__call__(frame, *args, **kwargs)
            except (exc.Unsupported, exc.UserError) as error:
                if not getattr(self._box, "error_on_graph_break", False) and not _hides_nothing(str(error)):
                    stack = list(getattr(error, "real_stack", None) or ())
                    _tell(self, tell, frame.f_code, with_line(error, stack), cause=error)
                raise
        hiding = [reason for reason in breaks if not _hides_nothing(reason)]
        if hiding and not _calls_graph(result):
            _tell(self, tell, frame.f_code, hiding[-1])
        return result


def _hides_nothing(reason: str) -> bool:
    """Whether a break leaves no result unchecked: the frame raises, for its caller to see, or asked for the break."""
    return reason.startswith(("Observed exception", "Call to `torch._dynamo.graph_break()`"))


def _watch_of(backend: Any) -> Callable[..., None] | None:
    """What a watched backend is to be told with, behind all that torch wraps it in; None for any other."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    found = getattr(backend, "compiler_fn", backend)
    return (
        functools.partial(found.tell, **getattr(backend, "kwargs", {})) if isinstance(found, WatchedBackend) else None
    )


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
    noted: list[str] = []

    def note(translator: Any, reason: str, error: BaseException | None, stack: list[traceback.FrameSummary]) -> None:
        noted.append(with_line(reason if error is None else error, stack))

    with told_breaks(note):
        yield noted
