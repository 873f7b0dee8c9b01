"""The picture of a comparison: error over floor of every tensor in dataflow order, and why some have none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.stages.drawing import COLORS, MARKERS, decades, drawing, number, power, shorten
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import VERDICTS

LINES = 60
"""Lines of a summary at most; neighbors share a line where there are more tensors."""

REASONS = 12
"""Reasons that are listed for tensors without a ratio."""

WHY = {
    "bits": "equal bit for bit; there was no gold to make a floor from",
    "tolerance": "judged by tolerance, not by a floor",
    "nonfinite": "NaN or infinity on one side alone",
    "shape": "shapes differ",
    "dtype": "dtypes differ",
    "structure": "on one side alone, or of another type",
    "value": "no tensor",
    "random": "random numbers, drawn differently on the two sides",
}
"""Bound that decided → why there is no ratio."""


@dataclass
class Line:
    """Neighbors that share a line; most often one tensor.

    Attributes:
        rows: the tensors, in dataflow order.
        worst: the one with the largest ratio, after which the line is named.
    """

    rows: list[TensorComparison]
    worst: TensorComparison = field(init=False)

    def __post_init__(self) -> None:
        self.worst = max(self.rows, key=lambda row: (VERDICTS.index(row.verdict) >= 4, row.ratio or 0.0))

    @property
    def name(self) -> str:
        more = f" (+{len(self.rows) - 1})" if len(self.rows) > 1 else ""
        return shorten(f"{self.worst.kind} {self.worst.path}", 72 - len(more)) + more


def lines_of(rows: Sequence[TensorComparison], most: int = LINES) -> list[Line]:
    """Tensors that have a ratio, in order, as no more than ``most`` lines of equal length (the last may be shorter)."""
    found = [row for row in rows if _has_ratio(row)]
    step = math.ceil(len(found) / most) or 1
    return [Line(found[first : first + step]) for first in range(0, len(found), step)]


def apart(rows: Sequence[TensorComparison]) -> list[tuple[str, str, list[TensorComparison]]]:
    """Those without a ratio by verdict and reason, the worst verdict first."""
    groups: dict[tuple[str, str], list[TensorComparison]] = {}
    for row in rows:
        if not _has_ratio(row):
            why = WHY.get(row.bound) or row.message or "no reason recorded"
            groups.setdefault((row.verdict, why), []).append(row)
    found = [(verdict, why, members) for (verdict, why), members in groups.items()]
    return sorted(found, key=lambda group: -VERDICTS.index(group[0]))


def _has_ratio(row: TensorComparison) -> bool:
    return row.ratio is not None and not math.isnan(row.ratio)


def draw_summary(rows: Sequence[TensorComparison]) -> bytes:
    """A PNG over all rows."""
    lines, others = lines_of(rows), apart(rows)
    listed = others[:REASONS]
    plot, text = (0.19 * len(lines) + 0.55 if lines else 0.0), 0.36 * len(listed) + 0.35 * bool(listed)
    height = plot + text + 0.75
    with drawing(11.0, height) as (figure, png):
        counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in reversed(VERDICTS)}
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        figure.text(
            0.02, 1 - 0.2 / height, f"{len(rows)} results: {words or 'none'}", fontsize=11, weight="bold", va="center"
        )
        if lines:
            axes = figure.add_axes((0.37, (text + 0.45) / height, 0.61, (plot - 0.35) / height))
            _ratios(axes, lines)
        for index, (verdict, why, members) in enumerate(listed):
            at = (text - 0.1 - 0.36 * index - 0.3) / height
            names = ", ".join(shorten(f"{row.kind} {row.path}", 40) for row in members[:4])
            more = f" and {len(members) - 4} more" if len(members) > 4 else ""
            figure.text(0.02, at + 0.16 / height, f"{verdict} ({len(members)}): {shorten(why, 110)}", fontsize=8.5,
                        color=COLORS[verdict])  # fmt: skip
            figure.text(0.035, at, shorten(names, 140) + more, fontsize=8, color="#333333")
        if listed:
            rest = sum(len(members) for *_, members in others[REASONS:])
            head = f"without error over floor{f' ({rest} more results for other reasons)' if rest else ''}"
            figure.text(0.02, (text + 0.06) / height, head, fontsize=9, weight="bold")
        return png()


def _ratios(axes: Any, lines: Sequence[Line]) -> None:
    members = [(index, row, float(row.ratio or 0.0)) for index, line in enumerate(lines) for row in line.rows]
    factors = sorted({row.factor for _, row, _ in members if row.factor and math.isfinite(row.factor)})
    finite = [ratio for *_, ratio in members if 0 < ratio < math.inf] + list(factors)
    low = math.floor(math.log10(min(finite, default=0.1)) - 0.1)
    high = math.ceil(math.log10(max(finite, default=10.0)) + 0.1)
    strip = 0.06 * (high - low)

    def place(ratio: float) -> float:
        if ratio == 0:
            return low - strip
        return high + strip if ratio == math.inf else math.log10(ratio)

    for verdict in VERDICTS:
        chosen = [(place(ratio), index) for index, row, ratio in members if row.verdict == verdict]
        if chosen:
            x, y = zip(*chosen, strict=True)
            axes.scatter(x, y, s=26, color=COLORS[verdict], marker=MARKERS[verdict], label=verdict, zorder=3)
    for factor in factors:
        axes.axvline(math.log10(factor), color="black", linestyle="--", linewidth=1.1, label=f"limit {number(factor)}")
    ratios = [ratio for *_, ratio in members]
    ends = [(0.0, "0"), (math.inf, "∞")]
    ticks = [(place(value), label) for value, label in ends if value in ratios]
    ticks += [(float(exponent), power(exponent)) for exponent in decades(low, high)]
    axes.set_xticks([tick for tick, _ in ticks], [label for _, label in ticks])
    axes.set_xlim(low - 2 * strip, high + 2 * strip)
    axes.set_yticks(range(len(lines)), [line.name for line in lines], fontsize=7)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(axis="both", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    shared = "" if len(members) == len(lines) else "; (+n): n neighbors share the line of the worst"
    axes.set_xlabel(f"error over noise floor, in dataflow order from the top{shared}")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, frameon=False, borderaxespad=0.2)
