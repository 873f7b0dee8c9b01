"""A sweep's measures over its axes, as tables and plots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.pipeline.run.sweep.changes import OVERRIDE
from inductor_debug.pipeline.run.sweep.rows import Row
from inductor_debug.stages.report.html import is_numeric
from inductor_debug.stages.report.sections import State

STATES: Mapping[str, State] = {
    "passed": "good",
    "failed": "bad",
    "crashed": "bad",
    "rejected": "bad",
    "not_established": "unknown",
    "exact": "good",
    "within_floor": "good",
    "within_tolerance": "good",
    "defect": "bad",
    "not_exercised": "unknown",
}
"""A job's verdict, or its numbers', → what it is."""
NUMERICS_IN_WORDS = {
    "exact": "all results are equal to the reference's bit for bit",
    "within_floor": "no error is larger than rounding explains",
    "within_tolerance": "no error is larger than the tolerance",
    "defect": "an error is larger than that",
    "not_exercised": "the inputs and weights could not have shown a fault",
    "not_established": "nothing could be compared, or not with enough",
}
"""What a job's numbers are → what that says."""
MEASURES = {
    "verdict": "Verdict",
    "violations": "Findings of the profile, waived ones included",
    "numerics": "Are the numbers right?",
    "max_abs": "Largest absolute error",
    "test.median_ms": "Latency of the test side, ms",
    "speedup": "Speed-up",
    "test.compile_s": "Compilation, s",
    "test.peak_memory_bytes": "Peak memory of the test side, bytes",
}
"""Column of the table → title; those that no job has are left out."""
TIMED = ("test.median_ms", "speedup")
"""Measures that the benchmark stage establishes, or does not."""
_ACROSS = 12
"""Values of the axis that lies across a table, at most."""
_LINES = 8
"""Lines of a plot, at most."""
_WIDTH, _HEIGHT, _LEFT, _AROUND = 460, 180, 70, 22


@dataclass(frozen=True)
class Cell:
    """One job's value; ``page``: its report, relative to the sweep, or ""."""

    value: Any = None
    state: State | None = None
    page: str = ""
    label: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a plot: its label, and the points in pixels of the jobs that have a value."""

    label: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """A measure over one axis.

    Attributes:
        title: of the measure.
        ticks: pixel and label of values of the axis. low, high: of the measure.
        lines: one for each combination of the other axes.
    """

    title: str
    ticks: list[tuple[float, str]]
    low: float
    high: float
    lines: list[Line]
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True)
class Pivot:
    """A table over the axes.

    Attributes:
        title: of it. rows_by: axes that a row's ``key`` has the values of.
        column_by: the axis across; "" where measures lie across. columns: its values.
        rows: ``key`` and ``cells`` of each.
        plots: of what is a number.
        legend: value in a cell → what it says, where the value alone does not.
    """

    title: str
    rows_by: list[str]
    column_by: str
    columns: list[str]
    rows: list[dict[str, Any]]
    plots: list[Plot] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)


def pivots(rows: Sequence[Row], axes: Sequence[str], pages: Sequence[str], labels: Sequence[str]) -> list[Pivot]:
    """Tables over the axes: of one axis a table of all measures, of several a table for each measure.

    Args:
        rows: the jobs'. axes: columns in which they differ.
        pages, labels: of each job, its report and its name.
    """
    measures = [name for name in MEASURES if any(row.get(name) is not None for row in rows)]
    cells = [{name: Cell(row.get(name), _state(name, row), page, label) for name in measures}
             for row, page, label in zip(rows, pages, labels, strict=True)]  # fmt: skip
    if not axes:
        return []
    if len(axes) == 1:
        found = [{"key": [text_of(row.get(axes[0]))],
                  "cells": [item[name] if name == "verdict" else _bare(item[name]) for name in measures]}
                 for row, item in zip(rows, cells, strict=True)]  # fmt: skip
        titles = [MEASURES[name] for name in measures]
        plots = [plot for name in measures if (plot := _plot(name, rows, axes[0], []))]
        by, legend = short_name(axes[0]), _legend("numerics", rows)
        return [Pivot(f"Results by {by}", [by], "", titles, found, plots, legend)]
    values = {axis: list(dict.fromkeys(text_of(row.get(axis)) for row in rows)) for axis in axes}
    narrow = [axis for axis in axes if len(values[axis]) <= _ACROSS]
    across = max(narrow, key=lambda axis: len(values[axis])) if narrow else axes[-1]
    down = [axis for axis in axes if axis != across]
    return [_pivot(name, rows, cells, across, down, values[across]) for name in measures]


def _pivot(
    measure: str,
    rows: Sequence[Row],
    cells: Sequence[Mapping[str, Cell]],
    across: str,
    down: list[str],
    columns: list[str],
) -> Pivot:
    found: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row, item in zip(rows, cells, strict=True):
        key = tuple(text_of(row.get(axis)) for axis in down)
        found.setdefault(key, {})[text_of(row.get(across))] = item[measure]
    table = [{"key": list(key), "cells": [at.get(value, Cell()) for value in columns]} for key, at in found.items()]
    plot = _plot(measure, rows, across, down)
    names, plots, legend = [*map(short_name, down)], [plot] if plot else [], _legend(measure, rows)
    return Pivot(MEASURES[measure], names, short_name(across), columns, table, plots, legend)


def _legend(measure: str, rows: Sequence[Row]) -> dict[str, str]:
    """What the values of a measure say, of those that a job has."""
    known = NUMERICS_IN_WORDS if measure == "numerics" else {}
    return {value: told for value, told in known.items() if any(row.get(measure) == value for row in rows)}


_DECADES = 100
"""Largest over smallest value of a plot from which its axis is logarithmic."""


def _plot(measure: str, rows: Sequence[Row], axis: str, others: Sequence[str]) -> Plot | None:
    """A measure over an axis; None where it is no number, the same everywhere, or of too many lines."""
    known = [row for row in rows if is_numeric(row.get(measure)) and abs(float(row[measure])) < float("inf")]
    values = list(dict.fromkeys(text_of(row.get(axis)) for row in rows))
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    for row in known:
        key = tuple(text_of(row.get(other)) for other in others)
        groups.setdefault(key, {})[text_of(row.get(axis))] = float(row[measure])
    low, high = (pick((float(row[measure]) for row in known), default=0.0) for pick in (min, max))
    if low == high or len(values) < 2 or not 1 <= len(groups) <= _LINES or not all(map(is_numeric, values)):
        return None
    values.sort(key=float)
    across = {value: round(_LEFT + place * (_WIDTH - _LEFT - _AROUND) / (len(values) - 1), 1)
              for place, value in enumerate(values)}  # fmt: skip

    apart = low > 0 and high / low > _DECADES
    scale = math.log if apart else float

    def point(value: str, at: float) -> tuple[float, float]:
        part = (scale(at) - scale(low)) / (scale(high) - scale(low))
        return across[value], round(_HEIGHT - _AROUND - part * (_HEIGHT - 2 * _AROUND), 1)

    alike: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for key, at in groups.items():
        points = tuple(point(value, at[value]) for value in values if value in at)
        alike.setdefault(points, []).append(", ".join(key))
    lines = [Line(" = ".join(labels), list(points)) for points, labels in alike.items()]
    labelled = values if len(values) <= _ACROSS else [values[0], values[-1]]
    title = f"{MEASURES[measure]} (logarithmic)" if apart else MEASURES[measure]
    return Plot(title, [(across[value], value) for value in labelled], low, high, lines)


def _state(measure: str, row: Row) -> State | None:
    if measure not in ("verdict", "numerics") or row.get(measure) is None:
        return None
    return STATES.get(str(row[measure]), "unknown")


def _bare(cell: Cell) -> Cell:
    return Cell(cell.value, cell.state)


def short_name(column: str) -> str:
    """A column's name without what marks an override."""
    return column.removeprefix(OVERRIDE)


def text_of(value: Any) -> str:
    """A value of an axis as the page has it."""
    return "–" if value is None else str(value)
