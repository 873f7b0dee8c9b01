"""Errors counted by size, and by size of the reference, and summed by index on every dim: one pass, any layout."""

import math
from dataclasses import dataclass, field

import numpy
import torch

from inductor_debug.stages.numerics.comparable import comparable
from inductor_debug.stages.numerics.histogram import BINS, bins_of
from inductor_debug.stages.numerics.one_pass import chunks
from inductor_debug.stages.numerics.readers import Side
from inductor_debug.stages.tensor_pictures.errors import CHUNK, errors_of

SIDE = 128
"""Bins of a density's side: the first for zeros, the last for what is not finite, between them half octaves."""

CHANNELS = range(2, 4097)
"""Lengths of the dims whose errors are summed by index."""


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
    """One pass over two sides of one shape in bounded memory.

    Args:
        reference, test: the sides, of one shape and any dtypes.
        top, magnitude: the largest finite error and |reference| (see ``canvas_of``), which set where bins begin.
    """
    reference, test = comparable(reference), comparable(test)
    shape: list[int] = list(reference.shape)
    lowest = half_octave(top or 1.0) - (SIDE - 3), half_octave(magnitude or 1.0) - (SIDE - 3)
    scale = _scale(top)
    density = torch.zeros(SIDE * SIDE, dtype=torch.int64)
    bins = torch.zeros(BINS, dtype=torch.int64)
    dims = [dim for dim, size in enumerate(shape) if len(shape) > 1 and size in CHANNELS and 0 not in shape]
    sums = {dim: torch.zeros(shape[dim], dtype=torch.float64) for dim in dims}
    for offset, pieces in chunks([reference, test], CHUNK):
        piece = errors_of(*pieces, marked=False)
        codes = SIDE * _codes(piece.error, lowest[0]) + _codes(piece.magnitude, lowest[1])
        density += torch.bincount(codes, minlength=SIDE * SIDE)
        bins += torch.bincount(bins_of(piece.error.double()), minlength=BINS)
        flat = torch.arange(offset, offset + len(piece.error), dtype=torch.float64)
        squares = (piece.error.double() * scale).square_()
        for dim, sum_ in sums.items():
            place = (flat / math.prod(shape[dim + 1 :])).long().remainder_(shape[dim])
            sum_.index_add_(0, place, squares)
    rms = {dim: (sum_ / (math.prod(shape) // shape[dim])).sqrt().numpy() / scale for dim, sum_ in sums.items()}
    return ErrorCounts(density.view(SIDE, SIDE).numpy(), lowest, bins.numpy(), rms)


def _scale(top: float) -> float:
    """A power of two that keeps the squares of errors up to ``top`` from overflowing or vanishing; 1 for most."""
    return 1.0 if 1e-12 < top < 1e15 or top == 0 else 2.0 ** min(1000, -math.frexp(top)[1])


def _codes(values: torch.Tensor, lowest: int) -> torch.Tensor:
    """Bins of :attr:`ErrorCounts.density` for non-negative floats, whose half octaves are their uppermost bits. No
    finite value is beyond the last but one."""
    kind, shift, bias = (torch.int32, 22, 254) if values.dtype == torch.float32 else (torch.int64, 51, 2046)
    return ((values.view(kind) >> shift) - (bias + lowest - 1)).clamp_(0, SIDE - 1).long()
