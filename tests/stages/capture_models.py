"""Small models with known graphs, for the capture tests. Lines are looked up by marker, never written down."""

import inspect
from typing import Any

import torch
from torch import nn

from inductor_debug.models.case import Case


class Small(nn.Module):
    """Linear, ReLU and LayerNorm: every node can be derived by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)  # line: linear
        hidden = torch.relu(hidden)  # line: relu
        return self.norm(hidden)  # line: norm


class Broken(nn.Module):
    """Two graph breaks, batch-norm buffers, a keyword input, multi-output operations and a nested result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.batch = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        y = torch.relu(self.first(x) * scale)  # line: first
        print("a break")  # line: print
        y = self.batch(y)  # line: batch
        if y.sum() > 1e6:  # line: branch
            y = y + 1
        best, index = y.max(dim=1)  # line: max
        left, right = y.split(4, dim=1)  # line: split
        return {"logits": self.last(y), "best": best, "parts": (left, [right, index])}  # line: last


class EarlyBreak(nn.Module):
    """Breaks before its first operation: a break that ends no graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("nothing traced yet")  # line: early
        return x.sin()  # line: sin


class SkippedFrame(nn.Module):
    """A break inside a ``with`` that Dynamo can't resume: the frame is left to Python, its callee is traced."""

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            print("in a block")  # line: block
            return self.helper(x)
        finally:
            pass


class NoTensors(nn.Module):
    """Does nothing that a graph could hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def line_of(module: nn.Module, marker: str) -> int:
    """The line of the module's class that carries ``# line: marker``."""
    lines, start = inspect.getsourcelines(type(module))
    return next(start + index for index, line in enumerate(lines) if line.rstrip().endswith(f"# line: {marker}"))


def case_of(module: nn.Module, *args: Any, mode: str = "inference", **kwargs: Any) -> Case:
    """A float32 case on the CPU."""
    module.train(mode == "training")
    return Case("small", module, args, kwargs, mode, torch.float32, torch.device("cpu"))
