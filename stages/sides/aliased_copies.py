"""Copies of inputs that hold other values, and share memory with each other as the inputs do."""

import copy
from collections.abc import Mapping

import torch

from inductor_debug.models.contents import same_bits
from inductor_debug.models.nested import memory_of
from inductor_debug.stages.sides.packing import tensor_digest


class Contradiction(Exception):
    """Tensors that share memory can't hold the values that they were given; the message names one."""


def aliased_copies(tensors: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copies that hold other values and alias each other as the tensors do, by ``id`` of the tensor.

    Views of one storage are copied as views of one, so that a write into one shows in the other. Where a storage's
    tensors all hold their values' bits already, they are left out.

    Args:
        tensors: strided ones, by name; the same one may have two names.
        values: of the same names, dtypes, shapes and device.

    Raises:
        Contradiction: two tensors share an element, and their values differ there.
    """
    stale = {memory_of(tensor) for name, tensor in tensors.items() if not same_bits(tensor, values[name])}
    held = {name: tensor for name, tensor in tensors.items() if memory_of(tensor) in stale}
    # detached, for a tensor that autograd made can't be copied deeply; one memo, which is what keeps views together
    bare = {id(tensor): tensor.detach() for tensor in held.values()}
    copies: dict[int, torch.Tensor] = copy.deepcopy(bare)
    for name, tensor in held.items():
        _once(copies[id(tensor)]).copy_(_once(values[name], copies[id(tensor)]))
    for name, tensor in held.items():
        filled = copies[id(tensor)]
        if tensor_digest(filled) != tensor_digest(values[name]):
            if sum(memory_of(other) == memory_of(tensor) for other in bare.values()) > 1:
                raise Contradiction(name)
            copies[id(tensor)] = filled = torch.empty_like(values[name]).copy_(values[name])
        filled.requires_grad_(tensor.requires_grad)
    return copies


def _once(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """``tensor`` without the repeats along the dims that ``like`` (default: itself) has expanded."""
    like = tensor if like is None else like
    for dim, (size, stride) in enumerate(zip(like.shape, like.stride(), strict=True)):
        tensor = tensor.narrow(dim, 0, 1) if size > 1 and stride == 0 else tensor
    return tensor
