"""The verdict on one tensor, by noise floor or by tolerance, and the verdict on all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from math import inf, isfinite

from inductor_debug.stages.formatting import times
from inductor_debug.stages.numerics.accumulator import Figures

VERDICTS = ("not_exercised", "exact", "within_floor", "within_tolerance", "not_established", "defect")
"""From best to worst; a run's verdict is its worst tensor's."""

FLOORS = ("floor_rms", "floor_max")
"""Bounds that are the noise floor."""

FAILING = ("defect", "not_established")


class Reason(Enum):
    """Why a tensor has the verdict that it has."""

    FIGURES = "its own figures"
    STORAGE_ROUNDING = "storage rounding alone"
    OTHER_ROUNDING = "noise of references that round otherwise"
    JUMP = "a jump of float64 within rounding"
    TIE = "values within rounding of a tie"
    OTHER_DRAWS = "other random numbers"
    NOT_REPEATED = "the reference does not repeat its numbers"
    NOT_COPIED = "a copy gives other numbers"
    BIAS = "a floor that is no noise"


@dataclass(frozen=True)
class Judgement:
    """A verdict and what decided it.

    Attributes:
        verdict: one of :data:`VERDICTS`.
        bound: what decided: bits, floor_rms, floor_max, conditioning, tolerance, nonfinite, shape, dtype, structure,
            value or random.
        message: one line for a person; empty where the bound says all.
        floor_rms, floor_max: the noise floor; None where no gold was used.
        error_rms, error_max: error against gold.
        ratio: the larger of error over floor by RMS and by maximum.
        factor: the limit on ``ratio``; None where a floor did not decide.
        resolution: share of the tensor, by RMS, up to which an error would pass; None where that is not known.
        reason: which look at the tensor gave the verdict.
    """

    verdict: str
    bound: str
    message: str = ""
    floor_rms: float | None = None
    floor_max: float | None = None
    error_rms: float | None = None
    error_max: float | None = None
    ratio: float | None = None
    factor: float | None = None
    resolution: float | None = None
    reason: Reason = Reason.FIGURES


def over(error: float, floor: float) -> float:
    """error / floor, where no error over no floor is 0 and an error over no floor is infinite."""
    if error == 0:
        return 0.0
    return error / floor if floor > 0 else inf


def over_floors(error_rms: float, error_max: float, floor_rms: float, floor_max: float) -> tuple[float, str]:
    """The larger of the two ratios of error over floor, and the bound that it belongs to; RMS where they are equal.

    Args:
        error_rms, error_max: RMS and maximum of |test - gold|.
        floor_rms, floor_max: RMS and maximum of the noise floor, see :func:`judge`.
    """
    by_rms, by_maximum = over(error_rms, floor_rms), over(error_max, floor_max)
    return (by_rms, "floor_rms") if by_rms >= by_maximum else (by_maximum, "floor_max")


def judge(
    figures: Figures, *, factor: float, roundoff: float, use_floor: bool, tolerance: str, noise: float | None = None
) -> Judgement:
    """The verdict on figures of two tensors of one shape and dtype.

    The floor is the RMS, and the maximum, of |reference - gold|, neither below ``roundoff`` times the RMS, and the
    maximum, of |gold|. The error is the RMS, and the maximum, of |test - gold|. The tensor is a defect where either
    ratio exceeds ``factor``. It is also one where gold is not finite in elements that the sides are, and any element of
    the tensor is beyond the tolerance.

    Args:
        figures: of the test side against the reference and, where there is one, gold.
        factor: the limit on error over floor.
        roundoff: unit roundoff of the format that the case computes in.
        use_floor: False lets the tolerance decide (it was set, or there is no gold).
        tolerance: the tolerance in words, for the message.
        noise: the noise's RMS where it is known otherwise than by |reference - gold|, of which one element is one draw.
    """
    if figures.nonfinite_mismatched:
        count = figures.nonfinite_mismatched
        return Judgement("defect", "nonfinite", f"NaN or infinity on one side alone in {count} elements")
    if use_floor:
        by_floor = _by_floor(figures, factor, roundoff, noise)
        if figures.bitwise_equal:
            return replace(by_floor, verdict="exact", bound="bits", message="")
        unseen = figures.elements - figures.nan_reference - figures.inf_reference - figures.gold_elements
        if by_floor.verdict == "defect" and not figures.mismatched:
            return replace(by_floor, message=f"{by_floor.message}; every element is within {tolerance}")
        if by_floor.verdict == "defect" or not unseen or not figures.mismatched:
            return by_floor
        return Judgement(
            "defect", "tolerance", f"gold is not finite in {unseen} elements; {_beyond(figures, tolerance)}"
        )
    if figures.bitwise_equal:
        return _EXACT
    if figures.mismatched:
        return Judgement("defect", "tolerance", _beyond(figures, tolerance))
    return _within(tolerance)


_EXACT = Judgement("exact", "bits")


@lru_cache
def _within(tolerance: str) -> Judgement:
    return Judgement("within_tolerance", "tolerance", f"all elements within {tolerance}")


def _beyond(figures: Figures, tolerance: str) -> str:
    return f"{figures.mismatched} of {figures.elements} elements beyond {tolerance}"


def _by_floor(figures: Figures, factor: float, roundoff: float, noise: float | None) -> Judgement:
    drawn = (figures.floor.rms, figures.floor.maximum) if noise is None else (noise, noise)
    floor_rms = max(drawn[0], roundoff * figures.magnitude.rms)
    floor_max = max(drawn[1], roundoff * figures.magnitude.maximum)
    ratio, bound = over_floors(figures.error.rms, figures.error.maximum, floor_rms, floor_max)
    name = "RMS" if bound == "floor_rms" else "largest"
    size = f"{times(ratio)} times" if isfinite(ratio) else "infinitely many times"
    message = f"the {name} error is {size} the noise floor (limit {factor:g})"
    levels = (floor_rms, floor_max, figures.error.rms, figures.error.maximum, ratio)
    return Judgement("defect" if ratio > factor else "within_floor", bound, message, *levels)


def overall(verdicts: Iterable[str]) -> str:
    """The worst of ``verdicts``; ``not_established`` where there is none: nothing compared is not a pass."""
    found = list(verdicts)
    return max(found, key=VERDICTS.index) if found else "not_established"
