"""Where TorchInductor and eager do give different numbers, each with the smallest program that shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Disagreement:
    """One that the comparison rightly reports.

    Attributes:
        operators: names of the draws that meet it.
        what: what is wrong.
        function, inputs: the smallest program; ``torch.compile(function)`` gives something else than eager.
    """

    operators: tuple[str, ...]
    what: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]


def bilinear(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, size=3, mode="bilinear")


DISAGREEMENTS = (
    Disagreement(
        ("std_mean_unbiased-float64",),
        "the mean that std_mean and var_mean give of no elements is 0, not NaN: Inductor's own bug",
        torch.var_mean,
        lambda: (torch.zeros(0, 5),),
    ),
    Disagreement(
        ("nn_functional_interpolate_bilinear-uint8",),
        "uint8 is interpolated in floating point, in eager with weights in fixed point: up to 1 apart",
        bilinear,
        lambda: (torch.tensor([[[[4, 9], [3, 0]]]], dtype=torch.uint8),),
    ),
)
