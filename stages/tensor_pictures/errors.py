"""The errors of two tensors a piece at a time, in any dtype, layout and on any device, as the pictures need them."""

import math
from dataclasses import dataclass

import torch

from inductor_debug.stages.numerics import formats

CHUNK = 32_000
"""Elements handled at a time, below the size from which torch splits an operation over threads (see ``one_pass.py``).
Twice as many as there: counts of pairs of bins are added up once a chunk."""


@dataclass
class Piece:
    """Errors on the CPU.

    Attributes:
        error: |test - reference| in float32, or in float64 where float32 can't hold it. 0 where the sides are equal:
            NaN equals NaN, and an infinity itself. Infinite where only one side is not finite.
        magnitude: |reference| in the same dtype.
        finite: False where either side may hold what is not finite.
        marks: where one side alone is NaN, where one alone is infinite, and where both are NaN; empty where both sides
            are finite throughout, or where they were not asked for.
    """

    error: torch.Tensor
    magnitude: torch.Tensor
    finite: bool = True
    marks: tuple[torch.Tensor, ...] = ()


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
    # finite numbers may be further apart than float32 reaches
    if wide == torch.float32 and bool((error.isinf() & left.isfinite() & right.isfinite()).any()):
        return errors_of(left.double(), right.double(), marked=marked)
    nan_left, nan_right = left.isnan(), right.isnan()
    both_nan = nan_left & nan_right
    error = torch.where((left == right) | both_nan, 0.0, error).nan_to_num_(math.inf, math.inf)
    if not marked:
        return Piece(error, magnitude, False)
    nan = nan_left ^ nan_right
    return Piece(error, magnitude, False, (nan, error.isinf() & ~nan, both_nan))
