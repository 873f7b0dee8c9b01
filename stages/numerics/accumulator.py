"""The figures of one tensor against another as running sums over pieces of them, on the host.

Values are widened to float64 (complex to complex128) a piece at a time. Sums are kept in float64 with a running scale,
so that values near 1e300 and errors near 1e-300 neither overflow nor vanish. Integers are compared exactly.

Pieces of real numbers that are all finite take a short way through five buffers that are used again for every piece;
of integers those that float64 holds exactly. All others (complex, NaN, infinities, integers from 2**53) take the
general way. Both give the same figures. The arithmetic is NumPy's, whose calls cost a third of torch's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch

from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.boxes import Place
from inductor_debug.stages.numerics.device.device_figures import DeviceFigures
from inductor_debug.stages.numerics.histogram import BINS, bins_of
from inductor_debug.stages.numerics.readers import Side
from inductor_debug.stages.numerics.sums import Dot, Spread, Total, decibel, greater, largest
from inductor_debug.stages.numerics.worst import NONE, Candidate, WorstFirst

Number = bool | int | float | complex


NOTHING = Spread()
"""Of no elements: never added to."""


@dataclass(init=False)
class Figures:
    """What one pass found. See ``TensorComparison`` for the meaning of the fields they share.

    One is made for every tensor: what is not set is the class's own.
    """

    elements: int
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
    worst: WorstFirst = NONE
    gold_elements: int = 0
    floor: Spread = NOTHING
    error: Spread = NOTHING
    magnitude: Spread = NOTHING
    histogram: list[int] | None = None

    def __init__(self, elements: int) -> None:
        self.elements = elements


_NONFINITE = {
    "nan_reference": "nan_left", "nan_test": "nan_right", "inf_reference": "inf_left", "inf_test": "inf_right",
    "nonfinite_mismatched": "beyond",
}  # fmt: skip
"""Counts of what is not finite among the figures → columns of a pass on a device."""


_NO_BUFFERS = numpy.empty((5, 0))


class Accumulator:
    """Running sums over pieces.

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
        self.same_dtype, self.integers, self.numbers = formats.kinds(reference.dtype, test.dtype)
        self.figures = Figures(reference.numel())
        if self.same_dtype and not self.integers:
            self.figures.max_ulp = 0
        self.errors = Spread()
        self.sum_abs, self.sum_rel, self.relative = Total(), Total(), 0
        self.left, self.right, self.dot = Spread(), Spread(), Dot()
        self.candidates: list[Candidate] = []
        if histogram:
            self.figures.histogram = [0] * BINS
        self.short = 0 <= atol < math.inf and 0 <= rtol < math.inf
        self.buffers = _NO_BUFFERS

    def add(self, place: Place, pieces: Sequence[torch.Tensor]) -> None:
        """Add a piece of the reference, of the test and, where there is one, of gold: on the host, of any strides."""
        values = [formats.array(piece) for piece in pieces]
        real = complex not in self.numbers and values[-1].dtype.kind != "c"
        if not (self.short and real and self._add_finite(place, pieces, values)):
            self._add_any(place, pieces, values)

    def _add_any(self, place: Place, pieces: Sequence[torch.Tensor], values: Sequence[numpy.ndarray]) -> None:
        """The general way."""
        wide = [side.astype(complex if side.dtype.kind == "c" else float) for side in values]
        reference, test = wide[0], wide[1]
        if self.integers:
            gap = formats.distance(*(formats.exact_integers(piece.detach().reshape(-1)) for piece in pieces[:2]))
            self.figures.max_abs = max(self.figures.max_abs, formats.largest_unsigned(gap))
            absolute, equal = formats.unsigned_to_float64(gap).numpy(), (gap == 0).numpy()
            self.figures.bitwise_equal &= bool(equal.all())
        else:
            equal = self._count_nonfinite(reference, test)
            if self.same_dtype:
                self._bits(pieces, values)
            absolute = numpy.where(equal, 0.0, formats.modulus(test - reference))
        self._sums(absolute, equal, reference, test)
        self._count(absolute)
        rank = numpy.where(numpy.isnan(absolute), math.inf, absolute)
        self._remember(place, rank, largest(rank), values)
        if len(wide) > 2:
            self._against_gold(reference, test, wide[2])

    def merge(self, found: DeviceFigures, count: int, *, gold: bool) -> None:
        """Add what a pass on a device found of ``count`` elements: floats, or integers as the floats that they are."""
        figures, sums, top = self.figures, found.sums, found.top
        finite, zeros, undefined = sums["finite"], sums["zeros"], sums["nan_rel"]
        figures.mismatched += int(sums["mismatched"])
        figures.zero_reference += int(zeros)
        if finite < count:
            for mine, theirs in _NONFINITE.items():
                setattr(figures, mine, getattr(figures, mine) + int(sums[theirs]))
        if self.integers:
            figures.max_abs = max(figures.max_abs, int(top))
            figures.bitwise_equal = figures.bitwise_equal and top == 0
        elif self.same_dtype:
            figures.bitwise_equal = figures.bitwise_equal and sums["unlike_lanes"] == 0
            figures.max_ulp = max(figures.max_ulp or 0, int(sums["ulp"]))
        self.sum_abs.merge(sums["sum_abs"])
        self.relative += count - int(zeros)
        self.sum_rel.merge(math.nan if undefined else sums["sum_rel"])
        figures.max_rel = greater(figures.max_rel, math.nan if undefined else sums["top_rel"])
        self.errors.merge(count, math.nan if math.isnan(sums["sum_abs"]) else top, sums["squares"])
        self.left.merge(int(finite), sums["top_left"], sums["left"])
        self.right.merge(int(finite), sums["top_right"], sums["right"])
        self.dot.merge(sums["dot"], self.left.largest, self.right.largest)
        if gold:
            self._take_gold()
            figures.gold_elements += int(sums["in_gold"])
            for name in ("floor", "error"):
                getattr(figures, name).merge(int(sums["in_gold"]), sums[f"top_{name}"], sums[name])
            figures.magnitude.merge(int(sums["in_gold"]), sums["top_gold"], sums["magnitude"])
        if figures.histogram is not None:
            figures.histogram = [mine + more for mine, more in zip(figures.histogram, found.histogram, strict=True)]
        self._found(found.worst)

    def whole(self, found: DeviceFigures) -> Figures:
        """What :meth:`merge` and :meth:`finish` give for the one pass over everything, in a fraction of their time.

        Every value must have been finite, and no square beyond float64's range.
        """
        figures, sums, top, sqrt = self.figures, found.sums, found.top, math.sqrt
        count, zeros = figures.elements, int(sums["zeros"])
        left, right, top_left, top_right = sums["left"], sums["right"], sums["top_left"], sums["top_right"]
        figures.mismatched, figures.zero_reference = int(sums["mismatched"]), zeros
        figures.max_rel = sums["top_rel"]
        figures.mean_abs = min(sums["sum_abs"] / count, top)
        figures.mean_rel = min(sums["sum_rel"] / (count - zeros), sums["top_rel"]) if count > zeros else 0.0
        figures.rmse = min(sqrt(sums["squares"] / count), top)
        figures.reference_rms, figures.test_rms = min(sqrt(left / count), top_left), min(sqrt(right / count), top_right)
        if top_left and top_right:
            figures.cosine = max(-1.0, min(1.0, sums["dot"] / (sqrt(left) * sqrt(right))))
        else:
            figures.cosine = 1.0 if top_left == top_right else 0.0
        figures.snr_db = 10 * math.log10(left / sums["squares"]) if top and top_left else -math.inf if top else math.inf
        figures.max_abs, figures.bitwise_equal = top, top == 0
        if self.integers:
            figures.max_abs = int(top)
        elif self.same_dtype:
            figures.max_ulp, figures.bitwise_equal = int(sums["ulp"]), sums["unlike_lanes"] == 0
        self._found(found.worst)
        if self.candidates:
            figures.worst = WorstFirst(self.shape, self.candidates)
        return figures

    def _found(self, worst: list[Candidate]) -> None:
        """Take in the worst elements of a pass on a device, as numbers of the sides' own kind."""
        left, right = self.numbers
        if not (left is right is float):
            worst = [(error, index, left(value), right(other)) for error, index, value, other in worst]
        self.candidates += worst
        if len(self.candidates) > len(worst) or len(worst) > self.keep:
            self._trim()

    def _add_finite(self, place: Place, pieces: Sequence[torch.Tensor], values: Sequence[numpy.ndarray]) -> bool:
        """The short way. False, with nothing added, where a value, or a difference, is not finite or not exact."""
        count = values[0].size
        if self.buffers.shape[1] < count:
            self.buffers = numpy.empty((5, count))
        reference, test, error, size, work = self.buffers[:, :count]
        reference[...], test[...] = values[0], values[1]
        numpy.subtract(test, reference, out=error)
        numpy.abs(error, out=error)
        top = largest(error)
        highest, top_test = largest(numpy.abs(reference, out=size)), largest(numpy.abs(test, out=work))
        if not math.isfinite(top):  # a difference is finite only where both sides are
            return False
        if self.integers and not max(highest, top_test) < formats.EXACT:
            return False
        figures, lowest = self.figures, size.item(size.argmin())
        nonzero = count if lowest > 0 else int(numpy.count_nonzero(size != 0))
        figures.zero_reference += count - nonzero
        self.relative += nonzero
        self.errors.add(error, top)
        self.left.add(reference, highest)
        self.right.add(test, top_test)
        self.dot.add(reference, test, self.left.largest, self.right.largest)
        self._count(error)
        if top > 0:
            self._add_different(error, size, work, top, lowest)
            self._remember(place, error, top, values)
        if self.integers:
            figures.max_abs = max(figures.max_abs, int(top))
            figures.bitwise_equal = figures.bitwise_equal and top == 0
        elif self.same_dtype:
            if top > 0:
                figures.bitwise_equal = False
                figures.max_ulp = max(figures.max_ulp or 0, formats.finite_distance(pieces, values))
            elif figures.bitwise_equal:  # zeros of both signs are equal, but not their bits
                figures.bitwise_equal = values[0].tobytes() == values[1].tobytes()
        if len(values) > 2:
            size[...] = values[2]
            self._against_finite_gold(reference, test, size, work)
        return True

    def _add_different(
        self, error: numpy.ndarray, size: numpy.ndarray, work: numpy.ndarray, top: float, lowest: float
    ) -> None:
        """Mismatches, sums and relative errors of finite values; overwrites ``work``, and zeros of ``size``.

        Args:
            top: the largest of ``error``.
            lowest: the smallest of ``size``.
        """
        figures = self.figures
        self.sum_abs.add(error, top)
        if top > self.atol + self.rtol * lowest:  # else no element can be beyond the tolerance
            numpy.multiply(size, self.rtol, out=work)
            work += self.atol
            figures.mismatched += int(numpy.count_nonzero(error > work))
        if lowest == 0:
            size[size == 0] = math.inf  # these are left out: error / infinity adds 0
        highest = largest(numpy.divide(error, size, out=work))
        figures.max_rel = greater(figures.max_rel, highest)
        self.sum_rel.add(work, highest)

    def _against_finite_gold(
        self, reference: numpy.ndarray, test: numpy.ndarray, gold: numpy.ndarray, work: numpy.ndarray
    ) -> None:
        """Figures against gold of finite sides; overwrites all but ``gold``."""
        highest = largest(numpy.abs(gold, out=work))
        if not math.isfinite(highest):
            self._against_gold(reference, test, gold)
            return
        self._take_gold()
        self.figures.gold_elements += gold.size
        for spread, side in ((self.figures.floor, reference), (self.figures.error, test)):
            numpy.subtract(side, gold, out=side)
            spread.add(side, largest(numpy.abs(side, out=work)))
        self.figures.magnitude.add(gold, highest)

    def _take_gold(self) -> None:
        """Make room for figures against gold."""
        if self.figures.floor is NOTHING:
            self.figures.floor, self.figures.error, self.figures.magnitude = Spread(), Spread(), Spread()

    def _count_nonfinite(self, reference: numpy.ndarray, test: numpy.ndarray) -> numpy.ndarray:
        """Count NaN and infinities; returns where the two sides are equal, NaN with NaN included."""
        figures = self.figures
        nan_reference, nan_test = numpy.isnan(reference), numpy.isnan(test)
        equal = (reference == test) | (nan_reference & nan_test)
        finite = numpy.isfinite(reference) & numpy.isfinite(test)
        if not finite.all():
            figures.nan_reference += int(numpy.count_nonzero(nan_reference))
            figures.nan_test += int(numpy.count_nonzero(nan_test))
            figures.inf_reference += int(numpy.count_nonzero(numpy.isinf(reference) & ~nan_reference))
            figures.inf_test += int(numpy.count_nonzero(numpy.isinf(test) & ~nan_test))
            figures.nonfinite_mismatched += int(numpy.count_nonzero(~equal & ~finite))
        return equal

    def _bits(self, pieces: Sequence[torch.Tensor], values: Sequence[numpy.ndarray]) -> None:
        """Equality of bits but for NaN on both sides, and representable numbers between what is finite on both.

        Of complex numbers each component counts.
        """
        figures, values = self.figures, [numpy.ascontiguousarray(side) for side in values[:2]]
        parts = [side.view(side.real.dtype) for side in values]
        left, right = formats.bits(pieces[0], values[0]), formats.bits(pieces[1], values[1])
        neither = numpy.isnan(values[0]) & numpy.isnan(values[1])
        unlike = (left != right).reshape(len(neither), -1).any(1) & ~neither
        figures.bitwise_equal = figures.bitwise_equal and not unlike.any()
        finite = numpy.isfinite(parts[0]) & numpy.isfinite(parts[1])
        if finite.any():
            distance = formats.largest_distance(left[finite], right[finite])
            figures.max_ulp = max(figures.max_ulp or 0, distance)

    def _sums(
        self, absolute: numpy.ndarray, equal: numpy.ndarray, reference: numpy.ndarray, test: numpy.ndarray
    ) -> None:
        figures = self.figures
        size_reference, size_test = formats.modulus(reference), formats.modulus(test)
        close = equal | ((absolute <= self.atol + self.rtol * size_reference) & numpy.isfinite(absolute))
        figures.mismatched += close.size - int(numpy.count_nonzero(close))
        top = largest(absolute)
        self.errors.add(absolute, top)
        self.sum_abs.add(absolute, top)
        nonzero = size_reference != 0
        error, size = absolute[nonzero], size_reference[nonzero]
        relative = error / size
        relative = numpy.where(error == 0, 0.0, numpy.where(numpy.isinf(error), math.inf, relative))
        figures.zero_reference += absolute.size - relative.size
        self.relative += relative.size
        if relative.size:
            highest = largest(relative)
            figures.max_rel = greater(figures.max_rel, highest)
            self.sum_rel.add(relative, highest)
        finite = numpy.isfinite(size_reference) & numpy.isfinite(size_test)
        reference, test = reference[finite], test[finite]
        self.left.add(size_reference[finite])
        self.right.add(size_test[finite])
        self.dot.add(reference, test, self.left.largest, self.right.largest)

    def _remember(self, place: Place, rank: numpy.ndarray, top: float, values: Sequence[numpy.ndarray]) -> None:
        """Keep the worst of the errors ``rank`` (no NaN; the largest is ``top``): of equal ones the lowest indices."""
        full = len(self.candidates) == self.keep
        if not self.keep or top == 0 or (full and (-top, place.first) > self.candidates[-1][:2]):
            return
        least = 0.0
        if rank.size > self.keep:
            ranked = rank.copy()
            ranked.partition(-self.keep)
            least = ranked.item(-self.keep)
        (chosen,) = (rank >= least if least > 0 else rank > 0).nonzero()
        errors, indices = -rank.take(chosen), place.flat(chosen)
        if len(chosen) > self.keep:
            ordered = place.steps == (1,)  # then equal errors keep the order that they are in
            first = (errors.argsort(kind="stable") if ordered else numpy.lexsort((indices, errors)))[: self.keep]
            chosen, errors, indices = chosen.take(first), errors.take(first), indices.take(first)
        left, right = values[0].take(chosen), values[1].take(chosen)
        self.candidates += zip(errors.tolist(), indices.tolist(), left.tolist(), right.tolist(), strict=True)
        self._trim()

    def _trim(self) -> None:
        self.candidates.sort()
        del self.candidates[self.keep :]

    def _count(self, error: numpy.ndarray) -> None:
        if self.figures.histogram is not None:
            counts = torch.bincount(bins_of(torch.from_numpy(error)), minlength=BINS).tolist()
            self.figures.histogram = [mine + more for mine, more in zip(self.figures.histogram, counts, strict=True)]

    def _against_gold(self, reference: numpy.ndarray, test: numpy.ndarray, gold: numpy.ndarray) -> None:
        finite = numpy.isfinite(reference) & numpy.isfinite(test) & numpy.isfinite(gold)
        reference, test, gold = reference[finite], test[finite], gold[finite]
        self._take_gold()
        self.figures.gold_elements += gold.size
        self.figures.floor.add(formats.modulus(reference - gold))
        self.figures.error.add(formats.modulus(test - gold))
        self.figures.magnitude.add(formats.modulus(gold))

    def finish(self) -> Figures:
        """All figures of what was added."""
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
        if self.candidates:
            figures.worst = WorstFirst(self.shape, self.candidates)
        return figures
