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
