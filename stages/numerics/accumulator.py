"""The figures of one tensor against another as running sums over pieces of them, on the pieces' own device.

Floats are widened to float64 (complex to complex128) a piece at a time. Sums are kept in float64 with a running scale,
so that values near 1e300 and errors near 1e-300 neither overflow nor vanish. Integers are compared as integers.

Pieces of real numbers that are all finite take a short way through five buffers that are used again for every piece.
All others (complex, integers, NaN, infinities) take the general way. Both give the same figures.
"""

import math
from dataclasses import dataclass, field

import torch

from inductor_debug.stages.artifacts.comparison import Worst
from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.device_pass import DeviceFigures
from inductor_debug.stages.numerics.histogram import BINS, bins_of
from inductor_debug.stages.numerics.readers import Side, region, unravel
from inductor_debug.stages.numerics.sums import Dot, Spread, Total, decibel

Number = bool | int | float | complex


@dataclass
class Figures:
    """What one pass found. See ``TensorComparison`` for the meaning of the fields they share."""

    elements: int = 0
    mismatched: int = 0
    bitwise_equal: bool = True
    nan_reference: int = 0
    nan_test: int = 0
    inf_reference: int = 0
    inf_test: int = 0
    nonfinite_mismatched: int = 0
    zero_reference: int = 0
    max_abs: float | int = 0
    mean_abs: float = 0.0
    rmse: float = 0.0
    max_rel: float = 0.0
    mean_rel: float = 0.0
    max_ulp: int | None = None
    cosine: float = math.nan
    snr_db: float = math.nan
    reference_rms: float = 0.0
    test_rms: float = 0.0
    worst: list[Worst] = field(default_factory=list)
    gold_elements: int = 0
    floor: Spread = field(default_factory=Spread)
    error: Spread = field(default_factory=Spread)
    magnitude: Spread = field(default_factory=Spread)
    histogram: list[int] | None = None


_COUNTS = {
    "mismatched": "mismatched", "nan_reference": "nan_left", "nan_test": "nan_right", "inf_reference": "inf_left",
    "inf_test": "inf_right", "nonfinite_mismatched": "beyond", "zero_reference": "zeros",
}  # fmt: skip
"""Counts among the figures → columns of a pass on a device."""


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value; NaN where there is one."""
    lowest, highest = torch.aminmax(values)
    return max(-lowest.item(), highest.item())


def _greater(left: float, right: float) -> float:
    """The greater, NaN where either is."""
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


class Accumulator:
    """Running sums over chunks.

    Args:
        reference, test: the sides, of equal shapes, any dtypes and devices.
        rtol, atol: the tolerance, ``|test - reference| <= atol + rtol * |reference|``.
        worst: how many of the worst elements to keep.
        histogram: count errors by size too.
    """

    def __init__(
        self, reference: Side, test: Side, rtol: float, atol: float, worst: int, histogram: bool = False
    ) -> None:
        self.shape, self.rtol, self.atol, self.keep = reference.shape, rtol, atol, worst
        self.same_dtype = reference.dtype == test.dtype
        self.integers = not (formats.is_inexact(reference.dtype) or formats.is_inexact(test.dtype))
        self.figures = Figures(elements=reference.numel())
        if self.same_dtype and not self.integers:
            self.figures.max_ulp = 0
        self.errors = Spread()
        self.sum_abs, self.sum_rel, self.relative = Total(), Total(), 0
        self.left, self.right, self.dot = Spread(), Spread(), Dot()
        self.candidates: list[tuple[float, int]] = []
        self.known: dict[int, tuple[float, float]] = {}
        if histogram:
            self.figures.histogram = [0] * BINS
        complexes = reference.dtype.is_complex or test.dtype.is_complex
        self.short = not self.integers and not complexes and 0 <= atol < math.inf and 0 <= rtol < math.inf
        self.buffers = torch.empty(5, 0, dtype=torch.float64)

    def add(self, offset: int, pieces: list[torch.Tensor]) -> None:
        if self.short and not any(piece.dtype.is_complex for piece in pieces) and self._add_finite(offset, pieces):
            return
        reference, test = pieces[0], pieces[1]
        if self.integers:
            gap = formats.distance(formats.exact_integers(reference), formats.exact_integers(test))
            self.figures.max_abs = max(self.figures.max_abs, formats.largest_unsigned(gap))
            self.figures.bitwise_equal &= not bool(gap.any())
            absolute, equal = formats.unsigned_to_float64(gap), gap == 0
            wide_reference, wide_test = formats.widen(reference), formats.widen(test)
        else:
            wide_reference, wide_test = formats.widen(reference), formats.widen(test)
            equal = self._count_nonfinite(wide_reference, wide_test)
            if self.same_dtype:
                both_nan = wide_reference.isnan() & wide_test.isnan()
                self.figures.bitwise_equal &= bool((formats.same_bits(reference, test) | both_nan).all())
                self._ulp(reference, test)
            absolute = (wide_test - wide_reference).abs()
            absolute = torch.where(equal, 0.0, absolute)
        self._sums(absolute, equal, wide_reference, wide_test)
        self._count(absolute)
        rank = torch.where(absolute.isnan(), math.inf, absolute)
        self._remember(offset, rank, rank.amax().item())
        if len(pieces) > 2:
            self._against_gold(wide_reference, wide_test, formats.widen(pieces[2]))

    def merge(self, found: DeviceFigures, count: int, *, gold: bool) -> None:
        """Add what a pass on a device found of ``count`` elements of floating dtypes."""
        if not count:
            return
        figures, sums = self.figures, found.sums
        for mine, theirs in _COUNTS.items():
            setattr(figures, mine, getattr(figures, mine) + int(sums[theirs]))
        if self.same_dtype:
            figures.bitwise_equal = figures.bitwise_equal and sums["unlike_lanes"] == 0
            figures.max_ulp = max(figures.max_ulp or 0, int(sums["ulp"]))
        finite = int(sums["finite"])
        self.sum_abs.merge(sums["sum_abs"])
        self.relative += count - int(sums["zeros"])
        self.sum_rel.merge(math.nan if sums["nan_rel"] else sums["sum_rel"])
        figures.max_rel = _greater(figures.max_rel, math.nan if sums["nan_rel"] else sums["top_rel"])
        top = found.worst[0].error if found.worst else 0.0
        self.errors.merge(count, math.nan if math.isnan(sums["sum_abs"]) else top, sums["squares"])
        self.left.merge(finite, sums["top_left"], sums["left"])
        self.right.merge(finite, sums["top_right"], sums["right"])
        self.dot.merge(sums["dot"], self.left.largest, self.right.largest)
        if gold:
            figures.gold_elements += int(sums["in_gold"])
            for name in ("floor", "error"):
                getattr(figures, name).merge(int(sums["in_gold"]), sums[f"top_{name}"], sums[name])
            figures.magnitude.merge(int(sums["in_gold"]), sums["top_gold"], sums["magnitude"])
        if figures.histogram is not None:
            figures.histogram = [mine + more for mine, more in zip(figures.histogram, found.histogram, strict=True)]
        for element in found.worst:
            self.candidates.append((element.error, element.position))
            self.known[element.position] = element.reference, element.test
        self._trim()

    def _add_finite(self, offset: int, pieces: list[torch.Tensor]) -> bool:
        """The short way. False, with nothing added, where a value, or a difference, is not finite."""
        count = pieces[0].numel()
        if self.buffers.shape[1] < count:
            self.buffers = torch.empty(5, count, dtype=torch.float64, device=pieces[0].device)
        reference, test, error, size, work = (buffer[:count] for buffer in self.buffers)
        reference.copy_(pieces[0])
        test.copy_(pieces[1])
        torch.sub(test, reference, out=error).abs_()
        top = error.amax().item()
        if not math.isfinite(top):  # a difference is finite only where both sides are
            return False
        figures = self.figures
        lowest, highest = (bound.item() for bound in torch.aminmax(torch.abs(reference, out=size)))
        nonzero = count if lowest > 0 else int(torch.count_nonzero(size))
        figures.zero_reference += count - nonzero
        self.relative += nonzero
        self.errors.add(error, top, work)
        self.left.add(reference, highest, work)
        self.right.add(test, _largest(test), work)
        self.dot.add(reference, test, self.left.largest, self.right.largest, work)
        self._count(error)
        if top > 0:
            self._add_different(error, size, work, top, lowest)
            self._remember(offset, error, top)
        if self.same_dtype:
            figures.bitwise_equal = figures.bitwise_equal and top == 0 and formats.identical(pieces[0], pieces[1])
            if top > 0:
                figures.max_ulp = max(figures.max_ulp or 0, formats.largest_distance(pieces[0], pieces[1]))
        if len(pieces) > 2:
            self._against_finite_gold(reference, test, size.copy_(pieces[2]), work)
        return True

    def _add_different(
        self, error: torch.Tensor, size: torch.Tensor, work: torch.Tensor, top: float, lowest: float
    ) -> None:
        """Mismatches, sums and relative errors of finite values; overwrites ``work``, and zeros of ``size``.

        Args:
            top: the largest of ``error``.
            lowest: the smallest of ``size``.
        """
        figures = self.figures
        self.sum_abs.add(error, top)
        torch.mul(size, self.rtol, out=work).add_(self.atol)
        figures.mismatched += int(torch.count_nonzero(error > work))
        if lowest == 0:
            size.masked_fill_(size == 0, math.inf)  # these are left out: error / infinity adds 0
        torch.div(error, size, out=work)
        largest = work.amax().item()
        figures.max_rel = _greater(figures.max_rel, largest)
        self.sum_rel.add(work, largest)

    def _against_finite_gold(
        self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor, work: torch.Tensor
    ) -> None:
        """Figures against gold of finite sides; overwrites all but ``gold``."""
        largest = _largest(gold)
        if not math.isfinite(largest):
            self._against_gold(reference, test, gold)
            return
        self.figures.gold_elements += gold.numel()
        self.figures.floor.add(reference.sub_(gold).abs_(), work=work)
        self.figures.error.add(test.sub_(gold).abs_(), work=work)
        self.figures.magnitude.add(gold, largest, work)

    def _count_nonfinite(self, reference: torch.Tensor, test: torch.Tensor) -> torch.Tensor:
        """Count NaN and infinities; returns where the two sides are equal, NaN with NaN included."""
        figures = self.figures
        nan_reference, nan_test = reference.isnan(), test.isnan()
        equal = (reference == test) | (nan_reference & nan_test)
        finite_reference, finite_test = reference.isfinite(), test.isfinite()
        if not bool(finite_reference.all() & finite_test.all()):
            figures.nan_reference += int(nan_reference.sum())
            figures.nan_test += int(nan_test.sum())
            figures.inf_reference += int((reference.isinf() & ~nan_reference).sum())
            figures.inf_test += int((test.isinf() & ~nan_test).sum())
            figures.nonfinite_mismatched += int((~equal & ~(finite_reference & finite_test)).sum())
        return equal

    def _ulp(self, reference: torch.Tensor, test: torch.Tensor) -> None:
        """Representable numbers between the sides, over elements finite on both; complex: the worse component."""
        if reference.dtype.is_complex:
            reference, test = torch.view_as_real(reference).reshape(-1), torch.view_as_real(test).reshape(-1)
        # float8 has no isfinite of its own
        finite = reference.to(torch.float64).isfinite() & test.to(torch.float64).isfinite()
        gap = formats.distance(formats.ordered(reference), formats.ordered(test))
        gap = gap if bool(finite.all()) else gap[finite]
        self.figures.max_ulp = max(self.figures.max_ulp or 0, formats.largest_unsigned(gap))

    def _sums(self, absolute: torch.Tensor, equal: torch.Tensor, reference: torch.Tensor, test: torch.Tensor) -> None:
        figures = self.figures
        size_reference, size_test = reference.abs(), test.abs()
        close = equal | ((absolute <= self.atol + self.rtol * size_reference) & absolute.isfinite())
        figures.mismatched += close.numel() - int(close.sum())
        top = absolute.max().item()
        self.errors.add(absolute, top)
        self.sum_abs.add(absolute, top)
        nonzero = size_reference != 0
        error, size = absolute, size_reference
        if not bool(nonzero.all()):  # picking by mask costs more than all the sums together
            error, size = error[nonzero], size[nonzero]
        relative = error / size
        if not bool(relative.isfinite().all()):
            relative = torch.where(error == 0, 0.0, torch.where(error.isinf(), math.inf, relative))
        figures.zero_reference += absolute.numel() - relative.numel()
        self.relative += relative.numel()
        if relative.numel():
            largest = relative.max().item()
            figures.max_rel = _greater(figures.max_rel, largest)
            self.sum_rel.add(relative, largest)
        finite = size_reference.isfinite() & size_test.isfinite()
        if not bool(finite.all()):
            reference, test = reference[finite], test[finite]
            size_reference, size_test = size_reference[finite], size_test[finite]
        self.left.add(size_reference)
        self.right.add(size_test)
        self.dot.add(reference, test, self.left.largest, self.right.largest)

    def _remember(self, offset: int, rank: torch.Tensor, top: float) -> None:
        """Keep the worst of the errors ``rank`` (no NaN; the largest is ``top``): of equal ones the lowest indices."""
        full = len(self.candidates) == self.keep
        if not self.keep or not top > (self.candidates[-1][0] if full else 0.0):
            return
        least = rank.topk(min(self.keep, rank.numel())).values[-1]
        indices = torch.cat([(rank > least).nonzero()[:, 0], (rank == least).nonzero()[: self.keep, 0]])
        for value, index in zip(rank[indices].tolist(), indices.tolist(), strict=True):
            if value > 0:
                self.candidates.append((value, offset + index))
        self._trim()

    def _trim(self) -> None:
        self.candidates.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        del self.candidates[self.keep :]

    def _count(self, error: torch.Tensor) -> None:
        if self.figures.histogram is not None:
            counts = torch.bincount(bins_of(error), minlength=BINS).tolist()
            self.figures.histogram = [mine + more for mine, more in zip(self.figures.histogram, counts, strict=True)]

    def _against_gold(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor) -> None:
        finite = reference.isfinite() & test.isfinite() & gold.isfinite()
        if not bool(finite.all()):
            reference, test, gold = reference[finite], test[finite], gold[finite]
        self.figures.gold_elements += gold.numel()
        self.figures.floor.add((reference - gold).abs())
        self.figures.error.add((test - gold).abs())
        self.figures.magnitude.add(gold.abs())

    def finish(self, reference: Side, test: Side) -> Figures:
        figures = self.figures
        if not self.integers:
            figures.max_abs = self.errors.maximum
        if not self.same_dtype:
            figures.bitwise_equal = False
        figures.rmse = self.errors.rms
        figures.reference_rms, figures.test_rms = self.left.rms, self.right.rms
        figures.mean_abs = self.sum_abs.mean(figures.elements, self.errors.maximum)
        figures.mean_rel = self.sum_rel.mean(self.relative, figures.max_rel)
        figures.cosine = self.dot.cosine(self.left, self.right)
        figures.snr_db = decibel(self.left, self.errors)
        for error, flat in self.candidates:
            index = unravel(flat, self.shape)
            sides = self.known.get(flat) or (region(reference, [*index]).item(), region(test, [*index]).item())
            figures.worst.append(Worst(index, *sides, error))
        return figures
