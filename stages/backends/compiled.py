"""A case compiled once, shared by every stage of a process."""

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.free_memory import give_back_memory
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compile_caches import cache_use
from inductor_debug.stages.backends.execution import Watch
from inductor_debug.stages.backends.front import Front
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.backends.strict_error import violation_in
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.torch_internals import dynamo
from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions
from inductor_debug.stages.torch_internals.inductor import LoweredGraph


class CompiledCase:
    """A case's module behind a backend, called with the module's signature.

    Args:
        case: the case.
        adapter: what compiles it.
        backend: by which of its backends, as ``adapter.loading_backend()``; None: ``adapter.dynamo_backend()``.
        stores: whether that is ``adapter.storing_backend()``, which looks no compiled graph up.

    Attributes:
        backend: the adapter's name.
        adapter: what compiled it.
        given: graphs that Dynamo gave to the backend.
        watch: sees who executes them.
        compile_s: wall seconds of the first step, the compilation of forward and (in training) backward included.
        caches: what that compilation met in the compilers' caches: whether it was cold.
        options: what was patched in TorchInductor's configuration for it; empty for other backends.
    """

    def __init__(
        self,
        case: Case,
        adapter: AcceleratorAdapter,
        backend: Callable[..., Any] | None = None,
        *,
        stores: bool = False,
    ) -> None:
        self.adapter = adapter
        self._stores = stores
        self.backend = adapter.name
        self.compile_s: float | None = None
        self.caches = CacheUse()
        self.options: dict[str, Any] = dict(adapter.inductor_options() or {})
        self.given = 0
        self.watch = Watch(adapter.executor, adapter.name)
        self._compiler = adapter.dynamo_backend() if backend is None else backend
        if isinstance(self._compiler, Front):
            self._compiler.watch = self.watch
        self._function: Callable[..., Any] = torch.compile(case.module, backend=self._counted())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.watch.counting:
            return self._function(*args, **kwargs)
        with self.watch.forward():
            return self._function(*args, **kwargs)

    def first_step(self, case: Case) -> None:
        """One step, in which compilation happens, timed; not undone."""
        with (
            self.tracing(),
            cache_use(self.adapter.inductor_options() is not None, looks_up=not self._stores) as self.caches,
        ):
            seed_everything(case.seed)  # by Python's and NumPy's numbers too a model may choose what is compiled
            began = time.perf_counter()
            case.step(self)
            case.synchronize()
            self.compile_s = time.perf_counter() - began
        self.adapter.validate_compiled()

    def tracing(self) -> contextlib.AbstractContextManager[None]:
        """To be open around the first step: what Dynamo reads of TorchInductor's options while it traces."""
        if not self.options:
            return contextlib.nullcontext()
        from inductor_debug.stages.torch_internals.inductor_options import seen_by_dynamo

        return seen_by_dynamo(self.options)

    def _counted(self) -> Callable[..., Any]:
        @functools.wraps(self._compiler)
        def compiler(gm: fx.GraphModule, *args: Any, **options: Any) -> Any:
            self.given += 1
            if isinstance(self._compiler, Front):  # which has AOT graphs watched, each half by itself
                return self.watch.around(self._compiler(gm, *args, **options))
            return self.watch.watched(lambda: self._compiler(gm, *args, **options), gm)[1]

        return compiler

    @property
    def graphs(self) -> Mapping[str, LoweredGraph]:
        """What each graph was lowered to, by id; empty for a backend that lowers nothing."""
        return self.adapter.lowered(self._compiler)

    @property
    def compiled_nothing(self) -> bool:
        """Whether no graph was compiled, so that all of the model ran in eager; False where that is not known."""
        return not self.given or self.adapter.compiled_graphs(self._compiler) == 0


def compile_case(
    case: Case, adapter: AcceleratorAdapter, backend: Callable[..., Any] | None = None, *, stores: bool = False
) -> CompiledCase:
    """Compile a case and take its first step, in which compilation happens. The case is left as it was.

    Args:
        backend, stores: as of :class:`CompiledCase`.

    Raises:
        ConfigurationError: an option that TorchInductor does not have, or that the adapter can't meet in this case.
        Exception: whatever the backend raises.
    """
    compiled = CompiledCase(case, adapter, backend, stores=stores)
    with case.preserved():
        compiled.first_step(case)
    return compiled


def load_case(case: Case, adapter: AcceleratorAdapter) -> CompiledCase:
    """As :func:`compile_case`, of what another process of the run compiled and stored.

    What can't be loaded is compiled. The case's state is not put back: no second copy of the weights is made.
    """
    compiled = CompiledCase(case, adapter, adapter.loading_backend())
    compiled.first_step(case)
    return compiled


def forget_case(context: StageContext) -> None:
    """Let go of the case, of what was compiled, and of the memory that they took. A later stage makes them anew."""
    context.live.clear()
    dynamo.reset()
    gc.collect()
    give_back_memory()


def compiled_case(context: StageContext) -> CompiledCase:
    """This process's compiled case: what an earlier stage made, or made now.

    Where the mock backends find a strict profile broken, its reproductions are stored, whatever the stage makes of the
    error. So are the findings of an emulation that ends early, as at an index that wrapped around.
    """
    if "compiled" not in context.live:
        adapter = build_adapter(context.settings)
        context.progress(f"compiling with {adapter.name}")
        options = CompilationOptions()
        try:
            with options.noted():
                context.live["compiled"] = compile_case(context.case, adapter, adapter.storing_backend(), stores=True)
        except Exception as error:
            refusal = violation_in(error)
            emulation = adapter.emulation()
            if emulation is not None:
                context.leave(emulation.artifacts(), {})
            if refusal is not None:
                context.leave(refusal.artifacts, {"repros": refusal.repros.summary if refusal.repros else []})
            raise
        finally:
            context.compiled_with(options)
    return context.live["compiled"]
