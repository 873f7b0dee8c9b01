"""Faults of a value, whatever operation made it."""

import math
from typing import Any

import torch
from torch import Tensor

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.backends.faults.site import Site, refused, require_floating, require_inexact


def scale(site: Site) -> Tensor:
    require_inexact("scale", site)
    return site.value * (1 + site.strength)


def dropped_tail(site: Site) -> Tensor:
    if site.value.dim() == 0:
        raise refused("dropped_tail", site, "its value has no dimension", "a node of rank 1 or more")
    length = site.value.shape[-1]
    kept = torch.arange(length, device=site.value.device) < length - int(site.strength)
    return torch.where(kept, site.value, torch.zeros_like(site.value))


def nan_at_edge(site: Site) -> Tensor:
    require_floating("nan_at_edge", site)
    count = site.value.numel()
    right = torch.arange(count, device=site.value.device).reshape(site.value.shape) < count - int(site.strength)
    return torch.where(right, site.value, torch.full_like(site.value, math.nan))


def uninitialized_buffer(site: Site) -> Tensor:
    """What memory holds that nothing wrote: numbers that only their place decides, of the size of the values."""
    require_floating("uninitialized_buffer", site)
    count = site.value.numel()
    place = torch.arange(count, device=site.value.device)
    found = ((place * 7919 + 104729) % 2003).to(torch.float32) / 1001.5 - 1
    size = site.value.abs().amax() if count else 1
    rest = (found * size).to(site.value.dtype).reshape(site.value.shape)
    return torch.where(place.reshape(site.value.shape) < count - site.count, site.value, rest)


def transposed_stride(site: Site) -> Tensor:
    large = [dim for dim, size in enumerate(site.value.shape) if size > 1]
    if len(large) < 2:
        valid = "a node of two dimensions larger than 1"
        raise refused("transposed_stride", site, f"its shape is {list(site.value.shape)}", valid)
    return site.value.transpose(*large[-2:]).reshape(site.value.shape)


def gradient_sign(site: Site) -> Tensor:
    require_inexact("gradient_sign", site)
    return -site.value


_WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float32, torch.float16: torch.float32}
_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def _widened(item: Any, dtype: torch.dtype, wider: torch.dtype) -> Any:
    """A floating tensor in at least the wider format, the dtype itself as the wider one, anything else as it is."""
    if isinstance(item, Tensor) and item.is_floating_point():
        return item.to(torch.promote_types(item.dtype, wider))
    return wider if item == dtype and isinstance(item, torch.dtype) else item


def rounded_to_zero(site: Site) -> Tensor:
    """The operation in the wider format, cut to the node's: in place of rounding to nearest."""
    dtype = site.value.dtype
    if dtype not in _WIDER:
        raise refused("rounded_to_zero", site, f"its value is {dtype}", f"{', '.join(map(str, _WIDER))}")
    wider = _WIDER[dtype]
    args, kwargs = pytree.tree_map(lambda item: _widened(item, dtype, wider), (site.args, site.kwargs))
    result = site.target(*args, **kwargs) if args else site.value
    wide = result if site.output is None else result[site.output]
    if wide.dtype != wider:
        raise refused("rounded_to_zero", site, f"it gives {wide.dtype} of {wider}", "a node that computes")
    near = wide.to(dtype)
    below = (near.contiguous().view(_BITS[dtype]) - 1).view(dtype).reshape(near.shape)
    return torch.where(near.to(wide.dtype).abs() > wide.abs(), below, near)
