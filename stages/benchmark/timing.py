"""Interleaved timing of two callables in one process."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy

RESAMPLES = 1000
LEAST = 3
"""Samples of a side before the budget may end the timing."""
SIDES = ("reference", "test")
PARTS = ("forward", "backward", "optimizer")
"""Of a training step; forward has the loss."""
Part = TypeVar("Part")


@dataclass
class Samples:
    """Timed calls of one process.

    Attributes:
        milliseconds: by side, wall time in the order taken.
        device: by side, the device's own time of a call of its own beside each; empty where there is no device's clock.
        forward: by side, wall time of each call's forward with loss; empty where the calls do not tell.
        started: by side, seconds since the timing began.
        stopped: why timing ended: ``interval``, ``max_repeats`` or ``budget``.
    """

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    device: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    forward: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    started: dict[str, list[float]] = field(default_factory=lambda: {"reference": [], "test": []})
    stopped: str = ""


def interleave(
    calls: Mapping[str, Callable[[], float | None]],
    *,
    repeats: int,
    max_repeats: int | None,
    relative_ci: float,
    budget_s: float,
    seed: int = 0,
    first: int = 0,
    device: Mapping[str, Callable[[], float]] | None = None,
    before: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Time ``calls["reference"]`` and ``calls["test"]`` in turn, the order reversed every round.

    A round is one call of each, so that a drift of the machine meets both sides alike. Timing ends once each side has
    ``repeats`` samples and the ratio's 95 % interval is at most ``relative_ci`` times the ratio wide. It also ends at
    ``max_repeats``, or when ``budget_s`` is spent and each side has :data:`LEAST` samples. Calls must synchronise.

    Args:
        calls: one step of each side, which gives the clock's seconds at the end of its forward, or None.
        repeats, max_repeats: samples a side, at least and at most; of the latter None: as many as the budget holds.
        relative_ci: width of the ratio's interval over the ratio, at which timing ends.
        budget_s: seconds.
        seed: of the resampling that gives the interval.
        first: which side begins the first round: 0 the reference, 1 the test.
        device: by side, what takes one more call and returns the device's milliseconds of it.
        before: called before each timed call, outside its time.
        clock: seconds.
    """
    samples = Samples()
    began, next_look = clock(), max(repeats, LEAST)
    for index in itertools.count() if max_repeats is None else range(max(max_repeats, LEAST)):
        order = SIDES if (index + first) % 2 == 0 else SIDES[::-1]
        for side in order:
            if before is not None:
                before()
            start = clock()
            middle = calls[side]()
            samples.milliseconds[side].append((clock() - start) * 1e3)
            samples.started[side].append(start - began)
            if middle is not None:
                samples.forward[side].append((middle - start) * 1e3)
        for side in order if device else ():
            assert device is not None
            samples.device[side].append(device[side]())
        count = index + 1
        if count >= LEAST and clock() - began > budget_s:
            samples.stopped = "budget"
            return samples
        if count >= next_look:
            next_look = max(count + 1, count * 11 // 10)  # of thousands of samples each look takes long
            if _tight(samples, relative_ci, seed):
                samples.stopped = "interval"
                return samples
    samples.stopped = "max_repeats"
    return samples


def in_turn(clocks: Mapping[str, Callable[[], Part]], rounds: int, first: int = 0) -> dict[str, list[Part]]:
    """What both sides' clocks give in so many rounds, the order reversed every round as in :func:`interleave`.

    Args:
        clocks: by side.
        rounds: calls of each.
        first: which side begins: 0 the reference, 1 the test.
    """
    found: dict[str, list[Part]] = {side: [] for side in SIDES}
    for index in range(rounds):
        for side in SIDES if (index + first) % 2 == 0 else SIDES[::-1]:
            found[side].append(clocks[side]())
    return found


def _tight(samples: Samples, relative_ci: float, seed: int) -> bool:
    reference, test = (samples.milliseconds[side] for side in SIDES)
    low, high = ratio_interval(reference, test, seed)
    return high - low <= relative_ci * float(numpy.median(reference) / numpy.median(test))


def ratio_interval(reference: list[float], test: list[float], seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the ratio of medians within one process; seeded.

    (Efron and Tibshirani 1993, chapter 13.) It says when a process has sampled enough, and nothing of other processes.
    """
    draw = numpy.random.default_rng(seed)
    low, high = numpy.percentile(_medians(reference, draw) / _medians(test, draw), [2.5, 97.5])
    return float(low), float(high)


def _medians(values: list[float], draw: numpy.random.Generator) -> numpy.ndarray:
    taken = draw.choice(numpy.asarray(values), size=(RESAMPLES, len(values)))
    return numpy.median(taken, axis=1)


def interquartile_range(values: list[float]) -> float:
    """Third quartile minus the first."""
    low, high = numpy.percentile(values, [25, 75])
    return float(high - low)
