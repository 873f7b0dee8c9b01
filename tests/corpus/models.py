"""What is compiled for the corpus: a model to lower, frames that recompile, frames that break."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Lowered(nn.Module):
    """Matrix products, a fused chain, a reduction, a library call and memory that is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[4, 8] float32 → [4, 8] float32."""
        hidden = torch.softmax(nn.functional.gelu(self.first(x)), -1)
        values, _ = torch.sort(self.last(hidden))
        return values * 2.5 + x


class Counted(nn.Module):
    """Reads a Python number."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number


def shifted(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).sum()


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(1) + y


def bounded(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.shape[0] > 10 else x.cos()


def recompiled() -> dict[str, Callable[[Callable[..., Any]], None]]:
    """What is changed between two calls → the calls, to be made with a function that compiles."""
    x = torch.ones(4, 6)

    def size(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, False)
        function(x), function(torch.ones(4, 7))

    def dtype(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, None)
        function(x), function(x.double())

    def gradient(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, None)
        function(x), function(torch.ones(4, 6, requires_grad=True))

    def rank(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, None)
        function(x), function(torch.ones(4, 6, 2))

    def stride(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, None)
        function(x), function(torch.ones(6, 4).T)

    def grad_mode(compiled: Callable[..., Any]) -> None:
        function = compiled(shifted, None)
        function(x)
        with torch.no_grad():
            function(x)

    def value(compiled: Callable[..., Any]) -> None:
        module = Counted()
        function = compiled(module, None)
        function(x)
        module.number = 7
        function(x)

    def symbolic_size(compiled: Callable[..., Any]) -> None:
        function = compiled(bounded, True)
        function(torch.ones(4, 6)), function(torch.ones(20, 6))

    def aliasing(compiled: Callable[..., Any]) -> None:
        function = compiled(added, None)
        function(x, torch.ones(4, 6))
        function(x, x)

    return {
        "size": size, "dtype": dtype, "gradient": gradient, "rank": rank, "stride": stride, "grad_mode": grad_mode,
        "value": value, "symbolic_size": symbolic_size, "aliasing": aliasing,
    }  # fmt: skip


@torch.compiler.disable
def untraced(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def broken() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What breaks a graph → a function and its arguments."""
    x = torch.ones(4)

    def branch(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    def printed(x: torch.Tensor) -> torch.Tensor:
        print("a break")
        return x.sin()

    def scalar(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    def dynamic_size(x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x) + 1

    def logged(x: torch.Tensor) -> torch.Tensor:
        logging.getLogger("corpus").warning("a break")
        return x.sin()

    def disabled(x: torch.Tensor) -> torch.Tensor:
        return untraced(x).sin()

    def gradient(x: torch.Tensor) -> torch.Tensor:
        y = x.detach().requires_grad_()
        y.sum().backward()
        return y.sin()

    cells = nn.LSTM(4, 4)
    functions = {
        "branch": branch, "print": printed, "scalar": scalar, "dynamic_size": dynamic_size, "logging": logged,
        "disabled": disabled, "gradient": gradient,
    }  # fmt: skip
    return {name: (function, (x,)) for name, function in functions.items()} | {"lstm": (cells, (torch.ones(3, 2, 4),))}
