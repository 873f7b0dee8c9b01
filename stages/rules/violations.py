"""What the rules found: a table with SPEC's columns, and what it means for the verdict."""

import datetime
import fnmatch
import functools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inductor_debug.models.options import INT64
from inductor_debug.stages.accelerators.config import Waiver
from inductor_debug.stages.accelerators.profile import Profile, expiry, has_expired
from inductor_debug.stages.artifacts import records
from inductor_debug.stages.graphs.records import kind_of
from inductor_debug.stages.rules.findings import by_finding, severity_of
from inductor_debug.stages.rules.violation import Violation

if TYPE_CHECKING:
    import pandas

PLACEHOLDERS = ("parameter", "buffer", "input", "saved", "constant", "tangent")
"""Operands of a row that is about a tensor which no operation of its graph makes."""

KINDS = ("dynamo", "joint", "forward", "backward")

log = logging.getLogger(__name__)

COLUMNS = ["graph", "node", "target", "operand", "module", "source", "rule", "effect", "severity", "measured", "limit",
           "cost_bytes", "cost_share", "message", "suggestion", "finding"]  # fmt: skip


def nullable_integers(values: list[int | None]) -> Any:
    """A column of integers, NA where one is not known: Int64, object where one needs more than 64 bits.

    pandas makes floats of integers beside None, so that the column is made of the values themselves.
    """
    import pandas

    if all(value is None or abs(value) <= INT64 for value in values):
        return pandas.array(values, dtype="Int64")
    return pandas.Series([pandas.NA if value is None else value for value in values], dtype=object)


@dataclass(frozen=True)
class Violations:
    """All rows of one check, in the order of graphs and nodes. Counted is by :attr:`findings`.

    Attributes:
        rows: the violations.
        profile: what they were checked against.
        graphs: ids of the graphs that were checked.
    """

    rows: tuple[Violation, ...] = ()
    profile: Profile = field(default_factory=Profile)
    graphs: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Violation]:
        return iter(self.rows)

    @property
    def table(self) -> "pandas.DataFrame":
        """The rows as a table with SPEC's columns in SPEC's order."""
        import pandas

        frame = pandas.DataFrame({column: [getattr(row, column) for row in self.rows] for column in COLUMNS})
        frame["cost_bytes"] = nullable_integers([row.cost_bytes for row in self.rows])
        return frame.astype({"cost_share": "Float64"})

    @functools.cached_property
    def findings(self) -> list[list[Violation]]:
        """The rows of each finding: of a denied call first that of Dynamo's graph, then forward, then backward."""
        groups = by_finding(self.rows, lambda row: row.finding)
        return [sorted(group, key=_in_source_order) for group in groups]

    @functools.cached_property
    def by_severity(self) -> dict[str, int]:
        """Findings by severity."""
        severities = (severity_of(row.severity for row in group) for group in self.findings)
        return dict(sorted(Counter(severities).items()))

    @property
    def failed(self) -> bool:
        """True where a strict profile is broken, or can't be shown to be kept."""
        counts = self.by_severity
        return bool(counts.get("error") or (self.profile.strict and counts.get("undecided")))

    def summary(self) -> records.Violations:
        """``violations`` of summary.json; ``total`` is None where the profile has no rules."""
        found = [group[0] for group in self.findings]
        return records.Violations(
            total=len(found) if self.profile.rules else None,
            by_rule=dict(sorted(Counter(row.rule for row in found).items())),
            by_effect=dict(sorted(Counter(row.effect for row in found).items())),
            by_severity=self.by_severity,
            strict=self.profile.strict,
        )


def _in_source_order(row: Violation) -> int:
    kind = kind_of(row.graph)
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def waive(rows: Iterable[Violation], waivers: Iterable[Waiver], today: datetime.date) -> list[Violation]:
    """``rows`` with those that a waiver accepts marked ``waived``. An expired waiver leaves its rows as they are."""
    waivers = list(waivers)
    used = set()
    result = []
    for row in rows:
        for index, waiver in enumerate(waivers):
            if _matches(waiver, row):
                used.add(index)
                row = _accept(row, waiver, today)
                if row.severity == "waived":
                    break
        result.append(row)
    for index, waiver in enumerate(waivers):
        if index not in used:
            log.warning("waiver %d (%s) matches no finding", index, waiver.reason)
    return result


def unused_waivers(violations: Violations) -> list[Waiver]:
    """The profile's waivers that fit no row."""
    return [item for item in violations.profile.waivers if not any(_matches(item, row) for row in violations)]


def expired_waivers(violations: Violations, today: datetime.date) -> list[Waiver]:
    """The profile's waivers that would accept a row, had they not expired."""
    over = [item for item in violations.profile.waivers if has_expired(item, today)]
    counted = [row for row in violations if row.severity != "waived"]
    return [item for item in over if any(_matches(item, row) for row in counted)]


def _matches(waiver: Waiver, row: Violation) -> bool:
    from inductor_debug.stages.graphs.operation_names import Operation

    names = {row.target}
    if row.operand not in PLACEHOLDERS:  # an input called x is no aten.x
        names |= Operation.of_target(row.target).names
    return (
        fnmatch.fnmatchcase(row.rule, waiver.rule)
        and fnmatch.fnmatchcase(row.source, waiver.source)
        and any(fnmatch.fnmatchcase(name, waiver.target) for name in names)
    )


def _accept(row: Violation, waiver: Waiver, today: datetime.date) -> Violation:
    expires = expiry(waiver)
    if has_expired(waiver, today):
        return row.but(message=f"{row.message} (a waiver expired on {expires}: {waiver.reason})")
    until = "" if expires is None else f" until {expires}"
    return row.but(severity="waived", message=f"{row.message} (waived{until}: {waiver.reason})")
