"""The errors of two tensors a piece at a time, in any dtype, layout and on any device, as the pictures need them."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from stages.kerneldiff import formats

CHUNK = 32_000
"""Elements handled at a time, below the size from which torch splits an operation over threads (see ``metrics.py``).
Twice as many as there: counts of pairs of bins are added up once a chunk."""


@dataclass
class Marks:
    """Where a piece is not a number, or infinite: on one side alone (``nan``, ``infinite``), or NaN on both."""

    nan: torch.Tensor
    infinite: torch.Tensor
    both_nan: torch.Tensor


@dataclass
class Piece:
    """Errors on the CPU.

    Attributes:
        error: |test - reference| in float32, or in float64 where float32 can't hold it; 0 where the sides are equal
            (NaN with NaN, and an infinity with itself, included), infinite where one side alone is not finite.
        magnitude: |reference| in the same dtype.
        finite: False where either side may hold what is not finite.
        marks: None where both sides are finite throughout, or where they were not asked for.
    """

    error: torch.Tensor
    magnitude: torch.Tensor
    finite: bool = True
    marks: Marks | None = None


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph, strided."""
    tensor = tensor.detach()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def errors_of(reference: torch.Tensor, test: torch.Tensor, *, marked: bool = True) -> Piece:
    """The errors of two pieces of one shape. Integers are subtracted exactly; the result is then rounded.

    Args:
        marked: False leaves out the marks.
    """
    reference, test = reference.to("cpu"), test.to("cpu")
    dtypes = (reference.dtype, test.dtype)
    if not any(formats.is_inexact(dtype) for dtype in dtypes) and len({dtype == torch.uint64 for dtype in dtypes}) == 1:
        gap = formats.distance(formats.exact_integers(reference), formats.exact_integers(test))
        return Piece(formats.unsigned_to_float64(gap), reference.to(torch.float64).abs())
    wide = torch.float64
    if any(dtype.is_complex for dtype in dtypes):
        wide = torch.complex128
    elif all(dtype.is_floating_point and dtype != torch.float64 for dtype in dtypes):
        wide = torch.float32
    left, right = reference.to(wide), test.to(wide)
    error, magnitude = (right - left).abs_() if wide != torch.complex128 else (right - left).abs(), left.abs()
    if math.isfinite(error.amax().item()):
        return Piece(error, magnitude)
    if wide == torch.float32 and _overflown(error, left, right):
        return errors_of(left.double(), right.double(), marked=marked)
    nan_left, nan_right = left.isnan(), right.isnan()
    both_nan = nan_left & nan_right
    error = torch.where((left == right) | both_nan, 0.0, error).nan_to_num_(math.inf, math.inf)
    if not marked:
        return Piece(error, magnitude, False)
    nan = nan_left ^ nan_right
    return Piece(error, magnitude, False, Marks(nan, error.isinf() & ~nan, both_nan))


def _overflown(error: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> bool:
    """True where finite numbers are further apart than the dtype reaches."""
    infinite = error.isinf()
    return bool(infinite.any()) and bool((infinite & left.isfinite() & right.isfinite()).any())


def span(tensor: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Elements ``start`` to ``stop`` in row-major order, 1-D; what is not contiguous is copied, only that far."""
    if tensor.is_contiguous():
        return tensor.view(-1)[start:stop]
    row = tensor.numel() // tensor.shape[0]
    first, last = start // row, (stop - 1) // row
    if first == last:
        return span(tensor[first], start - first * row, stop - first * row)
    parts = []
    if start % row:
        parts.append(span(tensor[first], start - first * row, row))
        first += 1
    whole = stop // row
    if whole > first:
        parts.append(tensor[first:whole].reshape(-1))
    if stop % row:
        parts.append(span(tensor[whole], 0, stop - whole * row))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def box_axis(sizes: Sequence[int], limit: int = CHUNK) -> int:
    """The first axis behind which there are no more than ``limit`` elements."""
    return next(axis for axis in range(len(sizes)) if math.prod(sizes[axis + 1 :]) <= limit)


def boxes(
    tensors: Sequence[torch.Tensor], limit: int = CHUNK
) -> Iterator[tuple[tuple[int, ...], int, list[torch.Tensor]]]:
    """Tensors of one shape and rank ≥ 1 in boxes of no more than ``limit`` elements.

    Yields:
        the index on the axes before :func:`box_axis`, the first index on it, and ``[length, everything behind]``.
    """
    sizes = tensors[0].shape
    axis = box_axis(sizes, limit)
    step = max(1, limit // math.prod(sizes[axis + 1 :]))
    for lead in itertools.product(*map(range, sizes[:axis])):
        inner = [tensor[lead] for tensor in tensors]
        for start in range(0, sizes[axis], step):
            length = min(step, sizes[axis] - start)
            yield lead, start, [tensor.narrow(0, start, length).reshape(length, -1) for tensor in inner]
