"""Models that Dynamo compiles anew in each call: a storm of recompilations, planted at one module."""

from collections.abc import Sequence
from typing import Any

import minified_models as models
import torch
from torch import nn

CALLS = 10
"""Calls of a model; Dynamo gives a function up after 8."""


class Counting(nn.Module):
    """A module that reads in each call how many there were."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.inner(x * (1 + self.calls / 16), *args, **kwargs)


class Told(nn.Module):
    """A module that reads what its model was called with: a number, or a word."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.told: float | str = ""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        factor = float(len(self.told)) if isinstance(self.told, str) else self.told
        return self.inner(x * factor, *args, **kwargs)


class Telling(nn.Module):
    """A model that is called with something that one of its modules reads."""

    def __init__(self, inner: nn.Module, place: Told) -> None:
        super().__init__()
        self.inner, self.place = inner, [place]

    def forward(self, *args: Any, told: float | str, **kwargs: Any) -> Any:
        self.place[0].told = told
        return self.inner(*args, **kwargs)


Call = tuple[tuple[Any, ...], dict[str, Any]]


def planted(kind: str, path: str, model: models.Built) -> tuple[nn.Module, list[Call]]:
    """A model, and calls each of which it is compiled for, with ``dynamic=False``.

    Args:
        kind: ``counter``, ``number``, ``word``, ``length``.
        path: of the module that is to blame; of ``length`` none is.
        model: is changed.
    """
    call = model.args, model.kwargs
    if kind == "length":
        return model.module, [_shortened(call, count) for count in range(CALLS)]
    parent, _, name = path.rpartition(".")
    inner = model.module.get_submodule(path)
    place = Counting(inner) if kind == "counter" else Told(inner)
    setattr(model.module.get_submodule(parent), name, place)
    if isinstance(place, Counting):
        return model.module, [call] * CALLS
    told: Sequence[float | str] = [1 + count / 8 if kind == "number" else "a" * (count + 1) for count in range(CALLS)]
    return Telling(model.module, place), [(call[0], call[1] | {"told": each}) for each in told]


def _shortened(call: Call, count: int) -> Call:
    """A call whose second dimension, the sequence's, is so much shorter."""

    def short(value: Any) -> Any:
        return value[:, : value.shape[1] - count].contiguous()

    return tuple(map(short, call[0])), {key: short(value) for key, value in call[1].items()}
