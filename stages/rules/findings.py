"""Which rows are one finding.

A finding is what a user changes once. Of the rule ``operation`` that is one call in the source. Dynamo's graph has it
under the user's name; AOTAutograd's forward and backward graphs have the operations that it became. Each of these
graphs has a row where a deny or an allow list names one of them. Of every other rule it is one row, for no tensor is
looked at in two graphs. A call that Dynamo traced several times (a loop, a second graph) is several.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from inductor_debug.stages.graphs.records import GraphRecord, kind_of, number_of
from inductor_debug.stages.rules.violation import Violation

Row = TypeVar("Row")
Key = tuple[object, ...]
WORST_FIRST = ("error", "warning", "undecided", "waived")


def with_findings(rows: Iterable[Violation], graphs: Iterable[GraphRecord]) -> list[Violation]:
    """``rows`` with the id of their finding, ``f1``, ``f2``, … in the order of the first row of each."""
    rows = list(rows)
    origins = {(graph.id, node.name): node.origins for graph in graphs for node in graph.nodes}
    own: dict[Key, Key] = {}
    for row in rows:
        if _is_call(row):
            own.setdefault(_call(row, row.node), _inside(row))
    numbers: dict[Key, str] = {}
    result = []
    for position, row in enumerate(rows):
        key: Key = (position,)
        if _is_call(row):
            key = _inside(row)
        elif row.rule == "operation":
            calls = origins.get((row.graph, row.node)) or [f"{row.graph} {row.node}"]
            known = (own[call] for name in calls if (call := _call(row, name)) in own)
            key = next(known, _call(row, calls[0]))
        result.append(row.but(finding=numbers.setdefault(key, f"f{len(numbers) + 1}")))
    return result


def by_finding(rows: Iterable[Row], id_of: Callable[[Row], str | None]) -> list[list[Row]]:
    """The rows of each finding, in the order of their first; a row without an id is one of its own."""
    groups: dict[object, list[Row]] = {}
    for position, row in enumerate(rows):
        groups.setdefault(id_of(row) or position, []).append(row)
    return list(groups.values())


def severity_of(severities: Iterable[str]) -> str:
    """A finding's severity: the worst of its rows', so that it is waived where each of them is."""
    return min(severities, key=lambda each: WORST_FIRST.index(each) if each in WORST_FIRST else 0)


def _is_call(row: Violation) -> bool:
    """Whether a row is of the user's own call, in Dynamo's graph."""
    return row.rule == "operation" and kind_of(row.graph) == "dynamo"


def _call(row: Violation, name: str) -> Key:
    return (row.effect, number_of(row.graph), name)


def _inside(row: Violation) -> Key:
    """A call in the body of a higher-order operator has the operator's name, and a line of its own."""
    return (*_call(row, row.node), row.source, row.target)
