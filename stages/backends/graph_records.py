"""Records of the graphs that a backend is given while torch compiles."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import fx

from inductor_debug.stages.graphs.records import GraphRecord, kind_of
from inductor_debug.stages.torch_internals.aot import aot_placeholders
from inductor_debug.stages.torch_internals.dispatch import dispatched_calls
from inductor_debug.stages.torch_internals.dynamo import dynamo_placeholders
from inductor_debug.stages.torch_internals.fx_records import PlaceholderInfo, RecordContext, graph_record


def graph_records(
    graphs: Mapping[str, fx.GraphModule],
    inputs: Callable[[RecordContext], list[PlaceholderInfo]] | None = None,
    *,
    details: bool = True,
    dispatched: bool = False,
) -> list[GraphRecord]:
    """Records of traced graphs by id; a backward finds the lines of the forward before it.

    Args:
        graphs: Dynamo's graphs or AOTAutograd's.
        inputs: of AOT graphs: what their Dynamo graph's placeholders stand for; None: they are plain inputs.
        details: False leaves out source lines, modules and FLOPs.
        dispatched: True finds out which aten operations the calls of Dynamo's graphs come to.
    """
    context: RecordContext | None = None
    records = []
    for graph_id, gm in graphs.items():
        if context is None:
            context = RecordContext.of(gm)
            if details:
                context.sources.set_caller(node.meta.get("stack_trace") for node in gm.graph.nodes)
        kind = kind_of(graph_id)
        known: dict[str, PlaceholderInfo] = {}
        if kind == "dynamo":
            names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            known = dict(zip(names, dynamo_placeholders(gm, context), strict=True))
        elif inputs is not None:
            known = aot_placeholders(gm.graph, kind, inputs(context), {})
        record = graph_record(gm.graph, id=graph_id, context=context, placeholders=known, details=details)
        alone = kind == "dynamo" and len(graphs) == 1  # else its aten graphs tell what its calls come to
        records.append(_with_calls(record, gm) if dispatched and alone else record)
    return records


def _with_calls(record: GraphRecord, gm: fx.GraphModule) -> GraphRecord:
    called = dispatched_calls(gm)
    nodes = [replace(node, dispatched=called[node.name]) if node.name in called else node for node in record.nodes]
    return replace(record, nodes=nodes)


class Halves:
    """Records of the graphs of one compilation, made when first asked for, together: a backward finds its forward's
    lines.

    Args:
        number: ``g0``, ``g1``, …
        gm: Dynamo's graph, whose names the AOT graphs' inputs get.
    """

    def __init__(self, number: str, gm: fx.GraphModule) -> None:
        self.number = number
        self.names = [PlaceholderInfo(str(node.target)) for node in gm.graph.nodes if node.op == "placeholder"]
        self._parts: dict[str, fx.GraphModule] = {}
        self._records: dict[str, GraphRecord] = {}

    def keep(self, forward: fx.GraphModule, backward: fx.GraphModule) -> None:
        """Take both halves of a training graph, as the partitioner made them."""
        self._parts = {f"{self.number}.forward": forward, f"{self.number}.backward": backward}

    def record(self, direction: str, gm: fx.GraphModule) -> GraphRecord:
        """The graph's record: the one made with the other half, or of the graph as it is where its nodes are others.

        Args:
            direction: ``forward``, ``backward``, or ``dynamo`` for Dynamo's own.
        """
        graph_id = f"{self.number}.{direction}"
        if direction == "dynamo":
            return graph_records({graph_id: gm})[0]
        if self._parts:
            made = graph_records(self._parts)
            self._records = {record.id: self._named(record, self._parts[record.id]) for record in made}
            self._parts = {}
        kept = self._records.get(graph_id)
        if kept is not None and {node.name for node in kept.nodes} >= {node.name for node in gm.graph.nodes}:
            return kept
        return self._named(graph_records({graph_id: gm})[0], gm)

    def _named(self, record: GraphRecord, gm: fx.GraphModule) -> GraphRecord:
        known = aot_placeholders(gm.graph, record.kind, self.names, {})
        nodes = [
            replace(node, target=known[node.name].target or node.target) if node.name in known else node
            for node in record.nodes
        ]
        return replace(record, nodes=nodes)
