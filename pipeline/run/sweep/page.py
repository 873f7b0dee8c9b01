"""``sweep.html``: a sweep for someone who was not there, in the hand of a run's report."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.run.compiled_by import NOT_KNOWN, differ, side_by_side
from inductor_debug.pipeline.run.sweep.changes import OVERRIDE, Change, axes_of, what_changed
from inductor_debug.pipeline.run.sweep.pivots import MEASURES, STATES, TIMED, pivots, short_name, text_of
from inductor_debug.pipeline.run.sweep.rows import BROKEN, COMPILED, RUN, Row, failures_in, may_be_in
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.report.html import environment_of, write_page

_COMPARED = ("exact", "within_floor", "within_tolerance", "defect")
"""Verdicts that rest on numbers of both sides: a backend that was not exercised, say, is none of them."""
_WORST = ("crashed", "rejected", "failed", "not_established", "passed")


def sweep_page(name: str, sweep_dir: Path, rows: Sequence[Row], changes: Sequence[Sequence[Change]]) -> str:
    """The page.

    Args:
        name: the sweep's id.
        sweep_dir: its directory, to whose reports the page leads.
        rows, changes: the jobs', in the same order.
    """
    axes = axes_of(rows)
    no_times = dict.fromkeys(TIMED, "not established")
    rows = [row | no_times if row.get("established") is False else row for row in rows]
    labels = [_label(row, axes) for row in rows]
    pages = [_page(sweep_dir, row) for row in rows]
    verdicts = Counter(str(row.get("verdict")) for row in rows)
    worst = next((verdict for verdict in _WORST if verdicts[verdict]), "not_established")
    shown = _columns(rows, axes)
    jobs = [
        {
            "label": _number(row),
            "page": page,
            "state": STATES.get(str(row.get("verdict")), "unknown"),
            "cells": [row.get(column) for column in shown],
        }
        for row, page in zip(rows, pages, strict=True)
    ]
    variables = {
        "title": f"{_model(rows)}{counted(len(rows), 'job')} over {', '.join(map(short_name, axes)) or 'no axis'}",
        "verdict": "failed" if worst == "rejected" else worst,
        "sentence": _sentence(name, rows, axes, verdicts),
        "then": _then(sweep_dir, rows, worst),
        "pivots": pivots(rows, axes, pages, labels),
        "changes": _changes(rows, changes, pages),
        "failures": _failures(rows, pages),
        "jobs": jobs,
        "columns": [short_name(column) for column in shown],
        "compiled": _compiled(rows, pages),
        "same": _same(rows, axes) | _compiled_alike(rows),
    }
    return write_page(str(Path(__file__).with_name("sweep.html")), environment_of(), variables)


def _sentence(name: str, rows: Sequence[Row], axes: Sequence[str], verdicts: Mapping[str, int]) -> str:
    ended = ", ".join(f"{verdicts[verdict]} {verdict.replace('_', ' ')}" for verdict in _WORST if verdicts[verdict])
    values = [f"{counted(len({row.get(axis) for row in rows}), 'value')} of {short_name(axis)}" for axis in axes]
    failures = {key for row in rows for key in failures_in(row)}
    met = f" {counted(len(failures), 'failure was', 'different failures were')} met." if failures else ""
    found, numbers = _fit(rows), _numbers(rows)
    kept = sum(bool(row.get("cached")) for row in rows)
    kept_of = f" {counted(kept, 'job')} took results of stages from the cache: these were not measured again."
    reused = kept_of if kept else ""
    return f"The sweep {name} has {', '.join(values) or 'no axis'}: {ended}.{found}{numbers}{met}{reused}"


def _fit(rows: Sequence[Row]) -> str:
    """How many jobs fit the profile, of those that were checked."""
    counts = [row[BROKEN] for row in rows if row[BROKEN] is not None]
    unclear = sum(row[BROKEN] is None and row.get("violations") is not None for row in rows)
    unknown = f" Of {counted(unclear, 'job')} it is not established whether the model fits." if unclear else ""
    if not counts:
        return unknown
    fit = sum(not count for count in counts)
    some = [count for count in counts if count]
    span = " to ".join(dict.fromkeys(map(str, (min(some), max(some))))) if some else ""
    others = "each" if not fit else "the other" if len(some) == 1 else "the others"
    found = f": {span} {'violation' if span == '1' else 'violations'} in {others}"
    return (
        f" {fit or 'None'} of {counted(len(counts), 'job')} that {'was' if len(counts) == 1 else 'were'} checked "
        f"{'fits' if fit < 2 else 'fit'} the profile{found if some else ''}.{unknown}"
    )


def _numbers(rows: Sequence[Row]) -> str:
    """In how many jobs the numbers are right, wrong, or not known."""
    right = sum(row.get("numerics") in _COMPARED[:-1] for row in rows)
    wrong = sum(row.get("numerics") == _COMPARED[-1] for row in rows)
    if not right + wrong:
        return " Numbers were compared in none of them."
    if right == len(rows):
        return " The numbers are right in all."
    rest = len(rows) - right - wrong
    parts = [f"{verb} in {count}" for verb, count in (("right", right), ("wrong", wrong), ("not known", rest)) if count]
    return f" The numbers are {', '.join(parts)}."


def _model(rows: Sequence[Row]) -> str:
    """The model's name and a colon where all jobs that ran have one; else nothing."""
    names = {row["model"] for row in rows if row.get("model")}
    return f"{names.pop()}: " if len(names) == 1 else ""


def _then(sweep_dir: Path, rows: Sequence[Row], worst: str) -> list[str]:
    """Commands for what is worst in the sweep."""
    folder = shlex.quote(str(sweep_dir))
    bad = next((row for row in rows if row.get("verdict") == worst), None)
    commands = [f"inductor-debug repro {folder}"] if any(failures_in(row) for row in rows) else []
    if bad is not None and worst != "passed":
        commands.append(f"inductor-debug show {shlex.quote(str(sweep_dir / str(bad['dir'])))}")
    return [*commands, f"inductor-debug compare {folder} LATER_SWEEP"]


def _number(row: Row) -> str:
    """Hydra's number of a job, with which its folder begins; the folder where it does not."""
    number, dash, _ = str(row["dir"]).partition("-")
    return number if dash and number.isdigit() else str(row["dir"])


def _changes(rows: Sequence[Row], changes: Sequence[Sequence[Change]], pages: Sequence[str]) -> list[dict[str, Any]]:
    """Each step from a neighbour in which something changed; those in which the same changed are one."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row, steps, page in zip(rows, changes, pages, strict=True):
        for axis in dict.fromkeys(change.axis for change in steps if change.column):
            own = [change for change in steps if change.axis == axis]
            first, text = own[0], what_changed(own)
            step = found.setdefault((axis, first.axis_before, first.axis_after, text), {
                "label": _number(row), "page": page, "axis": axis, "before": first.axis_before,
                "after": first.axis_after, "others": first.others, "jobs": 0, "text": text})  # fmt: skip
            step["jobs"] += 1
    return list(found.values())


def _failures(rows: Sequence[Row], pages: Sequence[str]) -> list[dict[str, Any]]:
    """Each failure by its fingerprint, with the job that met it first, those of the most jobs first."""
    known: dict[str, dict[str, Any]] = {}
    for row, page in zip(rows, pages, strict=True):
        for key, failure in failures_in(row).items():
            entry = known.setdefault(key, {
                "fingerprint": key, "failure": failure.failure or failure.failure_class, "target": failure.target,
                "source": failure.source, "jobs": 0, "label": _number(row), "page": page,
                "at_least": any(may_be_in(each, failure) for each in rows)})  # fmt: skip
            entry["jobs"] += 1
    return sorted(known.values(), key=lambda entry: -entry["jobs"])


def _columns(rows: Sequence[Row], axes: Sequence[str]) -> list[str]:
    fixed = ("verdict", "error", "seconds", *(name for name in MEASURES if name != "verdict"))
    return [*axes, *(name for name in fixed if any(row.get(name) not in (None, "") for row in rows))]


def _same(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, Any]:
    """What ran, and what was typed, where it is the same in every job."""
    names = [*RUN[:-1], *dict.fromkeys(key for row in rows for key in row if key.startswith(OVERRIDE))]
    return {short_name(name): rows[0].get(name) for name in names
            if name not in axes and rows and len({text_of(row.get(name)) for row in rows}) == 1
            and rows[0].get(name) is not None}  # fmt: skip


def _compiled(rows: Sequence[Row], pages: Sequence[str]) -> list[dict[str, Any]]:
    """What compiled the jobs, where it is not the same in all that recorded it: a row a value."""
    found: list[dict[str, Any]] = []
    for key, values in side_by_side([row[COMPILED] for row in rows]).items():
        jobs: dict[str, list[tuple[Row, str]]] = {}
        for row, page, value in zip(rows, pages, values, strict=True):
            if value != NOT_KNOWN:
                jobs.setdefault(text_of(value), []).append((row, page))
        if differ(values):
            found += [{"what": key, "value": value, "jobs": len(with_it), "label": _number(with_it[0][0]),
                       "page": with_it[0][1]} for value, with_it in jobs.items()]  # fmt: skip
    return found


def _compiled_alike(rows: Sequence[Row]) -> dict[str, Any]:
    """What compiled the jobs, where it is the same in all that recorded it."""
    known = side_by_side([row[COMPILED] for row in rows]).items()
    return {key: next(value for value in values if value != NOT_KNOWN) for key, values in known if not differ(values)}


def _page(sweep_dir: Path, row: Row) -> str:
    """A job's report relative to the sweep; "" where there is none."""
    path = Path(str(row["dir"])) / files.REPORT_PAGE.path
    return path.as_posix() if (sweep_dir / path).is_file() and not path.is_absolute() else ""


def _label(row: Row, axes: Iterable[str]) -> str:
    return ", ".join(f"{short_name(axis)}={text_of(row.get(axis))}" for axis in axes) or str(row["id"])
