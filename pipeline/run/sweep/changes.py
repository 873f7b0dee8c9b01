"""What changed from a job of a sweep to its neighbour: the job that differs in one axis alone, by one step."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inductor_debug.pipeline.run.sweep.rows import (
    FAILURES,
    GRAPHS,
    NUMERICS,
    Row,
    failures_in,
    may_be_in,
    rule_of,
)
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.formatting import counted, short

OVERRIDE = "override."
_TECHNICAL = ("override.cluster", "override.runner.", "override.hydra.")
_STAGE = {
    **dict.fromkeys(("numerics", *NUMERICS), "kerneldiff"),
    **dict.fromkeys((f"graphs.{key}" for key in GRAPHS), "capture"),
}
"""Column that is compared → the stage that came to a result in both jobs; ``violations`` are of constrain."""
_RESULT, _WITHOUT = ("passed", "failed"), ("crashed", "timed_out")
DIGEST = "digest"
_DIGITS = 8
"""Characters of a number up to which it is told as it is stored."""
_NAMED = 3
"""Failures that a sentence names by their fingerprints."""


@dataclass(frozen=True)
class Change:
    """One column in which a job and its neighbour differ.

    Attributes:
        axis: key of the configuration in which alone the two differ.
        axis_before, axis_after: its values, the neighbour's first.
        others: the other axes' values, which both have.
        neighbour: directory of the neighbour, relative to the sweep's.
        column: of the table; ``failures`` for a failure that only one of them has, ``digest`` where no other column
            differs. Empty where nothing changed.
        before, after: the values, the neighbour's first; of a failure its fingerprint, and None where it is not.
    """

    axis: str
    axis_before: str
    axis_after: str
    others: str
    neighbour: str
    column: str = ""
    before: str | None = None
    after: str | None = None


def axes_of(rows: Sequence[Row]) -> list[str]:
    """The columns of overrides that tell the jobs apart. Of a job that has not started none is known."""
    known = [{key: row[key] for key in row if key.startswith(OVERRIDE)} for row in rows]
    return telling_apart([*filter(None, known)], _TECHNICAL)


def telling_apart(jobs: Sequence[Mapping[str, Any]], technical: tuple[str, ...]) -> list[str]:
    """The keys in which jobs differ, in the order in which they come.

    How a job is run changes no result that it comes to, so such keys are among them only where the others leave two
    jobs alike: there it is what was swept.

    Args:
        jobs: key → value, which may be any JSON.
        technical: how the keys of how a job is run begin.
    """
    texts = [{key: as_text(value) for key, value in job.items()} for job in jobs]
    keys = [key for key in dict.fromkeys(key for job in texts for key in job)
            if len({job.get(key) for job in texts}) > 1]  # fmt: skip
    found = [key for key in keys if not key.startswith(technical)]
    alike = len({tuple(job.get(key) for key in found) for job in texts}) < len(texts)
    return keys if alike else found


def as_text(value: Any) -> str:
    """A value of a setting: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def changes_of(rows: Sequence[Row]) -> list[list[Change]]:
    """For each row, its changes from a neighbour along each axis; times are left out, for they differ in every pair."""
    axes = axes_of(rows)
    started = [row for row in rows if _has_started(row)]  # of the others no value is known
    values = {axis: list(dict.fromkeys(row.get(axis) for row in started)) for axis in axes}
    places = {axis: {value: place for place, value in enumerate(found)} for axis, found in values.items()}
    at = {tuple(row.get(axis) for axis in axes): row for row in started}
    return [[change for axis in axes if _has_started(row)
             for change in _along(row, axis, axes, values[axis], places[axis], at)] for row in rows]  # fmt: skip


def _has_started(row: Row) -> bool:
    return any(key.startswith(OVERRIDE) for key in row)


def told(changes: Sequence[Change]) -> list[str]:
    """A sentence for each axis: ``accel.alignment 8 → 16 (dtype=float32): violations.alignment 0 → 83``."""
    by_axis: dict[tuple[str, str, str, str], list[Change]] = {}
    for change in changes:
        by_axis.setdefault((change.axis, change.axis_before, change.axis_after, change.others), []).append(change)
    return [f"{axis} {before} → {after}{others and f' ({others})'}: {what_changed(found)}"
            for (axis, before, after, others), found in by_axis.items()]  # fmt: skip


def what_changed(changes: Sequence[Change]) -> str:
    """What differs in one step: ``violations.alignment 0 → 83, 1 new failure (…)``."""
    return ", ".join(_parts(changes)) or "nothing"


def _parts(changes: Sequence[Change]) -> Iterator[str]:
    columns = {change.column for change in changes}
    by_rule = any(column.startswith("violations.") for column in columns)
    for change in changes:
        if change.column == DIGEST:
            yield "nothing in these columns, but the stored result differs (digest)"
        elif change.column and change.column != FAILURES and not (by_rule and change.column == "violations"):
            yield f"{change.column} {_figure(change.before)} → {_figure(change.after)}"
    failures = [change for change in changes if change.column == FAILURES]
    for verb, found in (
        ("new", [change.after for change in failures if change.after]),
        ("gone", [change.before for change in failures if change.before]),
    ):
        if found:
            more = ", …" if len(found) > _NAMED else ""
            yield f"{counted(len(found), f'{verb} failure')} ({', '.join(map(str, found[:_NAMED]))}{more})"


def _figure(text: str | None) -> str:
    """A number of many digits with three; ``-`` for what one of the two has not."""
    if text is None or len(text) <= _DIGITS:
        return "-" if text is None else text
    try:
        return short(float(text))
    except ValueError:
        return text


def _along(
    row: Row, axis: str, axes: list[str], values: list[Any], places: dict[Any, int], at: dict[tuple[Any, ...], Row]
) -> Iterator[Change]:
    """The changes from the nearest earlier value of one axis, at which there is a job.

    Args:
        row: the job's.
        axis: the column; ``axes``: all such columns.
        values: the axis's, in the order of the sweep; ``places``: the place of each there.
        at: values of all axes → row.
    """
    for value in reversed(values[: places[row.get(axis)]]):
        other = at.get(tuple(value if name == axis else row.get(name) for name in axes))
        if other is not None:
            break
    else:
        return
    others = ", ".join(f"{name.removeprefix(OVERRIDE)}={row.get(name)}" for name in axes if name != axis)
    head = (axis.removeprefix(OVERRIDE), _text(value) or "", _text(row.get(axis)) or "", others, str(other["dir"]))
    found = [Change(*head, *parts) for parts in _differing(other, row)]
    yield from found or [Change(*head)]


def _differing(before: Row, after: Row) -> Iterator[tuple[str, str | None, str | None]]:
    """Columns that differ. What a job did not establish, for it was cut short, is compared with nothing."""
    found = [*_values(before, after), *_failures(before, after)]
    if not found and before.get(DIGEST) and after.get(DIGEST) and before[DIGEST] != after[DIGEST]:
        found.append((DIGEST, before[DIGEST], after[DIGEST]))
    yield from found


def _values(before: Row, after: Row) -> Iterator[tuple[str, str | None, str | None]]:
    for column in dict.fromkeys((*before, *after)):
        stage = "constrain" if column.startswith("violations") else _STAGE.get(column)
        if stage is None and column != "verdict" and not column.startswith("stage."):
            continue
        if stage is not None and not all(row.get(f"stage.{stage}") in _RESULT for row in (before, after)):
            continue
        there, here = before.get(column), after.get(column)
        if column.startswith("violations."):  # a rule that was checked and has no finding has no column of its own
            there = 0 if there is None and before.get("violations") is not None else there
            here = 0 if here is None and after.get("violations") is not None else here
        if there != here:
            yield column, _text(there), _text(here)


def _failures(before: Row, after: Row) -> Iterator[tuple[str, str | None, str | None]]:
    gone, new = failures_in(before), failures_in(after)
    for fingerprint in [key for key in gone if key not in new and _looked_for(gone[key], before, after)]:
        yield FAILURES, fingerprint, None
    for fingerprint in [key for key in new if key not in gone and _looked_for(new[key], after, before)]:
        yield FAILURES, None, fingerprint


def _looked_for(failure: ReproRecord, met: Row, row: Row) -> bool:
    """Whether a job would have told of a failure that another ``met``: its stages came to an end, those that look for
    such to a result, as the other's did, and each violation has its script, of which so many are written."""
    if rule_of(failure):
        return _is_whole(row) and row.get("stage.constrain") in _RESULT and not may_be_in(row, failure)
    looked = [stage for stage in ("stage.kerneldiff", "stage.minify") if met.get(stage) in _RESULT]
    return _is_whole(row) and all(row.get(stage) in _RESULT for stage in looked)


def _is_whole(row: Row) -> bool:
    """Whether a job's stages all came to an end of their own."""
    statuses = [value for key, value in row.items() if key.startswith("stage.")]
    return bool(statuses) and not any(status in _WITHOUT for status in statuses)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
