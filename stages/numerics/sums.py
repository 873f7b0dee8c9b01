"""Sums that neither overflow nor vanish: norms, inner products and what follows from them, kept in float64."""

import math

import numpy

TINY, HUGE = 1e-140, 1e140
"""Between these the largest of 1e28 float64 values can be squared and summed as it is: the sum stays below 1e308, and
what underflows is below 1e-28 of it. Outside, every value is divided by the scale first."""

_ONES = numpy.ones(1 << 13)


def largest(values: numpy.ndarray) -> float:
    """The largest of 1-D float64 values, at least one; NaN where there is one."""
    return values.item(values.argmax())


def greater(left: float, right: float) -> float:
    """The greater, NaN where either is."""
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


class Spread:
    """Maximum and RMS of absolute values, accumulated with a running scale (LAPACK's ``lassq``).

    Attributes:
        count, largest: how many were added, and the largest that is not NaN.
        nan: one of them was NaN.
        scale, squares: the finite ones' squares add up to ``squares * scale**2``, which may overflow.
    """

    count, largest, scale, squares, nan = 0, 0.0, 0.0, 0.0, False

    def add(self, values: numpy.ndarray, top: float | None = None) -> None:
        """Add the absolute values of real float64 ``values``. NaN makes every figure NaN.

        Args:
            values: 1-D, non-negative where ``top`` is not given.
            top: the largest absolute value of ``values``, where the caller knows it.
        """
        if top is None:
            if not values.size:
                return
            top = largest(values)
        if TINY < top < HUGE:
            self.merge(values.size, top, float(values.dot(values)))
            return
        self.merge(values.size, top, 0.0)
        if 0 < top < math.inf:
            scaled = values / self.scale
            self.squares += float(scaled.dot(scaled))

    def merge(self, count: int, top: float, squares: float) -> None:
        """Add values known by their number, their largest and the sum of their squares (between TINY and HUGE)."""
        self.count += count
        if top > self.largest:
            self.largest = top
        elif top != top:
            self.nan = True
        if 0 < top < math.inf:
            if top > self.scale:
                self.squares *= (self.scale / top) ** 2
                self.scale = top
            self.squares += squares / self.scale / self.scale

    @property
    def maximum(self) -> float:
        return math.nan if self.nan else self.largest

    @property
    def rms(self) -> float:
        if self.nan or math.isinf(self.largest) or not self.count:
            return self.maximum
        return min(self.largest, self.scale * math.sqrt(self.squares / self.count))


class Total:
    """Sum of non-negative values of which only the mean need be a float64."""

    UNIT = 2.0**600
    """What values are divided by where one is HUGE."""

    _sum, _units = 0.0, 0.0

    def add(self, values: numpy.ndarray, top: float) -> None:
        """Add float64 ``values``, of which ``top`` is the largest."""
        if top < HUGE:
            ones = _ONES[: values.size]  # of few elements BLAS takes a third of the time of NumPy's sum
            self._sum += float(values.dot(ones) if len(ones) == values.size else numpy.add.reduce(values))
        else:
            self._units += float(numpy.add.reduce(values / self.UNIT))

    def merge(self, value: float) -> None:
        """Add values known by their sum."""
        self._sum += value

    def mean(self, count: int, largest: float) -> float:
        """The mean of ``count`` values, not above the largest of them, beyond which rounding may carry it."""
        if not count:
            return 0.0
        mean = self._sum / count + self._units / count * self.UNIT
        return largest if mean > largest else mean


class Dot:
    """Inner product with a running scale for each side."""

    value, left, right = 0.0, 0.0, 0.0

    def add(self, left: numpy.ndarray, right: numpy.ndarray, scale_left: float, scale_right: float) -> None:
        """Add Re(left · conj(right)).

        Args:
            left, right: float64 or complex128, 1-D, of one shape.
            scale_left, scale_right: the largest magnitudes so far.
        """
        if scale_left == 0 or scale_right == 0 or not left.size:
            return
        if left.dtype == right.dtype == float and TINY < scale_left < HUGE and TINY < scale_right < HUGE:
            self.merge(float(left.dot(right)), scale_left, scale_right)
            return
        self.merge(0.0, scale_left, scale_right)
        self.value += float(numpy.vdot(right / scale_right, left / scale_left).real)

    def merge(self, value: float, scale_left: float, scale_right: float) -> None:
        """Add an inner product; the scales are the largest magnitudes so far."""
        if scale_left == 0 or scale_right == 0:
            return
        self.value *= (self.left / scale_left) * (self.right / scale_right)
        self.left, self.right = scale_left, scale_right
        self.value += value / scale_left / scale_right

    def cosine(self, left: Spread, right: Spread) -> float:
        """Cosine of the angle between the sides; two zero vectors have 1, a zero and another 0, nothing NaN."""
        if not left.count:
            return math.nan
        if left.largest == 0 or right.largest == 0:
            return 1.0 if left.largest == right.largest else 0.0
        value = self.value * (self.left / left.scale) * (self.right / right.scale)
        value /= math.sqrt(left.squares) * math.sqrt(right.squares)
        return max(-1.0, min(1.0, value))


def decibel(signal: Spread, noise: Spread) -> float:
    """20 log10(norm(signal) / norm(noise)): infinite without noise, -infinite without signal."""
    if signal.nan or noise.nan:
        return math.nan
    if noise.largest == 0:
        return math.inf
    if signal.largest == 0 or math.isinf(noise.largest):
        return -math.inf
    norm, norm_noise = math.sqrt(signal.squares), math.sqrt(noise.squares)
    return 20 * (math.log10(norm) - math.log10(norm_noise) + math.log10(signal.scale) - math.log10(noise.scale))
