"""How far right computations that round otherwise are from float64, and a value judged by that."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, over_floors


class Noise:
    """Of one value.

    The floor is the RMS of the draws' RMS errors, and the largest of their largest, neither below torch's own error.
    Where one of them jumps, as behind a comparison with zero, others may: an element of which a draw is off by
    ``factor`` floors is right up to ``factor`` times that. A number that is not floating is right if a draw has it.

    Args:
        value, exact: the seen value, and float64; of one shape.

    Attributes:
        slope: the largest size of the slope of a draw.
    """

    def __init__(self, value: torch.Tensor, exact: torch.Tensor) -> None:
        self.value, self.exact = value, exact
        self.slope = 0.0
        self._each: list[tuple[float, float]] = []
        self._reach = torch.zeros_like(exact) if value.is_floating_point() else value == exact

    def add(self, draw: torch.Tensor) -> None:
        """One more right computation, in the dtype of the value."""
        if not self.value.is_floating_point():
            self._reach |= self.value == draw
            return
        noise = (draw.double() - self.exact).abs_()
        self._each.append((_rms(noise), float(noise.max())))
        self._reach = torch.maximum(self._reach, noise)
        self.slope = max(self.slope, abs(slope_of(draw, self.exact) or 0.0))

    def judged(self, row: TensorComparison, eager: torch.Tensor, factor: float) -> TensorComparison:
        """A row that was judged by one draw, anew by all of them, and by torch's own value.

        Args:
            factor: error over floor above which the value is a defect.
        """
        value, exact = self.value, self.exact
        if not value.is_floating_point():
            known = self._reach | (value == eager)
            return row if not bool(known.all()) else replace(row, verdict="within_floor", bound="floor_max")
        if row.bound not in FLOORS or row.floor_rms is None:
            return row
        least = min(rms for rms, _ in self._each)
        quiet = [both for both in self._each if both[0] <= factor * least] or self._each
        rms = (sum(part**2 for part, _ in quiet) / len(quiet)) ** 0.5
        largest = max(top for _, top in quiet)
        roundoff = torch.finfo(value.dtype).eps / 2
        own = (eager.double() - exact).abs_()
        rms = max(rms, _rms(own), roundoff * _rms(exact))
        largest = max(largest, float(own.max()), roundoff * float(exact.abs().max()))
        error = (value.double() - exact).abs_()
        jumped = self._reach > (factor * largest if len(quiet) < len(self._each) else float("inf"))
        error = torch.where(jumped & (error <= factor * self._reach), 0.0, error)
        ratio, bound = over_floors(_rms(error), float(error.max()), rms, largest)
        return replace(row, verdict="defect" if ratio > factor else "within_floor", bound=bound, ratio=ratio,
                       floor_rms=rms, floor_max=largest)  # fmt: skip


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def slope_of(value: torch.Tensor, exact: torch.Tensor) -> float | None:
    """⟨value − exact, exact⟩ / ⟨exact, exact⟩, in float64; None where it is no number."""
    return slope(value.detach().to(torch.float64, copy=True).sub_(exact.detach()), exact.detach())


def slope(error: torch.Tensor, exact: torch.Tensor) -> float | None:
    """⟨error, exact⟩ / ⟨exact, exact⟩, in float64; None where it is no number."""
    flat = exact.reshape(-1)
    size = float(flat.dot(flat))
    found = float(error.reshape(-1).dot(flat)) / size if size > 0 else math.nan
    return found if math.isfinite(found) else None


def difference(actual: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """An error, in float64; 0 where a right value is beyond the format's largest, and infinite in it."""
    error = actual.detach().to(torch.float64, copy=True).sub_(gold)
    if math.isfinite(float(error.sum())) or bool(error.isfinite().all()):
        return error
    return torch.where(actual.isinf() & (actual == gold.to(actual.dtype)), 0.0, error)


PIECE = 1 << 16
"""Elements that are looked at at a time on the CPU, so that they stay in a core's cache."""

LARGE = 1 << 22
"""Elements that are looked at at a time on a device, which keep it busy and take little of its memory."""


def pieces_of(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one shape, flat, in pieces."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    size = PIECE if flat[0].device.type == "cpu" else LARGE
    yield from zip(*(tensor.split(size) for tensor in flat), strict=True)


def largest(values: torch.Tensor) -> torch.Tensor:
    """The largest size, 0-dim; NaN where one is."""
    least, most = torch.aminmax(values)
    return torch.maximum(-least, most)


def apart(actual: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """An error as :func:`difference` has it, narrowed as by :func:`narrow`."""
    found = torch.empty(actual.shape, dtype=torch.float32, device=actual.device)
    for into, mine, other in pieces_of(found, actual, gold):
        into.copy_(mine.double() - other)
    if math.isfinite(float(found.sum())):
        return found
    return narrow(difference(actual, gold.double()))


def squared(values: torch.Tensor, less: torch.Tensor | None = None) -> float:
    """The sum of squares in float64, of values less others where there are any."""
    if less is None:
        return sum(float(piece.double().square().sum()) for (piece,) in pieces_of(values))
    return sum(float((piece.double() - other).square().sum()) for piece, other in pieces_of(values, less))


def narrow(error: torch.Tensor) -> torch.Tensor:
    """In float32, which holds an error or a cotangent well enough, where it is in its range."""
    found = error.float()
    return found if math.isfinite(float(found.sum())) or bool(found.isfinite().all()) else error
