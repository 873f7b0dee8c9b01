"""What of a value that is clearly right is told, without all that a comparison of outputs tells."""

import math
from dataclasses import dataclass

import torch

from inductor_debug.stages.localize.judging.noise import largest, pieces_of
from inductor_debug.stages.numerics.formats import unit_roundoff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import over_floors
from inductor_debug.stages.sides.rounded import MANTISSA


@dataclass(frozen=True)
class Figures:
    """Of a value within the noise floor.

    Attributes:
        row: as :func:`~stages.numerics.comparison.compare_tensors` gives it, but for what it says of a failure.
        slope, slope_noise: of the value and of the draw, see :func:`~stages.localize.judging.noise.slope`.
        residual: the value less float64 of it, in float32.
    """

    row: TensorComparison
    slope: float | None
    slope_noise: float
    residual: torch.Tensor


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
    count, roundoff = value.numel(), unit_roundoff(value.dtype)
    error_rms, rms = math.sqrt(squares / count), math.sqrt(size / count)
    floor_rms = max(math.sqrt(floor_squares / count), roundoff * rms)
    floor_max = max(floor_max, roundoff * top)
    ratio, bound = over_floors(error_rms, error_max, floor_rms, floor_max)
    if ratio > factor or (error_max == floor_max and torch.equal(value, rounded)):
        return None
    row = TensorComparison("output", path, list(value.shape), str(value.dtype).removeprefix("torch."), "within_floor",
                           bound, elements=count, floor_rms=floor_rms, floor_max=floor_max, error_rms=error_rms,
                           error_max=error_max, ratio=ratio, factor=factor, reference_rms=rms)  # fmt: skip
    return Figures(row, slope / size if size else None, abs(slope_noise / size) if size else 0.0, residual)
