"""The backends ``eager`` and ``aot_eager``: a graph executed by torch operation by operation."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced
from inductor_debug.stages.settings import BackendConfig


class EagerAdapter(AcceleratorAdapter):
    """Dynamo's graph, executed by torch operation by operation."""

    name = "eager"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return run_as_traced(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        return self.compile


class AotEagerAdapter(EagerAdapter):
    """AOTAutograd's graphs, executed by torch operation by operation."""

    name = "aot_eager"

    def dynamo_backend(self) -> Callable[..., Any]:
        return AcceleratorAdapter.dynamo_backend(self)


def eager(config: BackendConfig, accel: AccelConfig | None) -> EagerAdapter:
    """The adapter of a configuration."""
    return EagerAdapter()


def aot_eager(config: BackendConfig, accel: AccelConfig | None) -> AotEagerAdapter:
    """The adapter of a configuration."""
    return AotEagerAdapter()
