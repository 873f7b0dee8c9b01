"""The backend ``inductor``: TorchInductor, recorded."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.settings import BackendConfig


class InductorAdapter(AcceleratorAdapter):
    """TorchInductor, recorded.

    Args:
        inductor: options of ``torch._inductor.config``, nested or with dotted keys, for this adapter's compilations
            alone. ``fallback_random`` is on unless it is given: random operations then draw what eager draws, so that
            dropout can be compared.
    """

    name = "inductor"
    lowers = True

    def __init__(self, inductor: Mapping[str, Any] | None = None) -> None:
        self.inductor = dict(inductor or {})

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The flat patch in force; ConfigurationError for an unknown key or a wrong type."""
        from inductor_debug.stages.torch_internals.inductor_options import check_options

        return {"fallback_random": True} | check_options(self.inductor)

    @functools.cached_property
    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:  # type: ignore[override]
        """Inductor's own."""
        from inductor_debug.stages.torch_internals.inductor import inductor_decompositions

        return inductor_decompositions()

    def validate(self) -> None:
        assert self.options

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        from inductor_debug.stages.torch_internals.inductor import compile_aot_graph

        return compile_aot_graph(gm, example_inputs, self.options)

    def dynamo_backend(self) -> Callable[..., Any]:
        """A fresh ``RecordingCompiler``: its ``graphs`` hold what each compilation made."""
        from inductor_debug.stages.torch_internals.inductor import RecordingCompiler

        return RecordingCompiler(self.options)

    @property
    def loads(self) -> bool:  # type: ignore[override]
        """Not where a subclass has a compiler of its own."""
        return type(self).dynamo_backend is InductorAdapter.dynamo_backend

    def loading_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.inductor import LoadingCompiler

        return LoadingCompiler(self.options) if self.loads else self.dynamo_backend()


def configured(config: BackendConfig, accel: AccelConfig | None) -> InductorAdapter:
    """The adapter of a configuration."""
    return InductorAdapter(config.inductor)
