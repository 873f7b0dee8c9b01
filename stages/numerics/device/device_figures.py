"""What a pass on a device found, and whether that holds."""

import math
import struct
from dataclasses import dataclass, field
from typing import Literal

import numpy
import torch

from inductor_debug.stages.numerics.sums import HUGE, TINY
from inductor_debug.stages.numerics.worst import Candidate

WIDTHS = {torch.float32: 32, torch.float16: 16, torch.bfloat16: 16, torch.float64: 64}
"""Floats that the kernels read, and their bits."""

INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
"""Other dtypes that they read; float64 holds each of their values."""

Care = Literal["quick", "finite", "exact"]
"""What a pass is for: finite values of one of the dtypes of ``device_pass.QUICK``; finite values; any.

Each is slower than the last.
"""

LARGEST_DIVISOR = 2.0**126
"""Beyond it the fast division of float32 gives 0 (CUDA C++ Programming Guide, intrinsic functions, ``__fdividef``)."""

NARROW_RANGE = 2.0**-40, 2.0**60
"""Where the largest of 16-bit floats, and of their errors, lies here, float32 holds their squares."""


@dataclass
class DeviceFigures:
    """What one pass gave; the names are those of ``triton_kernels.COLUMNS``.

    Attributes:
        sums: figures by name.
        histogram: counts by bin (see :mod:`stages.numerics.histogram`).
        worst: worst first; at most :data:`MOST_WORST`, all errors above 0 (of NaN infinite); indices are positions.
    """

    sums: dict[str, float | int]
    histogram: list[int]
    worst: list[Candidate] = field(default_factory=list)

    @property
    def top(self) -> float:
        """The largest error."""
        return -self.worst[0][0] if self.worst else 0.0

    def after(self, care: Care, dtype: torch.dtype) -> Care | None:
        """What pass of the same elements is needed, where this one's figures do not hold.

        Args:
            care: of this pass.
            dtype: of the reference.
        """
        sums, isfinite = self.sums, math.isfinite
        if care == "exact":
            return None
        narrow = care == "quick" and WIDTHS.get(dtype) == 16
        finite = isfinite(sums["sum_abs"]) and isfinite(sums["sum_rel"]) and isfinite(sums.get("magnitude", 0.0))
        if not finite or sums["top_left"] > LARGEST_DIVISOR or (not narrow and not isfinite(sums["squares"])):
            return "exact"
        return "finite" if narrow and (sums["doubts"] or not self._within(*NARROW_RANGE)) else None

    def _within(self, least: float, most: float) -> bool:
        """Whether the largest of either side, and the largest error, are 0 or between the two."""
        sums, top = self.sums, self.top
        left, right = sums["top_left"], sums["top_right"]
        return (
            (left == 0 or least < left < most)
            and (right == 0 or least < right < most)
            and (top == 0 or least < top < most or top == math.inf)
        )

    @property
    def scaled(self) -> bool:
        """False where a square may have overflowed or vanished."""
        for name in ("top_floor", "top_error", "top_gold"):
            top = self.sums.get(name, 0.0)
            if top and not TINY < top < HUGE:
                return False
        return self._within(TINY, HUGE)


_ROW = struct.Struct("3dq")


def worst_of(rows: numpy.ndarray) -> list[Candidate]:
    """The worst elements, worst first, of those of each lane; the lanes and the elements of each are in order too.

    Args:
        rows: error, reference and test, as bits of float64, and position, of one after the other: 1-D int64.
    """
    errors = rows[::4].view(numpy.float64).tolist()
    keep = math.isqrt(len(errors))
    least = errors[keep * (keep - 1)]  # of the last lane the worst
    found: list[Candidate] = []
    for lane in range(0, keep * keep, keep):
        for place in range(lane, lane + keep):
            error = errors[place]
            if error < least or error <= 0:
                break
            _, reference, test, position = _ROW.unpack_from(rows.data, _ROW.size * place)
            found.append((-error, position, reference, test))
    found.sort()
    return found[:keep]
