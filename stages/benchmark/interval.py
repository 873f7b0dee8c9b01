"""95 % intervals that cover the spread between processes.

Processes differ in where their memory lies, where their threads run and the machine's state. The samples within one
process do not show that. So one figure a process is averaged: the logarithm of a median, or of a ratio of medians. Its
interval is Student's t with one degree of freedom less than there are processes. Of 5 processes it covers 95 % where
those logarithms are normal, and was simulated to cover that where a tenth of them are outliers. A bootstrap in two
levels, processes and then samples, covered 83 % where processes differ by 10 %
(``tests/stages/benchmark/test_benchmark_interval.py``).
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    """A geometric mean over processes with its 95 % interval; ``low`` and ``high`` are None of one process."""

    value: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half the width relative to the value: 0.02 where the ends are the value times and over 1.02."""
        return None if self.low is None or self.high is None else math.sqrt(self.high / self.low) - 1

    @property
    def ends(self) -> list[float] | None:
        """Both ends; None where there are none."""
        return None if self.low is None or self.high is None else [self.low, self.high]


def over_processes(values: Sequence[float]) -> Interval:
    """The geometric mean of one positive figure a process, and its t-interval on logarithms."""
    logarithms = [math.log(value) for value in values]
    center = fmean(logarithms)
    if len(values) < 2:
        return Interval(math.exp(center), None, None)
    half = t_quantile(len(values) - 1) * stdev(logarithms) / math.sqrt(len(values))
    return Interval(math.exp(center), math.exp(center - half), math.exp(center + half))


def latency(processes: Sequence[Sequence[float]]) -> Interval:
    """Of one side: samples by process → geometric mean of the processes' medians."""
    return over_processes([median(samples) for samples in processes])


def speedup(reference: Sequence[Sequence[float]], test: Sequence[Sequence[float]]) -> Interval:
    """Reference over test, above 1 the test is faster; the ratio of both sides' :func:`latency`.

    Each process gives its own ratio, so that what slows a whole process falls on both sides.
    """
    return over_processes([median(first) / median(second) for first, second in zip(reference, test, strict=True)])


def drift(reference: Sequence[Sequence[float]], test: Sequence[Sequence[float]]) -> Interval:
    """By how much the ratio of both sides fell while it was sampled: of each process's first half over its second.

    1 where both sides were steady, or drifted alike. Each process has samples by their order, two at least.
    """
    halves = [
        [median(side[: len(side) // 2]) / median(side[-(len(side) // 2) :]) for side in sides]
        for sides in zip(reference, test, strict=True)
    ]
    return over_processes([first / second for first, second in halves])


def of_runs(first: Sequence[float], second: Sequence[float]) -> Interval:
    """The second over the first, of two runs' figures, one a process: the ratio of their geometric means.

    Nothing pairs the processes of two runs. So the interval is Welch's, of logarithms, with his degrees of freedom
    rounded down: it holds where one run's processes differ by more than the other's.
    """
    sides = [[math.log(value) for value in values] for values in (first, second)]
    center = fmean(sides[1]) - fmean(sides[0])
    if min(map(len, sides)) < 2:
        return Interval(_power(center), None, None)
    parts = [stdev(side) ** 2 / len(side) for side in sides]
    spread = sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    degrees = max(1, int(sum(parts) ** 2 / spread)) if spread > 0 else min(map(len, sides)) - 1
    half = t_quantile(degrees) * math.sqrt(sum(parts))
    return Interval(_power(center), _power(center - half), _power(center + half))


def _power(exponent: float) -> float:
    """e to it; infinite beyond what a float holds: two processes may differ by any factor."""
    return math.exp(exponent) if exponent < math.log(sys.float_info.max) else math.inf


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t; above 10 degrees of freedom by the expansion of Abramowitz and Stegun, 26.7.5."""
    if degrees <= len(_QUANTILES):
        return _QUANTILES[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
