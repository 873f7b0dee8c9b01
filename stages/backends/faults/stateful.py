"""Faults that remember or draw, as operators of their own: no compiler looks into them, and each has its own state."""

import itertools

import torch
from torch import Tensor

from inductor_debug.stages.backends.faults.site import Site

_places = itertools.count()
_before: dict[int, Tensor] = {}
"""Place → the value of the call before."""


@torch.library.custom_op("inductor_debug::stale", mutates_args=())
def _stale(value: Tensor, place: int) -> Tensor:
    before = _before.get(place, value)
    _before[place] = value.clone()
    return (before if before.shape == value.shape else value).clone()


@_stale.register_fake
def _(value: Tensor, place: int) -> Tensor:
    return torch.empty_like(value)


def stale_buffer(site: Site) -> Tensor:
    return torch.ops.inductor_debug.stale(site.value, next(_places))
