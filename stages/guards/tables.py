"""What an inspection of guards stores: one JSON file and three tables.

``guards/guards.json``      every compiled graph with its guards, and everything that the tables have
``guards/breaks.csv``       one row a graph break: where, why, what to do; ``seen_in`` lists the calls that met it
``guards/recompiles.csv``   one row a guard that failed: which variation, under which policy, what would spare it
``guards/variations.csv``   one row a variation: how it was made, what became of it under each policy
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pandas

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.guards import (
    BreakRow,
    FirstCall,
    GuardedGraph,
    Guards,
    LimitRow,
    RecompiledFrame,
    RecompileRow,
    VariationRow,
)
from inductor_debug.stages.artifacts.records import GuardCounts
from inductor_debug.stages.guards.comparison import differences
from inductor_debug.stages.guards.records import (
    LIMIT_HIT,
    POLICIES,
    RECOMPILED,
    REFUSED_BY_COMPILER,
    Call,
    GuardReport,
    Variation,
)

BREAK_COLUMNS = [
    "graph", "compile_id", "kind", "reason", "explanation", "suggestion", "hints", "documentation", "file", "line",
    "function", "code", "seen_in",
]  # fmt: skip
RECOMPILE_COLUMNS = [
    "variation", "step", "policy", "guard", "source", "compile_id", "graph", "failed", "failed_graph", "function",
    "file", "line", "limit", "suggestion",
]  # fmt: skip
VARIATION_COLUMNS = [column.name for column in dataclasses.fields(VariationRow)]
FIRST_CALL = "first call"


def artifacts(report: GuardReport) -> dict[str, Any]:
    """The files, by path relative to the run."""
    return {
        files.GUARDS.path: content(report),
        files.GUARD_BREAKS.path: table(
            [vars(row) | {"hints": " ".join(row.hints), "seen_in": "; ".join(row.seen_in)} for row in breaks(report)],
            BREAK_COLUMNS,
        ),
        files.GUARD_RECOMPILES.path: table(map(vars, recompiles(report)), RECOMPILE_COLUMNS),
        files.GUARD_VARIATIONS.path: table(map(vars, variations(report)), VARIATION_COLUMNS),
    }


def table(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> pandas.DataFrame:
    """Rows in stable columns; whole numbers stay whole where some are missing."""
    numbers = {name: "Int64" for name in ("line", "step") if name in columns}
    return pandas.DataFrame([*rows], columns=columns).astype(numbers)


def call_name(policy: str, variation: Variation | None) -> str:
    """``batch 1, automatic``: which call, for a person."""
    name = FIRST_CALL if variation is None else f"{variation.kind} {variation.step}"
    return f"{name}, {policy}"


def breaks(report: GuardReport) -> list[BreakRow]:
    """Each break once, though several calls met it. The graph is that of the first such call, torch's default first."""
    found: dict[tuple[Any, ...], BreakRow] = {}
    calls = sorted(report.every_call(), key=lambda entry: (entry[1] is not None, entry[0] != "automatic"))
    for policy, variation, call in calls:
        for item in call.breaks:
            same = (item.kind, item.reason, item.file, item.line, item.code, item.function)
            seen = found.setdefault(same, BreakRow(**vars(item), seen_in=[])).seen_in
            seen += [name for name in [call_name(policy, variation)] if name not in seen]
    return list(found.values())


def recompiles(report: GuardReport) -> list[RecompileRow]:
    """One row a guard that failed; a frame compiled anew after several has one for each."""
    return [
        RecompileRow(
            variation.kind if variation else FIRST_CALL, variation.step if variation else None, policy, **vars(item)
        )
        for policy, variation, call in report.every_call()
        for item in call.recompiles
    ]


def variations(report: GuardReport) -> list[VariationRow]:
    """One row a variation, with its outcome under each policy."""
    rows = []
    for item in report.variations:
        told = [item.message, *(f"{policy}: {call.message}" for policy, call in item.calls.items() if call.message)]
        about = (item.kind, item.step, item.change, item.established_by, item.eager)
        static, automatic, dynamic = map(item.outcome, POLICIES)
        rows.append(VariationRow(*about, static, automatic, dynamic, "; ".join(filter(None, told))))
    return rows


def limits(report: GuardReport) -> list[LimitRow]:
    """Limits that were reached, each frame and call once, with the option that raises them."""
    found = (
        LimitRow(**vars(limit), option=f"torch._dynamo.config.{limit.name}", call=call_name(policy, variation))
        for policy, variation, call in report.every_call()
        for limit in call.limits
    )
    return list(dict.fromkeys(found))


def not_established(report: GuardReport) -> list[str]:
    """What the inspection can't say, one sentence each."""
    told = {"not_called": "{}", "refused": "the model itself refuses it ({})"}
    uncalled = sorted((item for item in report.variations if item.eager in told), key=lambda item: item.eager)
    notes = [f"{item.kind} {item.step}: {told[item.eager].format(item.message)}" for item in uncalled]
    notes += [
        f"what varies with {policy} sizes: the first call raised {base.message}"
        for policy, base in report.bases.items()
        if base.outcome == REFUSED_BY_COMPILER
    ]
    notes += [
        f"which guards of {frame.graph} dynamic shapes would remove: {frame.not_established}"
        for frame in report.graphs
        if frame.not_established
    ]
    return notes


def content(report: GuardReport) -> Guards:
    """``guards/guards.json``."""
    return Guards(
        policies={name: _first_call(report.bases[name], dynamic) for name, dynamic in POLICIES.items()},
        graphs=[GuardedGraph(**vars(frame), dynamic_shapes=frame.changes()) for frame in report.graphs],
        recompiled=_recompiled(report),
        recompiling=report.recompiling(),
        variations=variations(report),
        recompiles=recompiles(report),
        breaks=breaks(report),
        limits=limits(report),
        not_established=not_established(report),
    )


def _first_call(call: Call, dynamic: bool | None) -> FirstCall:
    counts = sum(frame.graph is not None for frame in call.frames), len(call.breaks)
    return FirstCall(dynamic, call.outcome, call.message, *counts, sum(len(frame.guards) for frame in call.frames))


def _recompiled(report: GuardReport) -> list[RecompiledFrame]:
    found = []
    for policy, variation, call in report.every_call():
        if variation is None:
            continue
        first = {frame.place: frame for frame in reversed(report.bases[policy].frames)}
        for frame in call.frames:
            before = first.get(frame.place)
            about = (frame.compile_id, frame.graph, frame.function, frame.file, frame.line, len(frame.guards))
            first_id, gone, new = (before.compile_id, *differences(frame, before)) if before else (None, [], [])
            found.append(RecompiledFrame(call_name(policy, variation), *about, first_id, gone, new))
    return found


def summary(report: GuardReport) -> GuardCounts:
    """The ``guards`` part of ``summary.json``."""
    outcomes = [item.outcome(policy) for item in report.variations for policy in POLICIES if item.kind != "repeat"]
    return GuardCounts(
        graphs=len(report.graphs),
        guards=sum(len(frame.guards) for frame in report.graphs),
        breaks=len(report.bases["automatic"].breaks),
        variations=sum(item.kind != "repeat" for item in report.variations),
        recompiling=report.recompiling(),
        recompiled=outcomes.count(RECOMPILED),
        limits_hit=outcomes.count(LIMIT_HIT) + sum(bool(base.limits) for base in report.bases.values()),
        refused_by_compiler=len(report.refusals()),
        refused_by_model=sum(item.eager == "refused" for item in report.variations),
        not_established=sum(item.eager == "not_called" for item in report.variations),
        dynamic_shapes=report.changes(),
    )
