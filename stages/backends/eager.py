"""The backends ``eager`` and ``aot_eager``: a graph executed by torch operation by operation."""

from collections.abc import Callable, Sequence

from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced
from inductor_debug.stages.backends.front import Level
from inductor_debug.stages.settings import BackendConfig


class EagerAdapter(AcceleratorAdapter):
    """Dynamo's graph, executed by torch operation by operation."""

    name = "eager"
    level: Level = "dynamo"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return run_as_traced(gm)

    @property
    def as_traced(self) -> bool:
        """Not where a subclass executes graphs in a way of its own."""
        own = type(self)
        return own.compile is EagerAdapter.compile and own.dynamo_backend is AcceleratorAdapter.dynamo_backend


class AotEagerAdapter(EagerAdapter):
    """AOTAutograd's graphs, executed by torch operation by operation."""

    name = "aot_eager"
    level: Level = "aot"


def eager(config: BackendConfig, accel: AccelConfig | None) -> EagerAdapter:
    """The adapter of a configuration."""
    return EagerAdapter()


def aot_eager(config: BackendConfig, accel: AccelConfig | None) -> AotEagerAdapter:
    """The adapter of a configuration."""
    return AotEagerAdapter()
