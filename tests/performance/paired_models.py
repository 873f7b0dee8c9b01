"""A model and two backends for ``aa_pairs.py``: the same code as eager's, and one that does 1.2 times the work."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn

from stages.lower import AcceleratorAdapter

BLOCKS = 10


def chain(batch_size: int = 192, width: int = 256) -> tuple[nn.Module, tuple[Tensor]]:
    """Ten equal projections in a row and one input of shape (batch_size, width)."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(BLOCKS))), (torch.randn(batch_size, width),)


class Same(AcceleratorAdapter):
    """Runs the graph as torch does, operation by operation."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        function: Callable[..., Sequence[Tensor]] = gm.forward
        return function

    def dynamo_backend(self) -> Callable[..., object]:
        return self.compile


class OneFifthMore(Same):
    """As :class:`Same`, with every fifth operation done twice: 1.2 times the work."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        for node in [node for node in gm.graph.nodes if node.op.startswith("call_")][4::5]:
            with gm.graph.inserting_after(node):
                gm.graph.node_copy(node)
        gm.recompile()
        return super().compile(gm, example_inputs)
