"""What all pictures share: matplotlib's own defaults whatever the user's, plain numbers, no display, same bytes."""

import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

COLORS = {
    "exact": "#4477aa", "within_floor": "#228833", "within_tolerance": "#66ccee", "not_exercised": "#bbbbbb",
    "not_established": "#ee9900", "defect": "#cc3311",
}  # fmt: skip
MARKERS = {
    "exact": "s", "within_floor": "o", "within_tolerance": "^", "not_exercised": "v", "not_established": "D",
    "defect": "X",
}  # fmt: skip
"""Colors and shapes of verdicts; shapes, because colors alone don't reach everyone."""


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Any, Callable[[], bytes]]]:
    """An empty figure of that size in inches, and what turns it into PNG bytes at 100 dots an inch."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    small = dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8.0)
    with style.context(["default", {**small, "axes.titlesize": 9.0, "text.parse_math": False}]):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)

        def png() -> bytes:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
            return buffer.getvalue()

        yield figure, png


def number(value: Any) -> str:
    """A number in four digits; integers in full, None as a dash."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def power(exponent: float) -> str:
    """10**exponent for an axis, e.g. ``1e-5``; plain between 0.01 and 1000."""
    return f"{10.0**exponent:g}" if -2 <= exponent <= 3 else f"1e{exponent:g}"


def decades(low: float, high: float, most: int = 8) -> list[int]:
    """Whole powers of ten between two exponents, no more than ``most``."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    return list(range(first, last + 1, max(1, math.ceil((last - first + 1) / most))))


def log_axis(axis: Any) -> None:
    """Powers of ten on a logarithmic axis in plain characters, few enough to be read; 2 and 5 times on a short one."""
    from matplotlib.ticker import NullLocator

    low, high = sorted(axis.get_view_interval())
    exponents = decades(math.log10(low), math.log10(high))
    ticks = [10.0**exponent for exponent in exponents]
    labels = [power(exponent) for exponent in exponents]
    if len(ticks) < 3:
        first = math.floor(math.log10(low))
        steps = [step * 10.0**exponent for exponent in range(first, first + 4) for step in (1, 2, 5)]
        ticks = [step for step in steps if low * 0.999 <= step <= high * 1.001] or [low, high]
        labels = [f"{tick:.3g}".replace("e-0", "e-").replace("e+0", "e") for tick in ticks]
    axis.set_ticks(ticks, labels=labels)
    axis.set_minor_locator(NullLocator())


def shorten(text: str, most: int) -> str:
    """One printable line of at most ``most`` characters; what is missing is missing in the middle."""
    text = "".join(letter if letter.isprintable() else "·" for letter in text)
    if len(text) <= most:
        return text
    tail = (most - 1) * 2 // 3
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"
