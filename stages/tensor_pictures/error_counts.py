"""Errors counted by size, and by size of the reference, and summed by index on every dim: one pass, any layout."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
import torch

from inductor_debug.stages.numerics.comparable import comparable
from inductor_debug.stages.numerics.histogram import BINS, LOWEST, OCTAVES, bins_of
from inductor_debug.stages.numerics.readers import Reader, Side
from inductor_debug.stages.tensor_pictures.errors import CHUNK, box_axis, boxes, errors_of

SIDE = 128
"""Bins of a density's side: the first for zeros, the last for what is not finite, between them half octaves."""

CHANNELS = range(2, 4097)
"""Lengths of the dims whose errors are summed by index."""

_RAW = 512
"""Half octaves of float32."""


def half_octave(value: float) -> int:
    """The number h of the half octave of a positive number: [2**n, 1.5·2**n) is 2n, [1.5·2**n, 2**(n + 1)) 2n + 1."""
    mantissa, exponent = math.frexp(value)
    return 2 * (exponent - 1) + (mantissa >= 0.75)


def log10_of(half: int) -> float:
    """log10 of the lower edge of half octave ``half``."""
    return (half // 2) * math.log10(2) + (math.log10(1.5) if half % 2 else 0.0)


@dataclass
class ErrorCounts:
    """What :func:`count_errors` counted.

    Attributes:
        density: int64 ``[SIDE, SIDE]``, elements by size of the error (rows) and of the reference (columns). Bin
            ``SIDE - 1`` holds what is not finite, bin ``i`` half octave ``lowest + i - 1``. Bin 0 holds zeros and what
            lies below (by 19 powers of ten and more below the largest).
        lowest: half octave of bin 1, for the errors and for the reference.
        bins: elements by size of the error in the bins of :mod:`stages.numerics.histogram`.
        channels: dim → RMS error by index on it, infinite where an error is; for dims of rank ≥ 2 with a length in
            :data:`CHANNELS`.
    """

    density: numpy.ndarray
    lowest: tuple[int, int]
    bins: numpy.ndarray
    channels: dict[int, numpy.ndarray] = field(default_factory=dict)

    @property
    def uneven(self) -> int | None:
        """The dim whose error is the most unequal: the one whose largest mean square is most above its average.

        Where errors are infinite, indices count by whether they have one. None where there is no error, or no dim.
        """
        found = {dim: _inequality(rms) for dim, rms in self.channels.items() if rms.any()}
        return max(found, key=lambda dim: found[dim]) if found else None


def _inequality(rms: numpy.ndarray) -> float:
    infinite = numpy.isinf(rms)
    squares = infinite.astype(float) if infinite.any() else (rms / rms.max()) ** 2
    return float(squares.max() / squares.mean())


def count_errors(reference: Side, test: Side, *, top: float, magnitude: float) -> ErrorCounts:
    """One pass over two sides of one shape in bounded memory: in the reference's order there, if both are strided.

    Args:
        reference, test: the sides, of one shape and any dtypes.
        top, magnitude: the largest finite error and |reference| (see ``canvas_of``), which set where bins begin.
    """
    shape, sides, order = _in_order(comparable(reference), comparable(test))
    lowest = tuple(half_octave(value or 1.0) - (SIDE - 3) for value in (top, magnitude))
    density = torch.zeros(SIDE * SIDE, dtype=torch.int64)
    counted = _Bins()
    sums = _Channels([shape[dim] for dim in order], _scale(top))
    if math.prod(shape):
        for lead, start, (left, right) in boxes(sides):
            piece = errors_of(left.reshape(-1), right.reshape(-1), marked=False)
            raw = _raw(piece.error)
            counted.add(piece.error, raw)
            codes = _codes(_raw(piece.magnitude), piece.magnitude, lowest[1])
            codes.add_(_codes(raw, piece.error, lowest[0]), alpha=SIDE)
            density += torch.bincount(codes, minlength=SIDE * SIDE)
            if sums.wanted:
                sums.add(lead, start, piece.error.view(left.shape))
    channels = {order[dim]: rms for dim, rms in sums.rms().items()} if len(shape) > 1 else {}
    return ErrorCounts(
        density.view(SIDE, SIDE).numpy(), (lowest[0], lowest[1]), counted.counts(), dict(sorted(channels.items()))
    )


def _in_order(reference: Side, test: Side) -> tuple[list[int], list[Side], list[int]]:
    """The shape, of rank ≥ 1, both sides with their dims in the order in which they are walked, and that order."""
    shape = list(reference.shape) or [1]
    order = list(range(len(shape)))
    if isinstance(reference, Reader) or isinstance(test, Reader):  # a reader has the one order
        return shape, [side if isinstance(side, Reader) else side.reshape(shape) for side in (reference, test)], order
    strides = reference.reshape(shape).stride()
    order.sort(key=lambda dim: strides[dim], reverse=True)
    return shape, [side.reshape(shape).permute(order) for side in (reference, test)], order


def _scale(top: float) -> float:
    """A power of two that keeps the squares of errors up to ``top`` from overflowing or vanishing; 1 for most."""
    return 1.0 if 1e-12 < top < 1e15 or top == 0 else 2.0 ** min(1000, -math.frexp(top)[1])


def _raw(values: torch.Tensor) -> torch.Tensor:
    """Half octaves of non-negative floats, as int32, plus 254 for float32 and 2046 for float64."""
    if values.dtype == torch.float32:
        return values.view(torch.int32) >> 22
    return (values.view(torch.int64) >> 51).to(torch.int32)


def _codes(raw: torch.Tensor, values: torch.Tensor, lowest: int) -> torch.Tensor:
    """Bins of :attr:`ErrorCounts.density`; overwrites ``raw``. No finite value is beyond the last but one."""
    bias = 254 if values.dtype == torch.float32 else 2046
    return raw.sub_(bias + lowest - 1).clamp_(0, SIDE - 1)


class _Bins:
    """Counts for ``histogram.py``'s bins: of float32 errors by half octave, so that an element costs no more."""

    def __init__(self) -> None:
        self.raw = torch.zeros(_RAW, dtype=torch.int64)
        self.bins = torch.zeros(BINS, dtype=torch.int64)

    def add(self, error: torch.Tensor, raw: torch.Tensor) -> None:
        if error.dtype != torch.float32:
            self.bins += torch.bincount(bins_of(error), minlength=BINS)
            return
        counts = torch.bincount(raw, minlength=_RAW)
        if counts[0]:  # zeros, and what is below the normal numbers
            zeros = error.numel() - int(torch.count_nonzero(error))
            self.bins[BINS - 1] += zeros
            counts[0] -= zeros
        self.raw += counts

    def counts(self) -> numpy.ndarray:
        octave = torch.div(torch.arange(_RAW), 2, rounding_mode="floor") - 127
        place = torch.div(octave - LOWEST, OCTAVES, rounding_mode="floor").clamp(0, BINS - 2)
        place[octave > 127] = BINS - 1
        return self.bins.index_add(0, place, self.raw).numpy()


class _Channels:
    """Squares of errors by index on every dim, from boxes: of the dims before, at and behind their axis."""

    def __init__(self, sizes: Sequence[int], scale: float) -> None:
        self.sizes, self.scale = list(sizes), scale
        self.axis = box_axis(sizes, CHUNK)
        self.before = numpy.zeros(self.sizes[: self.axis])
        self.along = torch.zeros(sizes[self.axis] if sizes[self.axis] in CHANNELS else 0, dtype=torch.float64)
        self.behind = torch.zeros(math.prod(self.sizes[self.axis + 1 :]), dtype=torch.float64)

    @property
    def wanted(self) -> bool:
        return len(self.sizes) > 1 and any(size in CHANNELS for size in self.sizes)

    def add(self, lead: tuple[int, ...], start: int, error: torch.Tensor) -> None:
        squares = error.square() if self.scale == 1 else (error.double() * self.scale).square_()
        columns = squares.sum(0).double()
        self.behind += columns
        self.before[lead] += columns.sum().item()
        if self.along.numel():
            self.along[start : start + len(error)] += squares.sum(1)

    def rms(self) -> dict[int, numpy.ndarray]:
        total = math.prod(self.sizes)
        sums: dict[int, numpy.ndarray] = {self.axis: self.along.numpy()}
        behind = self.behind.numpy().reshape(self.sizes[self.axis + 1 :])
        for values, first in ((self.before, 0), (behind, self.axis + 1)):
            for dim in range(values.ndim):
                sums[first + dim] = values.sum(tuple(other for other in range(values.ndim) if other != dim))
        return {
            dim: numpy.sqrt(values / (total // self.sizes[dim])) / self.scale
            for dim, values in sums.items()
            if self.sizes[dim] in CHANNELS and total
        }
