"""What tensors hold: whether two hold the same bits, and copies that are kept for as long as they are true."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from inductor_debug.models.nested import extent, is_strided, memory_of, strided_parts
from inductor_debug.models.torch_private import storage_identity

_OWN_MEMORY = ("cpu", "cuda", "meta")
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_AT_ONCE = 2**22
"""Elements of a tensor that are compared at once where one side has to be cast for it."""


@dataclass(frozen=True)
class Content:
    """What a tensor holds.

    Attributes:
        values: a copy, which nobody writes into.
        dtype: the tensor holds the values cast to it; None: the values as they are.
    """

    values: torch.Tensor = field(repr=False)
    dtype: torch.dtype | None = None

    def held_by(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` has this shape and dtype, and holds the same bits."""
        if not _shaped_like(tensor, self.values, self.dtype):
            return False
        if self.dtype is None:
            return same_bits(tensor, self.values)
        return all(same_bits(mine, kept.to(self.dtype)) for mine, kept in _in_parts(tensor.detach(), self.values))

    def put_into(self, tensor: torch.Tensor) -> bool:
        """Write it into ``tensor``, in place; False where that has another shape, dtype, or too little memory."""
        fits = _shaped_like(tensor, self.values, self.dtype)
        if fits:
            with torch.no_grad():
                tensor.copy_(self.values)
        return fits

    def copied(self) -> torch.Tensor:
        """A tensor of its own that holds it."""
        return self.values.clone() if self.dtype is None else self.values.to(self.dtype, copy=True)


class Contents:
    """Copies of what tensors held, to be taken again where they hold it still. Each is forgotten with its tensor."""

    def __init__(self) -> None:
        self._known = WeakTensorKeyDictionary()
        self._lent: list[torch.Tensor] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While open, a tensor that is cast stands itself for what the result holds, and its copy is forgotten.

        So a cast takes the place of the copy, which the next snapshot makes again. Nothing may run meanwhile that
        writes into a tensor that was cast.
        """
        before, self._lent = self._lent, []
        try:
            yield
        finally:
            for made in self._lent:
                self._known.pop(made, None)
            self._lent = before

    def of(self, tensor: torch.Tensor) -> Content:
        """What ``tensor`` holds now: an earlier copy if it has the same bits, else a new one."""
        known = self._known.get(tensor)
        if known is None or not known.held_by(tensor):
            known = self._known[tensor] = Content(tensor.detach().clone())
        return known

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A strided tensor, or parameter, of its own that holds ``tensor`` cast to ``dtype``.

        Where there is a copy of ``tensor``, that stands for what the result holds too; while :meth:`lent`, ``tensor``
        does.
        """
        made = tensor.detach().to(dtype, copy=True)
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        else:
            made.requires_grad_(tensor.requires_grad)
        if self._lent is not None:
            self._known.pop(tensor, None)
            self._known[made] = Content(tensor.detach(), dtype)
            self._lent.append(made)
            return made
        known = self._known.get(tensor)
        if known is not None and known.dtype is None and known.held_by(tensor):
            self._known[made] = Content(known.values, dtype)
        return made


def sole_owners(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The ids of those that share their memory with no other."""
    owners: dict[int, list[int]] = {}
    for tensor in tensors:
        if place_of(tensor) is not None:
            owners.setdefault(memory_of(tensor), []).append(id(tensor))
    return {found[0] for found in owners.values() if len(found) == 1}


def place_of(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What tells whether two tensors show the same memory in the same way; None where that can't be told.

    It can't on a device of PrivateUse1, whose tensors' storages may be empty.
    """
    if not is_strided(tensor) or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if tensor.device.type not in _OWN_MEMORY:
        return None
    storage = storage_identity(tensor.untyped_storage())
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _in_parts(tensor: torch.Tensor, other: torch.Tensor) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Two tensors of one shape, a number of rows of each at a time."""
    if not tensor.dim() or not tensor.numel():
        return [(tensor, other)]
    rows = max(1, _AT_ONCE // tensor[0].numel())
    return zip(tensor.split(rows), other.split(rows), strict=True)


def _shaped_like(tensor: torch.Tensor, content: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether device, layout, shape and dtype are those of ``content``, and the memory reaches as far as they need.

    Args:
        dtype: in place of that of ``content``.
    """
    if (tensor.device, tensor.dtype, tensor.layout) != (content.device, dtype or content.dtype, content.layout):
        return False
    if tensor.is_nested != content.is_nested:
        return False
    if not is_strided(tensor):
        return [part.shape for part in strided_parts(tensor)] == [part.shape for part in strided_parts(content)]
    if tensor.shape != content.shape:
        return False
    return place_of(tensor) is None or extent(tensor) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """True where both hold the same bits, on whatever devices: 0.0 and -0.0 differ, a NaN is equal to itself.

    A tensor without values (meta) holds the same as any other of its shape; False where the bits can't be looked at.
    """
    left, right = left.detach(), right.detach()
    if left.is_meta or right.is_meta:
        return left.is_meta == right.is_meta
    if left.device != right.device or left.device.type not in _OWN_MEMORY:
        left, right = left.cpu(), right.cpu()
    jagged = left.layout == right.layout == torch.jagged
    if not jagged and ({type(left), type(right)} != {torch.Tensor} or left.layout != right.layout):
        return False
    mine, others = strided_parts(left), strided_parts(right)
    pairs = list(zip(mine, others, strict=False))
    return (
        bool(pairs)
        and len(mine) == len(others)
        and all(
            part.shape == other.shape and part.dtype == other.dtype and _same_strided(part, other)
            for part, other in pairs
        )
    )


def _same_strided(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.is_quantized or right.is_quantized:
        comparable = left.is_quantized and right.is_quantized and left.qscheme() == right.qscheme()
        return comparable and torch.equal(left.int_repr(), right.int_repr()) and torch.equal(left, right)
    left, right = (side.resolve_conj().resolve_neg() for side in (left, right))
    if left.dtype == torch.complex128:
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    if left.nbytes % 8 == 0 and all(side.is_contiguous() and side.storage_offset() == 0 for side in (left, right)):
        left, right = left.flatten(), right.flatten()
        return torch.equal(left.view(torch.int64), right.view(torch.int64))  # half the time of four bytes each
    integer = _INTEGER_OF_SIZE.get(left.element_size())
    return integer is not None and torch.equal(left.view(integer), right.view(integer))
