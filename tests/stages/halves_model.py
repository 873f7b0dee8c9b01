"""A small model that breaks in the middle, for the lower stage's tests: two graphs, each with a backward."""

import inspect

import torch


class Halves(torch.nn.Module):
    """The second half sums over either dimension, which no one kernel does on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16)
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.tanh(self.norm(self.first(x)))
        torch._dynamo.graph_break()
        scaled = torch.sigmoid(hidden) * 3
        rows, columns = scaled.sum(1), scaled.sum(0)
        return self.last(hidden), rows, columns


def lines_of(*fragments: str) -> set[int]:
    """Numbers of this file's model's lines that contain one of ``fragments``."""
    lines, first = inspect.getsourcelines(Halves)
    return {first + index for index, line in enumerate(lines) if any(fragment in line for fragment in fragments)}
