"""Models small enough to compile in seconds, for tests that run the command line. On PYTHONPATH there."""

import torch
from torch import nn


class Block(nn.Module):
    """A convolution, batch statistics, a projection to a width no accelerator likes, and a nested output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(4, 8, 3, padding=1)
        self.normalization = nn.BatchNorm1d(8)
        self.projection = nn.Linear(16, width)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        hidden = torch.relu(self.normalization(self.convolution(x)))
        logits = self.projection(hidden)
        return {"logits": logits, "states": [hidden, (logits.mean(-1), None)]}


def block(batch_size: int = 2, width: int = 20) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Block`` and one input of shape (batch_size, 4, 16)."""
    return Block(width), (torch.randn(batch_size, 4, 16),)


def perceptron(batch_size: int = 2, width: int = 20) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Two projections with a GELU between them and one input of shape (batch_size, 16), compiled at once."""
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, width)), (torch.randn(batch_size, 16),)


class Dividing(nn.Module):
    """Rows divided by their sum: one row is all zeros, so that the first NaN is of that line."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 24, bias=False), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(x))
        shares = hidden / hidden.sum(-1, keepdim=True)
        return self.down(shares)


def dividing() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Dividing`` and an input of shape (2, 16), its second row zeros."""
    x = torch.randn(2, 16)
    x[1] = 0
    return Dividing(), (x,)


class Branching(nn.Module):
    """A branch on a value, where the graph breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(x))
        if hidden.sum() > 0:
            hidden = hidden + 1
        return hidden * 2


def branching(batch_size: int = 4) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Branching`` and an input of shape (batch_size, 16)."""
    return Branching(), (torch.randn(batch_size, 16),)


class Matched(nn.Module):
    """A product and a sum apart, which TorchInductor's pattern matcher makes one call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(16, 24)), nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.weight + self.bias)


def matched() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Matched`` and an input of shape (8, 16)."""
    return Matched(), (torch.randn(8, 16),)


class Rolled(nn.Module):
    """Its inputs are a tensor, a whole number by position and a float by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 24)

    def forward(self, x: torch.Tensor, shift: int, *, scale: float) -> torch.Tensor:
        return torch.roll(self.linear(x) * scale, shift, 0)


def rolled() -> tuple[nn.Module, tuple[torch.Tensor, int], dict[str, float]]:
    """``Rolled``, an input of shape (6, 16), 3 and 0.5."""
    return Rolled(), (torch.randn(6, 16), 3), {"scale": 0.5}


class Recurrent(nn.Module):
    """An LSTM alone, of which Dynamo makes no graph unless it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]


def recurrent(batch_size: int = 2) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Recurrent`` and an input of shape (batch_size, 4, 8)."""
    return Recurrent(), (torch.randn(batch_size, 4, 8),)


class Selecting(nn.Module):
    """The places of what is positive: the output's size depends on the data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()


def selecting(batch_size: int = 2) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Selecting`` and an input of shape (batch_size, 4)."""
    return Selecting(), (torch.randn(batch_size, 4).relu(),)


class Scaling(nn.Module):
    """A sum that goes through Python."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


def scaling(batch_size: int = 2) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Scaling`` and an input of shape (batch_size, 4)."""
    return Scaling(), (torch.randn(batch_size, 4),)


class Masked(nn.Linear):
    """A linear layer whose forward can't do without the input that has a default."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x) * mask.reshape(-1, 1)  # type: ignore[union-attr]


def masked() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Masked`` without its mask, which has the shape (2,)."""
    return Masked(4, 4), (torch.randn(2, 4),)


class Huge(nn.Linear):
    """A linear layer that asks for 4 PB: beyond what a process can address, so that no system grants it on trust."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.zeros(10**15).sum()


def huge() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Huge`` and one input."""
    return Huge(4, 4), (torch.randn(2, 4),)
