"""Faults of a value, whatever operation made it."""

import math

import torch
from torch import Tensor

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
