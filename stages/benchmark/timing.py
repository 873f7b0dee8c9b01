"""Interleaved timing of two callables and the interval of the ratio of their medians."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy

RESAMPLES = 1000
LEAST = 3
"""Samples of a side before the budget may end the timing."""


@dataclass
class Samples:
    """Timed calls.

    Attributes:
        milliseconds: by side, in the order taken.
        started: by side, seconds since the timing began.
        stopped: why timing ended: ``interval``, ``max_repeats`` or ``budget``.
    """

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    started: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    stopped: str = ""


def interleave(
    calls: dict[str, Callable[[], None]],
    *,
    repeats: int,
    max_repeats: int,
    relative_ci: float,
    budget_s: float,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Time ``calls["reference"]`` and ``calls["test"]`` in turn, the order reversed every round.

    A round is one call of each, so that a drift of the machine meets both sides alike. Ends once each side has
    ``repeats`` samples and the ratio's 95 % interval is at most ``relative_ci`` times the ratio wide, at
    ``max_repeats``, or when ``budget_s`` is spent and each side has :data:`LEAST` samples. Calls must synchronise.
    """
    samples = Samples()
    began = clock()
    for index in range(max(max_repeats, LEAST)):
        for side in ("reference", "test") if index % 2 == 0 else ("test", "reference"):
            start = clock()
            calls[side]()
            samples.milliseconds[side].append((clock() - start) * 1e3)
            samples.started[side].append(start - began)
        count = index + 1
        if count >= LEAST and clock() - began > budget_s:
            samples.stopped = "budget"
            return samples
        if count >= max(repeats, LEAST) and _tight(samples, relative_ci, seed):
            samples.stopped = "interval"
            return samples
    samples.stopped = "max_repeats"
    return samples


def _tight(samples: Samples, relative_ci: float, seed: int) -> bool:
    low, high = speedup_interval(samples.milliseconds["reference"], samples.milliseconds["test"], seed)
    return high - low <= relative_ci * speedup(samples.milliseconds["reference"], samples.milliseconds["test"])


def speedup(reference: list[float], test: list[float]) -> float:
    """Median of the reference over median of the test: above 1 the test is faster."""
    return float(numpy.median(reference) / numpy.median(test))


def speedup_interval(reference: list[float], test: list[float], seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of :func:`speedup` (Efron and Tibshirani 1993, chapter 13); seeded."""
    draw = numpy.random.default_rng(seed)
    ratios = _medians(reference, draw) / _medians(test, draw)
    low, high = numpy.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def median_interval(values: list[float], seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the median; seeded."""
    low, high = numpy.percentile(_medians(values, numpy.random.default_rng(seed)), [2.5, 97.5])
    return float(low), float(high)


def _medians(values: list[float], draw: numpy.random.Generator) -> numpy.ndarray:
    taken = draw.choice(numpy.asarray(values), size=(RESAMPLES, len(values)))
    return numpy.median(taken, axis=1)


def interquartile_range(values: list[float]) -> float:
    """Third quartile minus the first."""
    low, high = numpy.percentile(values, [25, 75])
    return float(high - low)
