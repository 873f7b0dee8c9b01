"""Statistics of captured graphs.

``statistics.csv`` has one row a graph × operator × dtype, and one a graph.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inductor_debug.stages.graphs.known import known_total
from inductor_debug.stages.graphs.liveness import peak_live
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord


@dataclass(frozen=True, kw_only=True)
class StatisticsRow:
    """One row a graph × operator × dtype (``scope`` "operator"), and one a graph (``scope`` "graph").

    Attributes:
        graph, kind: the graph's id and kind.
        scope: "operator", or "graph" for the graph's totals.
        operator, dtype: the target, and the dtype of its first output; "" in a total.
        count: calls, ``_operator.getitem`` included (placeholders, attributes and the output are not).
        output_bytes: dense bytes of all outputs, views included.
        allocated_bytes: the same without views and in-place results, which allocate nothing.
        flops: sum over the nodes with a formula; None where none has one (a multiply-add is two).
        flops_unknown: operations without a formula; ``_operator.getitem`` is none.
        input_bytes: totals only: placeholders and attributes.
        peak_live_bytes: totals only: the most bytes alive at once, whole storages, each once; None where a size has no
            hint.
        peak_live_node: totals only: the node at which the peak is reached.
    """

    graph: str
    kind: str
    scope: str
    operator: str = ""
    dtype: str = ""
    count: int
    output_bytes: int | None
    allocated_bytes: int | None
    flops: int | None
    flops_unknown: int
    input_bytes: int | None = None
    peak_live_bytes: int | None = None
    peak_live_node: str = ""


def statistics(graphs: Iterable[GraphRecord]) -> list[StatisticsRow]:
    """The rows of ``statistics.csv``, graphs in the order given, operators by name."""
    rows = []
    for graph in graphs:
        groups: dict[tuple[str, str], list[NodeRecord]] = defaultdict(list)
        for node in graph.nodes:
            if node.is_call:
                groups[node.target, node.outputs[0].dtype if node.outputs else ""].append(node)
        for (operator, dtype), nodes in sorted(groups.items()):
            rows.append(_row(graph, nodes, scope="operator", operator=operator, dtype=dtype))
        rows.append(_total(graph))
    return rows


def _bytes(nodes: Iterable[NodeRecord]) -> int | None:
    return known_total(tensor.nbytes for node in nodes for tensor in node.outputs)


def _row(graph: GraphRecord, nodes: list[NodeRecord], **others: Any) -> StatisticsRow:
    counted = [node.flops for node in nodes if node.flops is not None]
    return StatisticsRow(
        graph=graph.id,
        kind=graph.kind,
        count=len(nodes),
        output_bytes=_bytes(nodes),
        allocated_bytes=_bytes(node for node in nodes if not node.aliases),
        flops=sum(counted) if counted else None,
        flops_unknown=sum(node.is_operation and node.flops is None for node in nodes),
        **others,
    )


def _total(graph: GraphRecord) -> StatisticsRow:
    calls = [node for node in graph.nodes if node.is_call]
    peak, name = peak_live(graph)
    inputs = _bytes(node for node in graph.nodes if node.op in ("placeholder", "get_attr"))
    return _row(graph, calls, scope="graph", input_bytes=inputs, peak_live_bytes=peak, peak_live_node=name)
