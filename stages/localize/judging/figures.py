"""What of a value that is clearly right is told, without all that a comparison of outputs tells."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from inductor_debug.stages.localize.judging.noise import largest, pieces_of
from inductor_debug.stages.numerics.formats import unit_roundoff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import over_floors
from inductor_debug.stages.sides.rounded import MANTISSA
from inductor_debug.stages.sides.sum_noise import Sums


@dataclass(frozen=True)
class Figures:
    """Of a value within the noise floor.

    Attributes:
        row: as :func:`~stages.numerics.comparison.compare_tensors` gives it, but for what it says of a failure.
        slope: of the value, see :func:`~stages.localize.judging.noise.slope`.
        slope_noise: of the draw; None where none was needed.
        residual: the value less float64 of it, in float32.
    """

    row: TensorComparison
    slope: float | None
    slope_noise: float | None
    residual: torch.Tensor


def least_figures_of(
    value: torch.Tensor, exact: torch.Tensor, sums: Callable[[], Sums | None], *, path: str, factor: float
) -> Figures | None:
    """Look a value over by the floor that it has in any draw of the noise: the format's rounding, and that of its sums.

    A draw has about that RMS at least, and such a maximum. So what is right by that is right by a draw.

    Args:
        value: as it was seen.
        exact: float64, in its shape.
        sums: gives those that it is, where they are known; asked where the format's rounding is less than the error.
        path: of the row.
        factor: error over floor up to which a value is right.

    Returns:
        None where it is not clearly right, or anything is not finite.
    """
    if value.dtype not in MANTISSA or not value.numel():
        return None
    residual = torch.empty(value.shape, dtype=torch.float32, device=value.device)
    found = []
    for into, mine, right in pieces_of(residual, value, exact):
        error = mine.double() - right
        into.copy_(error)
        tops = [largest(item) for item in (error, right)]
        found.append(torch.stack([*tops, error.dot(error), right.dot(right), error.dot(right)]))
    each = torch.stack(found)
    error_max, top = each[:, :2].amax(0).tolist()
    squares, size, slope = each[:, 2:].sum(0).tolist()
    if not math.isfinite(error_max + top + squares + size):
        return None
    judged = partial(_row, value, path, factor, (squares, error_max), right=(size, top))
    row = judged(floors=(0.0, 0.0))
    if row is None and (noise := sums()) is not None:
        row = judged(floors=noise.floors(size / value.numel()))
    return None if row is None else Figures(row, slope / size if size else None, None, residual)


def figures_of(
    value: torch.Tensor, rounded: torch.Tensor, exact: torch.Tensor, *, path: str, factor: float
) -> Figures | None:
    """Look a value over; None where it is not clearly right, or anything is not finite.

    Args:
        value: as it was seen.
        rounded: one draw of the noise.
        exact: float64; the three are of one shape.
        path: of the row.
        factor: error over floor up to which a value is right.
    """
    if value.dtype not in MANTISSA or rounded.dtype != value.dtype or not value.numel():
        return None
    residual = torch.empty(value.shape, dtype=torch.float32, device=value.device)
    found = []
    for into, mine, drawn, right in pieces_of(residual, value, rounded, exact):
        error, noise = mine.double() - right, drawn.double() - right
        into.copy_(error)
        tops = [largest(item) for item in (error, noise, right)]
        products = [error.dot(error), noise.dot(noise), right.dot(right), error.dot(right), noise.dot(right)]
        found.append(torch.stack([*tops, *products]))
    each = torch.stack(found)
    error_max, floor_max, top = each[:, :3].amax(0).tolist()
    squares, floor_squares, size, slope, slope_noise = each[:, 3:].sum(0).tolist()
    if not math.isfinite(error_max + floor_max + top + squares + floor_squares + size):
        return None
    if error_max == floor_max and torch.equal(value, rounded):
        return None
    floors = math.sqrt(floor_squares / value.numel()), floor_max
    row = _row(value, path, factor, (squares, error_max), floors, (size, top))
    if row is None:
        return None
    return Figures(row, slope / size if size else None, abs(slope_noise / size) if size else 0.0, residual)


def _row(
    value: torch.Tensor, path: str, factor: float, error: tuple[float, float], floors: tuple[float, float],
    right: tuple[float, float],
) -> TensorComparison | None:  # fmt: skip
    """The row of a value that is within its floor; None where it is not.

    Args:
        value, path, factor: as in :func:`figures_of`.
        error, right: the sum of squares, and the maximum, of the error and of the right value.
        floors: RMS and maximum of the noise; neither is below the format's rounding.
    """
    count, roundoff = value.numel(), unit_roundoff(value.dtype)
    error_rms, rms = (math.sqrt(squares / count) for squares, _ in (error, right))
    floor_rms, floor_max = max(floors[0], roundoff * rms), max(floors[1], roundoff * right[1])
    ratio, bound = over_floors(error_rms, error[1], floor_rms, floor_max)
    if ratio > factor:
        return None
    verdict, bound = ("within_floor", bound) if error[1] else ("exact", "bits")
    return TensorComparison("output", path, list(value.shape), str(value.dtype).removeprefix("torch."), verdict,
                            bound, elements=count, floor_rms=floor_rms, floor_max=floor_max, error_rms=error_rms,
                            error_max=error[1], ratio=ratio, factor=factor, reference_rms=rms)  # fmt: skip
