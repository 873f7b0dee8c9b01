"""A model for ``aa_pairs.py``, and a backend that does 1.2 times its work."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn

from inductor_debug.stages.backends.eager import AotEagerAdapter

BLOCKS = 10


def chain(batch_size: int = 512, width: int = 256) -> tuple[nn.Module, tuple[Tensor]]:
    """Ten equal projections in a row and one input of shape (batch_size, width)."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(BLOCKS))), (torch.randn(batch_size, width),)


class OneFifthMore(AotEagerAdapter):
    """As ``aot_eager``, with two of the ten projections done twice: 1.2 times the work."""

    name = "one_fifth_more"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        products = [node for node in gm.graph.nodes if node.target == torch.ops.aten.addmm.default]
        assert len(products) == BLOCKS, "one product a projection"
        for node in products[: BLOCKS // 5]:
            with gm.graph.inserting_after(node):
                gm.graph.node_copy(node)
        gm.recompile()
        return super().compile(gm, example_inputs)
