"""Models of any number of nodes, for ``growing_run.py``: ``python -m pipeline model=custom model.build._target_=…``.

As a command, ``python growing_models.py SHAPE NODES``, it compiles one with TorchInductor, runs it, and prints the peak
of its resident memory in bytes: what torch alone takes.
"""

import resource
import sys
from typing import Any

import torch
from torch import nn

WIDTH = 24


class Chain(nn.Module):
    """Each operation reads the one before: a product, a bounded function and a view in turn.

    The product shrinks differences, so that neither values nor rounding grow over thousands of layers.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.layers = nodes // 3
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.weight = nn.Parameter(0.7 * torch.linalg.qr(torch.randn(WIDTH, WIDTH)).Q)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.layers):
            x = torch.addmm(self.bias, x, self.weight).tanh().view(WIDTH, WIDTH)
        return x


class Wide(nn.Module):
    """A quarter of the nodes are parameters, a tenth are outputs; nothing is deeper than four operations."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        weights = (nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5) for _ in range(nodes // 4))
        self.weights, self.outputs = nn.ParameterList(weights), nodes // 10

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.mm(x, weight).relu() for weight in self.weights]
        others = [left + right for left, right in zip(found, found[1:] + found[:1], strict=True)]
        more = [value.tanh() for value in others]
        return [*more[: self.outputs - 1], torch.stack(more[self.outputs - 1 :]).amax(0)]


SHAPES: dict[str, type[nn.Module]] = {"chain": Chain, "wide": Wide}


def build(shape: str, nodes: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model and its inputs.

    Args:
        shape: a key of SHAPES.
        nodes: about how many its Dynamo graph has.
    """
    return SHAPES[shape](nodes), (torch.randn(WIDTH, WIDTH),)


if __name__ == "__main__":
    model, inputs = build(sys.argv[1], int(sys.argv[2]))
    with torch.no_grad():
        torch.compile(model.eval())(*inputs)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
