"""Adapters that compute something wrong, for tests of more than one file."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor_debug.stages.backends.adapter import AcceleratorAdapter


class DropsCopies(AcceleratorAdapter):
    """Loses every write into what the graph is given."""

    name = "drops"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        for node in list(gm.graph.nodes):
            if node.target is torch.ops.aten.copy_.default:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        gm.recompile()
        return gm.forward
