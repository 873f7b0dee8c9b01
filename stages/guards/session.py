"""One compiled case on a cache of its own, called again and again, each call with what torch compiled in it."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.nested import cast_in_place, counterpart
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.guards.reading import Reader
from inductor_debug.stages.guards.records import LIMIT_HIT, REFUSED_BY_COMPILER, REUSED, Call
from inductor_debug.stages.torch_internals import dynamo
from inductor_debug.stages.torch_internals.dynamo import CompilationLog, CompileKey
from inductor_debug.stages.torch_internals.guard_hooks import FrameLog, recorded_frames


class Session:
    """A case compiled under one policy. Dynamo's caches are emptied first: nothing older is reused.

    Attributes:
        unchanged: True while only the first call compiled anything, so that what follows meets its guards alone.
        raised: what the last call raised, or None.
    """

    def __init__(self, case: Case, backend: Callable[..., Any], dynamic: bool | None) -> None:
        """Args:
        case: the case; module, inputs and generators are left as found by every call.
        backend: for ``torch.compile(backend=…)``.
        dynamic: as torch.compile takes it.
        """
        dynamo.reset()
        self.case = case
        self.unchanged = True
        self.raised: Exception | None = None
        self._backend = backend
        self._ran, self._expected, self._limited = 0, 0, False
        self._numbers: dict[CompileKey, int] = {}
        sources = SourceFinder(case.module)
        self._log, self._hooks = CompilationLog(sources), FrameLog()
        self._reader = Reader(self._log, self._hooks, self._numbers, dynamic)
        self._function = dynamo.compile_recorded(case.module, self._compile, self._log, dynamic)

    def first(self, repeated: bool = False) -> tuple[Call, Call | None]:
        """The first call and, with ``repeated``, the same again in the state in which the first one left the model."""
        with self.case.preserved():
            base = self._call(self.case)
            self._expected = self._ran
            again = self._call(self.case) if repeated and base.outcome != REFUSED_BY_COMPILER else None
        self.unchanged = again is None or again.outcome == REUSED
        return base, again

    def call(self, case: Case, cast: torch.dtype | None = None) -> Call:
        """A further call.

        Args:
            case: the case with other inputs; it is left as it was.
            cast: dtype of the module's floating weights for this call; None for their own.
        """
        with case.preserved(), cast_weights(case, cast):
            call = self._call(case)
        self.unchanged = self.unchanged and call.outcome == REUSED
        return call

    def _compile(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        """The backend, which notes the order in which graphs come: their numbers are capture's."""
        self._numbers.setdefault(dynamo.current_compile_key(), len(self._numbers))
        compiled = self._backend(gm, example_inputs)

        @functools.wraps(compiled)
        def counted(*args: Any) -> Any:
            self._ran += 1
            return compiled(*args)

        return counted

    def _call(self, case: Case) -> Call:
        self._log.breaks, self._log.guards, self._log.recompiles = [], [], []
        self._hooks.frames, self._hooks.limits = [], []
        self.raised, self._ran = None, 0
        with dynamo.recorded_breaks(self._log), recorded_frames(self._hooks):
            seed_everything(case.seed)
            try:
                case.step(self._function)
                case.synchronize()
            except Exception as error:  # noqa: BLE001 - whatever the compiler, the backend or what it made raises
                self.raised = error
        call = self._reader.read(self.raised)
        if call.outcome == REUSED and self._limited and self._ran < self._expected:
            call.outcome = LIMIT_HIT
            call.message = "an earlier call reached a limit: torch compiles this frame no more, Python runs it"
        self._limited = self._limited or bool(call.limits)
        return call


@contextmanager
def cast_weights(case: Case, dtype: torch.dtype | None) -> Iterator[None]:
    """The module's parameters and buffers in another floating dtype; the caller puts them back (``preserved``).

    As ``Module.to`` does it: parameters are the same objects, buffers other ones. Up to torch 2.11 guards do not see
    that a buffer's ``data`` is another.
    """
    if dtype is not None:
        becomes = functools.partial(counterpart, target=dtype)
        cast_in_place(case.module.parameters(), becomes)
        for owner in case.module.modules():
            for name, buffer in list(owner.named_buffers(recurse=False, remove_duplicate=False)):
                setattr(owner, name, buffer.to(becomes(buffer.dtype)))
    yield
