"""Equal-shaped strided tensors, a piece at a time, in an order in which their memory is read in order.

Dims are ordered by their strides, the largest outermost. So tensors that are transposed, permuted or in another memory
format in the same way are read like contiguous ones. Where they differ in the dim that neighbors in memory lie along, a
piece has an extent in each of these dims, so that every cache line is read once.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy
import torch

LINE = 64
"""Elements along each dim in which some tensor's memory is read in order: several cache lines of any dtype."""


class Place(NamedTuple):
    """Where in the whole tensor a piece is.

    Attributes:
        first: no element of it has a lower flat row-major index.
        sizes: its shape, in the order in which it is read.
        steps: how far apart neighbors along each of these dims are, in flat indices.
        skip: how many elements of that shape are left out before its first.
    """

    first: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    skip: int = 0

    def flat(self, positions: numpy.ndarray) -> numpy.ndarray:
        """Flat row-major indices, in the whole tensor, of positions in the piece."""
        if self.steps == (1,):
            return positions + self.first if self.first else positions
        index = numpy.unravel_index(positions + self.skip, self.sizes)
        found = numpy.full(positions.shape, self.first)
        for along, step in zip(index, self.steps, strict=True):
            found += along * step
        return found

    def part(self, start: int, end: int) -> "Place":
        """The place of its elements from ``start`` to before ``end``, in the order in which it is read."""
        if self.steps == (1,):
            return in_order(self.first + start, end - start)
        return Place(self.first, self.sizes, self.steps, self.skip + start)


def in_order(first: int, count: int) -> Place:
    """The place of ``count`` neighbors by flat index."""
    return Place(first, (count,), (1,))


def in_memory(tensors: Sequence[torch.Tensor]) -> Place | None:
    """The place of tensors' memory, of which each fills one range, all in the same order of dims; None for others."""
    shape = tensors[0].shape
    for tensor in tensors:
        if not tensor.is_contiguous():
            break
    else:
        return in_order(0, shape.numel())
    strides = tensors[0].stride()
    dims = sorted((dim for dim, size in enumerate(shape) if size != 1), key=lambda dim: -strides[dim])
    dense = 1
    for dim in reversed(dims):
        if any(tensor.stride(dim) != dense for tensor in tensors):
            return None
        dense *= shape[dim]
    return Place(0, tuple(shape[dim] for dim in dims), tuple(math.prod(shape[dim + 1 :]) for dim in dims))


def boxes(tensors: Sequence[torch.Tensor], limit: int) -> Iterator[tuple[Place, list[torch.Tensor]]]:
    """Places, and views of the tensors there, of at most ``limit`` elements: each element in one piece."""
    count = tensors[0].numel()
    if count == 0:
        return
    if count <= limit:
        yield in_order(0, count), list(tensors)
        return
    flat = all(tensor.is_contiguous() for tensor in tensors)
    tensors = [tensor.view(-1) if flat else tensor.squeeze() for tensor in tensors]
    shape = tensors[0].shape
    order = sorted(range(len(shape)), key=lambda dim: -sum(tensor.stride()[dim] for tensor in tensors))
    tensors = [tensor.permute(order) for tensor in tensors]
    steps = tuple(math.prod(shape[dim + 1 :]) for dim in order)
    sizes = [shape[dim] for dim in order]
    starts = [range(0, size, extent) for size, extent in zip(sizes, _extents(tensors, limit), strict=True)]
    for corner in itertools.product(*starts):
        where = tuple(slice(start, start + axis.step) for start, axis in zip(corner, starts, strict=True))
        parts = [tensor[where] for tensor in tensors]
        first = sum(start * step for start, step in zip(corner, steps, strict=True))
        yield Place(first, tuple(parts[0].shape), steps), parts


def _extents(tensors: Sequence[torch.Tensor], limit: int) -> list[int]:
    """Elements of a piece along each dim of tensors in the order in which they are read."""
    sizes = tensors[0].shape
    dims = range(len(sizes))
    lines = {min(dims, key=lambda dim: tensor.stride()[dim] or math.inf) for tensor in tensors}
    least = min(LINE, int(limit ** (1 / len(lines))))
    extents = [min(size, least) if dim in lines else 1 for dim, size in enumerate(sizes)]
    for dim in reversed(dims):
        room = limit // (math.prod(extents) // extents[dim])
        parts = math.ceil(sizes[dim] / room)
        extents[dim] = math.ceil(sizes[dim] / parts)
    return extents
