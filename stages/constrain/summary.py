"""What the findings come to: by rule and effect, and the source lines that would repay a change most. Free of torch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stages.constrain.subjects import CALLS, tensors
from stages.constrain.violations import Violation, Violations
from stages.graphs import GETITEM, GraphRecord
from stages.wording import counted

if TYPE_CHECKING:
    import pandas

COLUMNS = ["rule", "effect", "findings", "waived", "undecided", "nodes", "nodes_share", "cost_bytes", "bytes_share",
           "flops", "flops_share"]  # fmt: skip
LINES = 10
SUGGESTIONS = 3
"""So many different suggestions for one line are given in full."""


def by_rule(violations: Violations, graphs: Iterable[GraphRecord]) -> "pandas.DataFrame":
    """One row for each rule and effect with findings, the most findings first.

    Columns: ``nodes`` operations with such a finding, ``nodes_share`` of all operations; ``cost_bytes`` what the
    findings cost together, ``bytes_share`` over the bytes that all tensors of the graphs take, each once, inputs and
    parameters included, views not; ``flops`` of those operations,
    ``flops_share`` of all FLOPs that are known. Shares are of the graphs that hold the findings' kind: of AOTAutograd's
    where there are any, for Dynamo's is another picture of the same. Waived findings count under ``waived`` alone.
    """
    import pandas

    records = {graph.id: graph for graph in graphs}
    aten = [graph for graph in records.values() if graph.kind in ("forward", "backward")]
    counted_graphs = aten or list(records.values())
    nodes, nbytes, flops = _totals(counted_graphs)
    ids = {graph.id for graph in counted_graphs}
    groups: dict[tuple[str, str], list[Violation]] = defaultdict(list)
    for row in violations:
        groups[row.rule, row.effect].append(row)
    rows = []
    for (rule, effect), group in groups.items():
        found = _row(rule, effect, group, records, ids)
        found["nodes_share"] = found["nodes"] / nodes if nodes else None
        found["bytes_share"] = found["cost_bytes"] / nbytes if nbytes else None
        found["flops_share"] = found["flops"] / flops if flops else None
        rows.append(found)
    rows.sort(key=lambda row: (-row["findings"], row["rule"], row["effect"]))
    return pandas.DataFrame(rows, columns=COLUMNS)


def _totals(graphs: Iterable[GraphRecord]) -> tuple[int, int, int]:
    """Operations, bytes of the tensors, each once, and known FLOPs."""
    graphs = list(graphs)
    ids = {graph.id for graph in graphs}
    calls = [node for graph in graphs for node in graph.nodes if node.op in CALLS and node.target != GETITEM]
    nbytes = 0
    for graph in graphs:
        shown = graph.kind == "backward" and f"{graph.id.rpartition('.')[0]}.forward" in ids
        subjects = tensors(graph, forward_checked=shown)
        nbytes += sum(subject.tensor.nbytes or 0 for subject in subjects if not subject.node.aliases)
    return len(calls), nbytes, sum(node.flops or 0 for node in calls)


def _row(
    rule: str, effect: str, group: list[Violation], records: Mapping[str, GraphRecord], counted_ids: set[str]
) -> dict[str, Any]:
    severities = Counter(row.severity for row in group)
    counting = [row for row in group if row.severity != "waived"]
    places = {(row.graph, row.node) for row in counting if row.graph in counted_ids}
    nodes = [
        node
        for graph_id in {graph for graph, _ in places}
        for node in records[graph_id].nodes
        if (graph_id, node.name) in places and node.op in CALLS
    ]
    return {
        "rule": rule,
        "effect": effect,
        "findings": len(counting),
        "waived": severities["waived"],
        "undecided": severities["undecided"],
        "nodes": len(nodes),
        "cost_bytes": sum(row.cost_bytes or 0 for row in counting if row.graph in counted_ids),
        "flops": sum(node.flops or 0 for node in nodes),
    }


def top_lines(rows: Iterable[Mapping[str, Any]], code: Mapping[str, str]) -> list[dict[str, Any]]:
    """The :data:`LINES` source lines that would repay a change most: by the bytes that their findings cost, then by the
    share of FLOPs, then by their number.

    Args:
        rows: of ``violations.csv``, as mappings.
        code: ``file:line`` → what stands there.
    """
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["severity"] != "waived":
            groups[row["source"]].append(row)
    lines = [_line(source, group, code.get(source, "")) for source, group in groups.items()]
    lines.sort(key=lambda line: (-line["cost_bytes"], -(line["flops_share"] or 0), -line["findings"], line["source"]))
    return lines[:LINES]


def _line(source: str, group: list[Mapping[str, Any]], code: str) -> dict[str, Any]:
    return {
        "source": source or "(no source line recorded)",
        "code": code,
        "findings": len(group),
        "rules": ", ".join(sorted({f"{row['rule']} ({row['effect']})" for row in group})),
        "cost_bytes": _cost(group),
        "flops_share": _flops_share(group),
        "suggestion": suggestions(Counter(row["suggestion"] for row in group)),
    }


def _cost(group: list[Mapping[str, Any]]) -> int:
    """Bytes that a line costs, in the picture of it (Dynamo's, or AOTAutograd's) in which that is more."""
    pictures: Counter[bool] = Counter()
    for row in group:
        pictures[row["graph"].endswith(".dynamo")] += int(row["cost_bytes"] or 0)
    return max(pictures.values())


def _flops_share(group: list[Mapping[str, Any]]) -> float | None:
    """Share of its graph's FLOPs that a line's operations take to the host, or lose; each operation once.

    Of several graphs the largest share: Dynamo's is another picture of AOTAutograd's.
    """
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for row in group:
        if row["cost_share"] and (row["effect"] == "fallback" or row["rule"] == "operation"):
            shares[row["graph"]][row["node"]] = float(row["cost_share"])
    return max((sum(nodes.values()) for nodes in shares.values()), default=None)


def suggestions(counts: Counter[str]) -> str:
    """What to try for a line's findings: one suggestion, each of a few with its findings, or the most common."""
    ordered = counts.most_common()
    if len(ordered) == 1:
        return ordered[0][0]
    each = [f"{text} ({counted(number, 'finding')})" for text, number in ordered]
    if len(each) <= SUGGESTIONS:
        return "; ".join(each)
    return f"{len(each)} different changes, most common: {each[0]}"
