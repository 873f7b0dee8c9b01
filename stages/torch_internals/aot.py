"""AOTAutograd: a backend that records the joint, forward and backward graphs and runs them as they are.

Relies on ``torch._dynamo.backends.common.aot_autograd``, on ``functorch.compile``'s default partition, and on the
``desc`` that AOTAutograd puts on placeholders and outputs (absent: names and positions are used).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from functorch.compile import default_partition, make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.torch_internals.fx_records import PlaceholderInfo, RecordContext, graph_record

GraphSink = Callable[[GraphRecord, fx.GraphModule], None]
"""Takes each graph as it is made: its record, and the FX module (not to be kept)."""


def recording_backend(
    number: int, placeholders: list[PlaceholderInfo], context: RecordContext, sink: GraphSink
) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    """The AOTAutograd backend of the Dynamo graph ``g<number>``.

    Partitioned by ``default_partition``: nothing is recomputed, so that forward and backward hold each node of the
    joint graph once. The graphs are executed by FX, operation by operation.

    Args:
        number: N of the ids ``gN.joint``, ``gN.forward``, ``gN.backward``.
        placeholders: what the Dynamo graph's placeholders stand for, in order.
        context: with sequence numbers of this graph alone.
        sink: called once a graph; for the backward that is during the first backward pass.
    """
    tangents: dict[str, PlaceholderInfo] = {}

    def record(kind: str, gm: fx.GraphModule) -> None:
        known = aot_placeholders(gm.graph, kind, placeholders, tangents)
        found = graph_record(gm.graph, id=f"g{number}.{kind}", context=context, placeholders=known)
        if kind == "joint":
            tangents.update(_tangents(gm.graph, found))
            found = replace(
                found,
                nodes=[
                    replace(node, module=info.module, source=info.source) if (info := tangents.get(node.name)) else node
                    for node in found.nodes
                ],
            )
        sink(found, gm)

    def compiler(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            record(kind, gm)
            return make_boxed_func(gm.forward)

        return compile

    def partition(gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        record("joint", gm)
        return default_partition(gm, joint_inputs, **kwargs)

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("forward"),
        partition_fn=partition,
    )


def aot_placeholders(
    graph: fx.Graph, kind: str, inputs: list[PlaceholderInfo], tangents: dict[str, PlaceholderInfo]
) -> dict[str, PlaceholderInfo]:
    """Roles of an AOT graph's placeholders by node name.

    A forward's input keeps the Dynamo placeholder's role wherever it appears, in the backward too. What the forward
    computed for the backward is "saved". A gradient that comes in is "tangent".

    Args:
        graph: forward or backward, of FX.
        kind: which of them.
        inputs: what the placeholders of the Dynamo graph stand for, in order.
        tangents: what the gradients that come in stand for, by node name.
    """
    found = {}
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for position, node in enumerate(nodes):
        description = node.meta.get("desc")
        index = _input_index(node, description, position, kind, len(inputs))
        role = "saved" if kind == "backward" else "input"
        if type(description).__name__ == "TangentAOTInput" or node.name.startswith("tangents_"):
            found[node.name] = tangents.get(node.name, PlaceholderInfo("", "tangent"))
        else:
            found[node.name] = PlaceholderInfo("", role) if index is None else inputs[index]
    return found


def _input_index(node: fx.Node, description: Any, position: int, kind: str, count: int) -> int | None:
    """Which of the Dynamo graph's placeholders an AOT placeholder is, if it is one."""
    if type(description).__name__ == "PlainAOTInput":
        index = description.idx
    elif description is None and kind == "forward":
        index = position
    elif description is None and node.name.startswith("primals_"):
        index = int(node.name.removeprefix("primals_")) - 1
    else:
        return None
    return index if 0 <= index < count else None


def _tangents(graph: fx.Graph, joint: GraphRecord) -> dict[str, PlaceholderInfo]:
    """Tangents of a joint graph with the line and module of the forward output that they are the gradient of."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    flat = torch.utils._pytree.tree_leaves(output.args[0], is_leaf=lambda item: item is None)
    descriptions = torch.utils._pytree.tree_leaves(output.meta.get("desc", []), is_leaf=lambda item: item is None)
    by_description = dict(zip(map(repr, descriptions), flat, strict=False))
    found = {}
    for node in graph.nodes:
        if node.op != "placeholder" or not node.name.startswith("tangents_"):
            continue
        made = by_description.get(repr(getattr(node.meta.get("desc"), "output", None)))
        record = joint.by_name[made.name] if isinstance(made, fx.Node) else None
        place = () if record is None else (record.module, record.source)
        found[node.name] = PlaceholderInfo("", "tangent", *place)
    return found
