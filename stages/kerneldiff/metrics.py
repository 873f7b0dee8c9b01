"""Every figure of one tensor against another, in one pass, chunk by chunk, on the tensors' own device.

Floats are widened to float64 (complex to complex128) a chunk at a time, and sums are kept in float64 with a running
scale, so that values near 1e300 and errors near 1e-300 neither overflow nor vanish. Integers are compared as integers.
Extra memory is bounded by :data:`CHUNK` elements, whatever the tensors' size and strides.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from stages.kerneldiff import formats

CHUNK = 1 << 18
"""Elements handled at a time: 2 MiB a float64 temporary."""

Number = bool | int | float | complex


@dataclass
class Worst:
    """One element among the worst: its index, and what each side holds there."""

    index: list[int]
    reference: Number
    test: Number
    error: float


class Spread:
    """Maximum and RMS of absolute values, accumulated with a running scale (LAPACK's ``lassq``)."""

    def __init__(self) -> None:
        self.count, self.largest, self._scale, self._squares, self._nan = 0, 0.0, 0.0, 0.0, False

    def add(self, absolute: torch.Tensor) -> None:
        """Add non-negative float64 values. NaN makes every figure NaN."""
        if not absolute.numel():
            return
        self.count += absolute.numel()
        top = absolute.max().item()
        if math.isnan(top):
            self._nan = True
        elif top > self.largest:
            self.largest = top
        if 0 < top < math.inf:
            if top > self._scale:
                self._squares *= (self._scale / top) ** 2
                self._scale = top
            self._squares += (absolute / self._scale).square_().sum().item()

    @property
    def maximum(self) -> float:
        return math.nan if self._nan else self.largest

    @property
    def norm(self) -> float:
        """Square root of the sum of squares."""
        if self._nan or math.isinf(self.largest):
            return self.maximum
        return self._scale * math.sqrt(self._squares)

    @property
    def rms(self) -> float:
        return self.norm / math.sqrt(self.count) if self.count else 0.0


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
    worst: list[Worst] = field(default_factory=list)
    gold_elements: int = 0
    floor: Spread = field(default_factory=Spread)
    error: Spread = field(default_factory=Spread)
    magnitude: Spread = field(default_factory=Spread)


def chunks(tensors: list[torch.Tensor], limit: int = CHUNK) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Equal-shaped tensors as (flat offset, 1-D pieces) in row-major order; only a piece is ever made contiguous."""
    yield from _split(tensors, limit, 0)


def _split(tensors: list[torch.Tensor], limit: int, offset: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
    first = tensors[0]
    if first.numel() == 0:
        return
    if first.numel() <= limit:
        yield offset, [tensor.reshape(-1) for tensor in tensors]
        return
    axis = next(index for index, size in enumerate(first.shape) if size > 1)
    row = first.numel() // first.shape[axis]
    step = max(1, limit // row)
    for start in range(0, first.shape[axis], step):
        length = min(step, first.shape[axis] - start)
        pieces = [tensor.narrow(axis, start, length) for tensor in tensors]
        yield from _split(pieces, limit, offset + start * row)


def measure(
    reference: torch.Tensor,
    test: torch.Tensor,
    gold: torch.Tensor | None,
    *,
    rtol: float,
    atol: float,
    worst: int = 8,
    limit: int = CHUNK,
) -> Figures:
    """All figures of ``test`` against ``reference`` (equal shapes, any dtypes and devices).

    Where both hold NaN, or the same infinity, the element is equal and adds no error. Where only one side holds NaN
    the error is NaN, where only one side is infinite it is infinite. Figures against gold (``floor``, ``error``,
    ``magnitude``) leave out elements that are not finite in all three.
    """
    accumulator = _Accumulator(reference, test, rtol, atol, worst)
    tensors = [reference, test] + ([gold] if gold is not None else [])
    for offset, pieces in chunks([tensor.detach() for tensor in tensors], limit):
        accumulator.add(offset, [piece.to(reference.device).resolve_conj().resolve_neg() for piece in pieces])
    return accumulator.finish()


def _widen(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.complex128 if values.dtype.is_complex else torch.float64)


class _Accumulator:
    """Running sums over chunks."""

    def __init__(self, reference: torch.Tensor, test: torch.Tensor, rtol: float, atol: float, worst: int) -> None:
        self.shape, self.rtol, self.atol, self.keep = reference.shape, rtol, atol, worst
        self.same_dtype = reference.dtype == test.dtype
        self.integers = not (formats.is_inexact(reference.dtype) or formats.is_inexact(test.dtype))
        self.figures = Figures(elements=reference.numel())
        if self.same_dtype and not self.integers:
            self.figures.max_ulp = 0
        self.errors = Spread()
        self.sum_abs, self.sum_rel, self.relative = 0.0, 0.0, 0
        self.left, self.right, self.dot = Spread(), Spread(), _Dot()
        self.candidates: list[tuple[float, int, Number, Number]] = []

    def add(self, offset: int, pieces: list[torch.Tensor]) -> None:
        reference, test = pieces[0], pieces[1]
        if self.integers:
            gap = formats.distance(formats.exact_integers(reference), formats.exact_integers(test))
            self.figures.max_abs = max(self.figures.max_abs, formats.largest_unsigned(gap))
            self.figures.bitwise_equal &= not bool(gap.any())
            absolute, equal = formats.unsigned_to_float64(gap), gap == 0
            wide_reference, wide_test = _widen(reference), _widen(test)
        else:
            wide_reference, wide_test = _widen(reference), _widen(test)
            equal = self._count_nonfinite(wide_reference, wide_test)
            if self.same_dtype:
                both_nan = wide_reference.isnan() & wide_test.isnan()
                self.figures.bitwise_equal &= bool((formats.same_bits(reference, test) | both_nan).all())
                self._ulp(reference, test)
            absolute = (wide_test - wide_reference).abs()
            absolute = torch.where(equal, 0.0, absolute)
        self._sums(absolute, equal, wide_reference, wide_test)
        self._remember(offset, absolute, reference, test)
        if len(pieces) > 2:
            self._against_gold(wide_reference, wide_test, _widen(pieces[2]))

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
        self.errors.add(absolute)
        self.sum_abs += absolute.sum().item()
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
            top = relative.max().item()
            figures.max_rel = top if math.isnan(top) else max(figures.max_rel, top)
            self.sum_rel += relative.sum().item()
        finite = size_reference.isfinite() & size_test.isfinite()
        if not bool(finite.all()):
            reference, test = reference[finite], test[finite]
            size_reference, size_test = size_reference[finite], size_test[finite]
        self.left.add(size_reference)
        self.right.add(size_test)
        self.dot.add(reference, test, self.left.largest, self.right.largest)

    def _remember(self, offset: int, absolute: torch.Tensor, reference: torch.Tensor, test: torch.Tensor) -> None:
        if not self.keep:
            return
        rank = torch.where(absolute.isnan(), math.inf, absolute)
        values, indices = rank.topk(min(self.keep, rank.numel()))
        for value, index in zip(values.tolist(), indices.tolist(), strict=True):
            if value > 0 and (len(self.candidates) < self.keep or value > self.candidates[-1][0]):
                self.candidates.append((value, offset + index, reference[index].item(), test[index].item()))
        self.candidates.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        del self.candidates[self.keep :]

    def _against_gold(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor) -> None:
        finite = reference.isfinite() & test.isfinite() & gold.isfinite()
        if not bool(finite.all()):
            reference, test, gold = reference[finite], test[finite], gold[finite]
        self.figures.gold_elements += gold.numel()
        self.figures.floor.add((reference - gold).abs())
        self.figures.error.add((test - gold).abs())
        self.figures.magnitude.add(gold.abs())

    def finish(self) -> Figures:
        figures = self.figures
        if not self.integers:
            figures.max_abs = self.errors.maximum
        if not self.same_dtype:
            figures.bitwise_equal = False
        figures.rmse = self.errors.rms
        figures.reference_rms = self.left.rms
        figures.mean_abs = self.sum_abs / figures.elements if figures.elements else 0.0
        figures.mean_rel = self.sum_rel / self.relative if self.relative else 0.0
        figures.cosine = self.dot.cosine(self.left, self.right)
        figures.snr_db = _decibel(self.left.norm, self.errors.norm)
        figures.worst = [
            Worst(_unravel(flat, self.shape), reference, test, error)
            for error, flat, reference, test in self.candidates
        ]
        return figures


class _Dot:
    """Inner product with a running scale for each side."""

    def __init__(self) -> None:
        self.value, self.left, self.right = 0.0, 0.0, 0.0

    def add(self, left: torch.Tensor, right: torch.Tensor, scale_left: float, scale_right: float) -> None:
        """Add Re(left · conj(right)); the scales are the largest magnitudes so far."""
        if scale_left == 0 or scale_right == 0 or not left.numel():
            return
        self.value *= (self.left / scale_left) * (self.right / scale_right)
        self.left, self.right = scale_left, scale_right
        product = (left / scale_left) * (right / scale_right).conj()
        self.value += (product.real if product.is_complex() else product).sum().item()

    def cosine(self, left: Spread, right: Spread) -> float:
        """Cosine of the angle between the sides; two zero vectors have 1, a zero and another 0, nothing NaN."""
        if not left.count:
            return math.nan
        if left.norm == 0 or right.norm == 0:
            return 1.0 if left.norm == right.norm else 0.0
        value = self.value / ((left.norm / self.left) * (right.norm / self.right))
        return max(-1.0, min(1.0, value))


def _decibel(signal: float, noise: float) -> float:
    """20 log10(signal / noise): infinite without noise, -infinite without signal."""
    if math.isnan(signal) or math.isnan(noise):
        return math.nan
    if noise == 0:
        return math.inf
    if signal == 0 or math.isinf(noise):
        return -math.inf
    return 20 * (math.log10(signal) - math.log10(noise))


def _unravel(flat: int, shape: torch.Size) -> list[int]:
    index = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return index[::-1]
