"""What a run's message says of planted faults: how large an error would pass."""

import math
from collections.abc import Sequence
from statistics import median_low

from inductor_debug.stages.sensitivity.records import Measured, Sensitivity
from inductor_debug.stages.sensitivity.search import LARGEST
from inductor_debug.stages.sensitivity.sites import FAULTS

NOUNS = {
    "weight": ("one weight", "weights"),
    "activation": ("the result of one operation", "operations"),
    "gradient": ("one gradient of the backward pass", "gradients"),
}

NARROW = 2.0**-13
"""Unit roundoff from which a format is narrow: float16's is 2**-11, float32's 2**-24."""
LARGE = 0.02
"""An error that a narrow format's noise hides, from which the message tells what would show it."""

FEW = 3
"""Places that a message names."""


def told(found: Sensitivity) -> str:
    """A part of the stage's message; it begins with a semicolon."""
    parts = [_kind(fault, [item for item in found.measured if item.site.fault == fault]) for fault in FAULTS]
    parts = [part for part in parts if part]
    if not parts:
        return f"; sensitivity was not measured: {found.note}"
    dead = [item for item in found.measured if not item.effect]
    text = f"; faults planted in eager: {'; '.join(parts)}"
    if dead:
        few = ", ".join(str(item.site) for item in dead[:FEW]) + ", …" * (len(dead) > FEW)
        count = f"{len(dead)} of {len(found.measured)} faults"
        text += f"; {count} could not be tested, for float64 shows no effect either ({few})"
    passed = [item.verdict.passed for item in found.measured if item.effect]
    if found.roundoff >= NARROW and max(passed, default=0.0) >= LARGE:
        text += f"; what {found.dtype} hides only localization would show, which judges each operation by itself"
    return f"{text}; {found.note}" if found.note else text


def _kind(fault: str, measured: Sequence[Measured]) -> str:
    """The worst place and the median of one kind of fault."""
    alive = [item for item in measured if item.effect]
    if not alive:
        return ""
    one, many = NOUNS[fault]
    worst = max(alive, key=lambda item: (_error(item), item.verdict.passed))
    text = f"an error of {percent(worst.verdict.passed)} in {one} ({worst.site}) would pass here"
    if len(alive) > 1:
        middle = median_low([item.verdict.passed for item in alive])
        text += f", of {percent(middle)} in the median of {len(alive)} {many}"
    return text


def _error(item: Measured) -> float:
    return math.inf if item.verdict.error is None else item.verdict.error


def percent(error: float) -> str:
    """``0.023 %``, ``140 %``; of the largest error planted ``200 % and more``."""
    if error >= LARGEST:
        return f"{100 * LARGEST:g} % and more"
    return f"{100 * error:.2g} %" if error < 0.99 else f"{100 * error:.0f} %"
