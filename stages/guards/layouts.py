"""Copies of tensors with equal values in another layout, or with another size."""

from collections import Counter
from collections.abc import Callable, Iterable

import torch

from inductor_debug.models.nested import copy_marks, is_strided, memory_of


def restrided(tensor: torch.Tensor, strides: Iterable[int]) -> torch.Tensor:
    """A copy with those strides; no view, and in its gradients and marks like the original."""
    copy = torch.empty_strided(tensor.shape, list(strides), dtype=tensor.dtype, device=tensor.device)
    copy.copy_(tensor.detach())
    return _like(copy, tensor)


def resized(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """A copy with ``size`` along ``dim``: the first values, or all of them repeated; the order of strides is kept."""
    index = torch.arange(size, device=tensor.device) % tensor.shape[dim]
    taken = tensor.detach().index_select(dim, index)
    order = sorted(range(tensor.dim()), key=lambda item: (tensor.stride(item), -item))
    copy = torch.empty_strided(taken.shape, _dense(taken.shape, order), dtype=taken.dtype, device=taken.device)
    return _like(copy.copy_(taken), tensor)


def other_layout(tensor: torch.Tensor) -> list[int] | None:
    """Strides of another layout: dense where the tensor is not, else with its last two dimensions swapped in memory.

    A tensor with one dimension of more than one element takes every second place. None where there is no such
    dimension, or where the tensor is not strided.
    """
    if not is_strided(tensor) or tensor.numel() < 2:
        return None
    if not tensor.is_contiguous():
        return _dense(tensor.shape, range(tensor.dim() - 1, -1, -1))
    wide = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    if len(wide) == 1:
        return [2 * stride for stride in tensor.stride()]
    order = list(range(tensor.dim() - 1, -1, -1))
    first, second = (order.index(dim) for dim in wide[-2:])
    order[first], order[second] = order[second], order[first]
    return _dense(tensor.shape, order)


def channels_last(tensor: torch.Tensor) -> list[int] | None:
    """Strides of an image or a video (N, C, …) in channels-last; None where that is no other layout."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not is_strided(tensor) or tensor.dim() not in formats or not tensor.is_contiguous():
        return None
    strides = list(torch.empty(tensor.shape, device="meta").to(memory_format=formats[tensor.dim()]).stride())
    wide = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    return strides if any(strides[dim] != tensor.stride(dim) for dim in wide) else None


def alone(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those that share memory with no other: a copy of one that does would end the sharing."""
    tensors = list({id(tensor): tensor for tensor in tensors}.values())
    strided = [tensor for tensor in tensors if is_strided(tensor) and not tensor.is_meta]
    owners = Counter(memory_of(tensor) for tensor in strided)
    return [tensor for tensor in strided if owners[memory_of(tensor)] == 1]


def relaid(
    tensors: Iterable[torch.Tensor], layout: Callable[[torch.Tensor], list[int] | None]
) -> dict[int, torch.Tensor]:
    """Copies in the layout that a function gives, by the originals' ids; those that it gives none for are left out."""
    found: dict[int, torch.Tensor] = {}
    for tensor in alone(tensors):
        strides = layout(tensor)
        if strides is not None:
            found[id(tensor)] = restrided(tensor, strides)
    return found


def _dense(shape: Iterable[int], order: Iterable[int]) -> list[int]:
    """Strides without gaps, the dimensions in ``order``, the quickest first."""
    return list(torch.empty_permuted([*shape], [*order][::-1], device="meta").stride())


def _like(copy: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    copy_marks(tensor, copy)
    return copy.requires_grad_(tensor.requires_grad)
