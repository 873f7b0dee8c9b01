"""What the findings come to: by rule and effect, and the source lines that would repay a change most."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from inductor_debug.stages.artifacts.tables import ViolationRow
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.findings import by_finding, severity_of
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations

if TYPE_CHECKING:
    import pandas

COLUMNS = ["rule", "effect", "findings", "waived", "undecided", "nodes", "nodes_share", "cost_bytes", "bytes_share",
           "flops", "flops_share"]  # fmt: skip
LINES = 10
SUGGESTIONS = 3
"""So many different suggestions for one line are given in full."""
AnyViolation = Violation | ViolationRow
LAYERS = "/torch/nn/modules/"
"""Part of the path of a line that stands in where the model is a layer of torch's, or an ``nn.Sequential`` of them."""


def by_rule(violations: Violations, graphs: Iterable[GraphRecord]) -> "pandas.DataFrame":
    """One row for each rule and effect with findings, the most findings first.

    Columns: ``nodes`` is the operations that such a finding concerns (see
    :class:`~stages.rules.affected.AffectedOperations`), ``nodes_share`` their share of all. ``cost_bytes`` is what the
    findings cost together, ``bytes_share`` that over the bytes of all tensors of the graphs: each once, with inputs and
    parameters, without views. ``flops`` is of those operations, ``flops_share`` over all FLOPs that are known. No share
    but that of padding's and copies' bytes is above 1. All are of AOTAutograd's graphs where there are any. Where it
    can't be told which of their operations a finding in Dynamo's graphs concerns, ``nodes``, ``cost_bytes`` and
    ``flops`` are None. Waived findings count only under ``waived``.
    """
    import pandas

    affected = AffectedOperations(graphs)
    nodes, nbytes, flops = affected.totals()
    groups: dict[tuple[str, str], list[Violation]] = defaultdict(list)
    for row in violations:
        groups[row.rule, row.effect].append(row)
    rows = []
    for (rule, effect), group in groups.items():
        found = _row(rule, effect, group, affected)
        for name, column, total in (
            ("nodes", "nodes", nodes),
            ("bytes", "cost_bytes", nbytes),
            ("flops", "flops", flops),
        ):
            found[f"{name}_share"] = found[column] / total if total and found[column] is not None else None
        rows.append(found)
    rows.sort(key=lambda row: (-row["findings"], row["rule"], row["effect"]))
    return pandas.DataFrame(rows, columns=COLUMNS, dtype=object)  # whole numbers stay so beside what is not known


def _row(rule: str, effect: str, group: list[Violation], affected: AffectedOperations) -> dict[str, Any]:
    findings = by_finding(group, lambda row: row.finding)
    severities = Counter(severity_of(row.severity for row in rows) for rows in findings)
    counting = [row for row in group if row.severity != "waived"]
    places = affected.operations(counting)
    return {
        "rule": rule,
        "effect": effect,
        "findings": len(findings) - severities["waived"],
        "waived": severities["waived"],
        "undecided": severities["undecided"],
        "nodes": None if places is None else len(places),
        "cost_bytes": affected.cost(counting),
        "flops": None if places is None else affected.flops(places),
    }


def top_lines(rows: Iterable[AnyViolation], code: Mapping[str, str]) -> list[dict[str, Any]]:
    """The :data:`LINES` source lines that would repay a change most: by the bytes that their findings cost, then by the
    share of FLOPs, then by their number. A line of torch's own layers is one for each module.

    Args:
        rows: as they are found, or of ``violations.csv``.
        code: ``file:line`` → what stands there.
    """
    groups: dict[tuple[str, str], list[AnyViolation]] = defaultdict(list)
    for row in rows:
        if row.severity != "waived":
            layer = row.module if LAYERS in row.source else ""  # the line says nothing of the user's model
            groups[row.source, layer].append(row)
    lines = [
        _line(source, group, ": ".join(filter(None, (layer and f"module {layer}", code.get(source, "")))))
        for (source, layer), group in groups.items()
    ]
    lines.sort(key=lambda line: (-line["cost_bytes"], -(line["flops_share"] or 0), -line["findings"], line["source"]))
    return lines[:LINES]


def _line(source: str, group: list[AnyViolation], code: str) -> dict[str, Any]:
    findings = by_finding(group, lambda row: row.finding)
    tried = Counter(text for rows in findings for text in {row.suggestion for row in rows})
    return {
        "source": source or "(no source line recorded)",
        "code": code,
        "findings": len(findings),
        "rules": ", ".join(sorted({f"{row.rule} ({row.effect})" for row in group})),
        "cost_bytes": _cost(group),
        "flops_share": _flops_share(group),
        "suggestion": suggestions(tried),
    }


def _cost(group: list[AnyViolation]) -> int:
    """Bytes that a line costs, in the picture of it (Dynamo's, or AOTAutograd's) in which that is more."""
    pictures: Counter[bool] = Counter()
    for row in group:
        pictures[row.graph.endswith(".dynamo")] += row.cost_bytes or 0
    return max(pictures.values())


def _flops_share(group: list[AnyViolation]) -> float | None:
    """Share of its graph's FLOPs that a line's operations take to the host, or lose; each operation once.

    Of several graphs the largest share: Dynamo's is another picture of AOTAutograd's.
    """
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for row in group:
        if row.cost_share and (row.effect == "fallback" or row.rule == "operation"):
            share, nodes = row.cost_share, shares[row.graph]
            if row.rule == "dynamic_shape":  # of several symbols' operations, which may be the same
                nodes["symbols"] = max(share, nodes.get("symbols", 0.0))
            else:
                nodes[f"node {row.node}"] = share
    return max((min(1.0, sum(nodes.values())) for nodes in shares.values()), default=None)


def suggestions(counts: Counter[str]) -> str:
    """What to try for a line's findings: one suggestion, each of a few with its findings, or the most common."""
    ordered = counts.most_common()
    if len(ordered) == 1:
        return ordered[0][0]
    each = [f"{text} ({counted(number, 'finding')})" for text, number in ordered]
    if len(each) <= SUGGESTIONS:
        return "; ".join(each)
    return f"{len(each)} different changes, most common: {each[0]}"
