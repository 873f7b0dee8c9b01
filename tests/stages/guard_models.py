"""Small models whose guards, breaks and recompilations can be derived by hand. Lines are looked up by marker."""

from typing import Any

import torch
from torch import nn

_STATE = "a state of torch, checked in C++ at every call"
WITHOUT_CODE = {
    "GRAD_MODE": _STATE,
    "DETERMINISTIC_ALGORITHMS": _STATE,
    "FSDP_TRAINING_STATE": _STATE,
    "GLOBAL_STATE": _STATE,
    "TORCH_FUNCTION_STATE": _STATE,
    "CLOSURE_MATCH": "a function's code object, which torch compares by identity",
    "NOT_PRESENT_IN_GENERIC_DICT": "an attribute that an object must not get, checked in C++",
    "EMPTY_NN_MODULE_HOOKS_DICT": "a module's hooks, not checked unless torch._dynamo.config.skip_nnmodule_hook_guards "
    "is off",
}
"""Types of guards of which torch tells no condition → what they look at."""

TOLD_ONCE = ("DICT_CONTAINS", "DICT_NOT_CONTAINS", "DUPLICATE_INPUT", "HASATTR", "SET_CONTAINS", "SET_NOT_CONTAINS")
"""Types of which torch tells a condition once: a further guard with the same condition has none."""


class Plain(nn.Module):
    """One graph that takes any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()  # line: linear


class Two(nn.Module):
    """A graph break in the middle: ``x`` belongs to the first graph, ``scale`` to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        hidden = self.first(x)  # line: first
        print("a break")  # line: print
        return {"logits": self.last(hidden * scale)}  # line: last


class Masked(nn.Module):
    """Tokens and a mask in a dict, a weight, all by keyword. Reads up to 64 tokens of a vocabulary of 10."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 7)
        self.position = nn.Embedding(64, 7)

    def forward(self, *, inputs: dict[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        tokens, mask = inputs["tokens"], inputs["mask"]
        hidden = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        return hidden * mask[:, :, None] * weight


class Picky(nn.Module):
    """Takes 4 rows alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 4:
            raise ValueError("four rows, please")
        return x.sin()


class Branching(nn.Module):
    """Takes a way of its own for more than 10 rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 10:  # line: rows
            return x.sin()
        return x.cos()


class Counting(nn.Module):
    """Compiles again at every call: its own counter is a guard. Draws random numbers and has running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.norm(x) * self.calls + torch.rand_like(x)


class Added(nn.Module):
    """Two inputs of one batch, which may be one tensor."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() + y.cos()


class Rolled(nn.Module):
    """A whole number by position and a float by keyword among its inputs, both of which the graph computes with."""

    def forward(self, x: torch.Tensor, shift: int, *, scale: float) -> torch.Tensor:
        return torch.roll(x.sin() * scale, shift, 0)


def build_masked(batch_size: int, sequence_length: int) -> tuple[nn.Module, tuple[()], dict[str, Any]]:
    """Tokens and mask of (batch, length), a weight without either."""
    tokens = torch.randint(10, (batch_size, sequence_length))
    return Masked(), (), {"inputs": {"tokens": tokens, "mask": torch.ones_like(tokens)}, "weight": torch.ones(7)}


def build_fixed() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Inputs that no size of the configuration changes."""
    return Plain(), (torch.randn(6, 4),)
