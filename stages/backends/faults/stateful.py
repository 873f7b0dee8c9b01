"""Faults that remember, count or draw, as operators of their own: no compiler looks into them.

Each place where one is planted has a number, and by it a state of its own in this process.
"""

import itertools
from collections import Counter

import torch
from torch import Tensor

from inductor_debug.stages.backends.faults.site import Site, require_floating

_places = itertools.count()
_before: dict[int, Tensor] = {}
"""Place → the value of the call before."""
_calls: Counter[int] = Counter()
"""Place → how often it was called."""

LATE = 1.05
"""By what a value is multiplied from the n-th call on."""


def _empty(value: Tensor, place: int, strength: float = 0.0) -> Tensor:
    return torch.empty_like(value)


def _laid_out(result: Tensor, like: Tensor) -> Tensor:
    """A copy with the dtype and the strides that a compiler was told of."""
    return torch.empty_like(like).copy_(result)


@torch.library.custom_op("inductor_debug::stale", mutates_args=())
def _stale(value: Tensor, place: int) -> Tensor:
    before = _before.get(place, value)
    _before[place] = value.clone()
    return _laid_out(before if before.shape == value.shape else value, value)


@torch.library.custom_op("inductor_debug::noisy", mutates_args=())
def _noisy(value: Tensor, place: int, strength: float) -> Tensor:
    _calls[place] += 1
    draw = torch.Generator().manual_seed(_calls[place])
    noise = torch.rand(value.shape, generator=draw).to(value.device)
    return _laid_out(value * (1 + strength * noise), value)


@torch.library.custom_op("inductor_debug::late", mutates_args=())
def _late(value: Tensor, place: int, strength: float) -> Tensor:
    _calls[place] += 1
    return _laid_out(value * LATE if _calls[place] >= strength else value, value)


for operator in (_stale, _noisy, _late):
    operator.register_fake(_empty)


def stale_buffer(site: Site) -> Tensor:
    return torch.ops.inductor_debug.stale(site.value, next(_places))


def nondeterministic(site: Site) -> Tensor:
    require_floating("nondeterministic", site)
    return torch.ops.inductor_debug.noisy(site.value, next(_places), float(site.strength))


def from_nth_call(site: Site) -> Tensor:
    require_floating("from_nth_call", site)
    return torch.ops.inductor_debug.late(site.value, next(_places), float(site.strength))
