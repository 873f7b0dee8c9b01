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
    """Maximum and RMS of absolute values, accumulated with a running scale (LAPACK's ``lassq``)."""

    __slots__ = ("_nan", "_scale", "_squares", "count", "largest")

    def __init__(self) -> None:
        self.count, self.largest, self._scale, self._squares, self._nan = 0, 0.0, 0.0, 0.0, False

    def add(self, values: numpy.ndarray, top: float | None = None) -> None:
        """Add the absolute values of real float64 ``values``. NaN makes every figure NaN.

        Args:
            values: 1-D, non-negative where ``top`` is not given.
            top: the largest absolute value of ``values``, where the caller knows it.
        """
        if not values.size:
            return
        top = largest(values) if top is None else top
        if TINY < top < HUGE:
            self.merge(values.size, top, float(numpy.dot(values, values)))
            return
        self.merge(values.size, top, 0.0)
        if 0 < top < math.inf:
            scaled = values / self._scale
            self._squares += float(numpy.dot(scaled, scaled))

    def merge(self, count: int, top: float, squares: float) -> None:
        """Add values known by their number, their largest and the sum of their squares (between TINY and HUGE)."""
        self.count += count
        if math.isnan(top):
            self._nan = True
        elif top > self.largest:
            self.largest = top
        if 0 < top < math.inf:
            if top > self._scale:
                self._squares *= (self._scale / top) ** 2
                self._scale = top
            self._squares += squares / self._scale / self._scale

    @property
    def maximum(self) -> float:
        return math.nan if self._nan else self.largest

    @property
    def scaled(self) -> tuple[float, float]:
        """The square root of the sum of finite squares as a factor and a scale, whose product may overflow."""
        return math.sqrt(self._squares), self._scale

    @property
    def rms(self) -> float:
        if self._nan or math.isinf(self.largest) or not self.count:
            return self.maximum
        return min(self.largest, self._scale * math.sqrt(self._squares / self.count))


class Total:
    """Sum of non-negative values of which only the mean need be a float64."""

    UNIT = 2.0**600
    """What values are divided by where one is HUGE."""

    def __init__(self) -> None:
        self._sum, self._units = 0.0, 0.0

    def add(self, values: numpy.ndarray, top: float) -> None:
        """Add float64 ``values``, of which ``top`` is the largest."""
        if top < HUGE:
            ones = _ONES[: values.size]  # of few elements BLAS takes a third of the time of NumPy's sum
            self._sum += float(numpy.dot(values, ones) if len(ones) == values.size else numpy.add.reduce(values))
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
        return mean if math.isnan(mean) or math.isnan(largest) else min(mean, largest)


class Dot:
    """Inner product with a running scale for each side."""

    def __init__(self) -> None:
        self.value, self.left, self.right = 0.0, 0.0, 0.0

    def add(self, left: numpy.ndarray, right: numpy.ndarray, scale_left: float, scale_right: float) -> None:
        """Add Re(left · conj(right)).

        Args:
            left, right: float64 or complex128, 1-D, of one shape.
            scale_left, scale_right: the largest magnitudes so far.
        """
        if scale_left == 0 or scale_right == 0 or not left.size:
            return
        if left.dtype == right.dtype == float and TINY < scale_left < HUGE and TINY < scale_right < HUGE:
            self.merge(float(numpy.dot(left, right)), scale_left, scale_right)
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
        (norm_left, scale_left), (norm_right, scale_right) = left.scaled, right.scaled
        value = self.value * (self.left / scale_left) * (self.right / scale_right) / (norm_left * norm_right)
        return max(-1.0, min(1.0, value))


def decibel(signal: Spread, noise: Spread) -> float:
    """20 log10(norm(signal) / norm(noise)): infinite without noise, -infinite without signal."""
    if math.isnan(signal.maximum) or math.isnan(noise.maximum):
        return math.nan
    if noise.largest == 0:
        return math.inf
    if signal.largest == 0 or math.isinf(noise.largest):
        return -math.inf
    (norm, scale), (norm_noise, scale_noise) = signal.scaled, noise.scaled
    return 20 * (math.log10(norm) - math.log10(norm_noise) + math.log10(scale) - math.log10(scale_noise))
