"""Whether the model still fits: findings of ``constrain`` that are new, and what they cost."""

from collections import defaultdict
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

from inductor_debug.pipeline.query.gate.judgement import Scales
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.rules.findings import by_finding, severity_of
from inductor_debug.stages.stored_run import StoredRun

SEVERITIES = ("", "waived", "undecided", "warning", "error")
"""From best to worst."""
_HARMLESS = SEVERITIES.index("waived")
"""A waived finding is accepted, so that it is as good as none."""


class Place(NamedTuple):
    """What makes two runs' findings the same one: no node's name and no line's number, which any edit changes."""

    rule: str
    effect: str
    target: str
    operand: str
    module: str
    file: str

    def __str__(self) -> str:
        where = " in ".join(filter(None, (f"{self.target} {self.operand}".strip(), self.module or self.file)))
        return f"finding {self.rule} ({self.effect}): {where}"


def hold_fit(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    """Hold the findings of B, each by its place, and what those of a rule and effect cost together."""
    tables = [files.VIOLATIONS.read(run.artifacts) if _checked(run) else None for run in (a, b)]
    before, now = tables
    if before is None or now is None:
        key = "cost_bytes" if scales.limit("findings") is None else "findings"
        scales.lacks(key, "findings", *(None if rows is None else len(rows) for rows in tables))
        return
    _hold_findings(scales, before, now)
    costs = [_costs(run) for run in (a, b)]
    for rule, effect in dict.fromkeys([*costs[0], *costs[1]]):
        scales.amount("cost_bytes", f"cost of {rule} ({effect})", *(cost.get((rule, effect), 0) for cost in costs))


def _checked(run: StoredRun) -> bool:
    """Whether rules were looked at: a run without any stores an empty table too, and no count."""
    return run.head.violations is not None and run.head.violations.total is not None


def _hold_findings(scales: Scales, before: list[Row], now: list[Row]) -> None:
    limit = scales.limit("findings")
    if limit is None:
        return
    sides = [_severities(rows) for rows in (before, now)]
    worse, more = [], 0
    for place in dict.fromkeys([*sides[0], *sides[1]]):
        a, b = (side.get(place, []) for side in sides)
        pairs = list(zip_longest(a, b, fillvalue=_HARMLESS))
        steps = sum(then < later for then, later in pairs)
        if steps:
            worse.append((str(place), _words(a), _words(b), f"{steps:+d} new or of a worse severity"))
            more += steps
        elif any(then > later for then, later in pairs):
            scales.better("findings", str(place), _words(a), _words(b), "gone, or of a better severity")
    if more > limit:
        for what, was, became, change in worse:
            scales.worse("findings", what, was, became, change)


def _severities(rows: list[Row]) -> dict[Place, list[int]]:
    """Place → the severities of its findings, the worst first; those that are accepted are left out."""
    found = defaultdict(list)
    for finding in by_finding(rows, lambda row: str(row.get("finding") or "") or None):
        severity = severity_of(str(row["severity"]) for row in finding)
        rank = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES) - 1
        if rank > _HARMLESS:
            found[_place(finding[0])].append(rank)
    return {place: sorted(ranks, reverse=True) for place, ranks in found.items()}


def _place(row: Row) -> Place:
    target, operand, module = (str(row.get(key) or "") for key in ("target", "operand", "module"))
    file = PurePosixPath(str(row["source"] or "").rpartition(":")[0]).name
    return Place(str(row["rule"]), str(row["effect"]), target, operand, module, file)


def _words(ranks: list[int]) -> str | None:
    return ", ".join(f"{ranks.count(rank)} {SEVERITIES[rank]}" for rank in dict.fromkeys(ranks)) or None


def _costs(run: StoredRun) -> dict[tuple[str, str], int | None]:
    """Bytes by rule and effect; None where that is not known."""
    rows = files.BY_RULE.read(run.artifacts) or []
    return {(str(row["rule"]), str(row["effect"])): row["cost_bytes"] for row in rows}
