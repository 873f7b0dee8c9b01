"""The backend ``inductor``: TorchInductor, recorded."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.inductor_switches import inductor_switches
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.torch_internals.inductor import (
    LoadingCompiler,
    LoweredGraph,
    RecordingCompiler,
    compile_aot_graph,
    inductor_decompositions,
)
from inductor_debug.stages.torch_internals.inductor_options import check_options, patched_config


class InductorAdapter(AcceleratorAdapter):
    """TorchInductor, recorded.

    Args:
        inductor: options of ``torch._inductor.config``, nested or with dotted keys, for this adapter's compilations
            alone. ``fallback_random`` is on unless it is given: random operations then draw what eager draws, so that
            dropout can be compared.
    """

    name = "inductor"
    lowers = True
    switch_key = "backend.inductor"

    def __init__(self, inductor: Mapping[str, Any] | None = None) -> None:
        self.inductor = dict(inductor or {})

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The flat patch in force; ConfigurationError for an unknown key or a wrong type."""
        return {"fallback_random": True} | check_options(self.inductor)

    @functools.cached_property
    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:  # type: ignore[override]
        """Inductor's own. Which ones it has depends on its options in force (``fallback_random``)."""
        with patched_config(self.options):
            return inductor_decompositions()

    def inductor_options(self) -> Mapping[str, Any]:
        return self.options

    def validate(self) -> None:
        assert self.options

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return compile_aot_graph(gm, example_inputs, self.options)

    def dynamo_backend(self) -> Callable[..., Any]:
        """A fresh ``RecordingCompiler``: its ``graphs`` hold what each compilation made."""
        return RecordingCompiler(self.options)

    @property
    def loads(self) -> bool:  # type: ignore[override]
        """Not where a subclass has a compiler of its own."""
        return type(self).dynamo_backend is InductorAdapter.dynamo_backend

    def storing_backend(self) -> Callable[..., Any]:
        compiler = self.dynamo_backend()
        if self.loads:
            compiler.stores = True  # type: ignore[attr-defined]
        return compiler

    def loading_backend(self) -> Callable[..., Any]:
        return LoadingCompiler(self.options) if self.loads else self.dynamo_backend()

    def rewriting_backend(self, rewrite: Callable[[str, str], str]) -> Callable[..., Any] | None:
        compiler = self.dynamo_backend()
        if not (isinstance(compiler, RecordingCompiler) and compiler.loads_modules):
            return None
        compiler.rewrite = rewrite
        return compiler

    def compiled_graphs(self, backend: Callable[..., Any]) -> int | None:
        return len(backend.graphs) if isinstance(backend, RecordingCompiler) else None

    def lowered(self, backend: Callable[..., Any]) -> Mapping[str, LoweredGraph]:
        return backend.graphs if isinstance(backend, RecordingCompiler) else {}

    def switches(self, device: str) -> Mapping[str, Any]:
        """Options back to torch's default, and those that commonly hide a fault of TorchInductor's."""
        return inductor_switches(self.options, device)

    def switched(self, values: Mapping[str, Any]) -> "InductorAdapter":
        return InductorAdapter(self.inductor | dict(values))


def configured(config: BackendConfig, accel: AccelConfig | None) -> InductorAdapter:
    """The adapter of a configuration."""
    return InductorAdapter(config.inductor)
