"""Nodes of the graphs on either side of TorchInductor's passes, with where they came from.

Relies on the node metadata ``original_aten``, ``seq_nr``, ``stack_trace``, ``nn_module_stack`` and what
:mod:`stages.torch_internals.history` reads.
"""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch.utils import _pytree as pytree

from inductor_debug.stages.graphs.records import GraphRecord, kind_of
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.torch_internals.aot import aot_placeholders
from inductor_debug.stages.torch_internals.dynamo import dynamo_placeholders
from inductor_debug.stages.torch_internals.fx_records import (
    PlaceholderInfo,
    RecordContext,
    graph_record,
    module_path,
    node_flops,
    target_name,
)
from inductor_debug.stages.torch_internals.history import GRADIENTS_SUM, roots

_VIEWS = (operator.getitem, torch.ops.aten.reshape.default)


@dataclass(frozen=True)
class PreGradNode:
    """One call of the Dynamo graph that Inductor was given, before any of its passes.

    Attributes:
        name: in that graph.
        target: of a Python callable its qualified name, of a method its name.
        module: path of the module that it ran in, or "".
        stack_trace: the user's frames, innermost last, or "".
    """

    name: str
    target: str
    module: str
    stack_trace: str


@dataclass(frozen=True)
class PostGradNode:
    """One node of the graph that Inductor compiled, after its post-grad passes.

    Attributes:
        name: in its graph; nodes of nested subgraphs are written ``subgraph/name``.
        target: e.g. ``aten.mul.Tensor``.
        original: the aten operation before decomposition, e.g. ``aten.gelu.default``, or "" where torch lost it.
        sequence: autograd's sequence number: equal for the nodes of one operation and its backward; None if lost.
        pre_grad: names of the Dynamo graph's nodes that it came from; empty where torch lost them.
        module: path of the module that it ran in, or "".
        stack_trace: the user's frames, innermost last, or "".
        inputs: names of the nodes that it reads, placeholders included, as ``name``.
        view: True where it computes nothing, but looks at a tensor in another way.
        flops: floating-point operations (a multiply-add is two), or None where no formula is known.
        elements: of the largest tensor that it reads or makes; None where that is not known.
    """

    name: str
    target: str
    original: str
    sequence: int | None
    pre_grad: tuple[str, ...]
    module: str
    stack_trace: str
    inputs: tuple[str, ...] = ()
    view: bool = False
    flops: int | None = None
    elements: int | None = None


def pre_grad_nodes(gm: fx.GraphModule) -> list[PreGradNode]:
    """The calls of a Dynamo graph."""
    return [
        PreGradNode(
            name=node.name,
            target=target_name(node.target),
            module=module_path(node, {}),
            stack_trace=node.meta.get("stack_trace") or "",
        )
        for node in _calls(gm)
    ]


def lifted_placeholders(gm: fx.GraphModule) -> list[PlaceholderInfo]:
    """What a Dynamo graph's placeholders stand for, in order, told without the model: by where Dynamo found them."""
    found = dynamo_placeholders(gm, RecordContext(SourceFinder()))
    return [replace(info, role="buffer") if "._buffers[" in info.target else info for info in found]


def origins_by_sequence(gm: fx.GraphModule) -> dict[int, list[str]]:
    """Autograd's sequence numbers in a joint or forward graph → the Dynamo nodes that had them.

    What needs no gradient (a count of batches) gets the number of the operation before it, and is not named.
    """
    found: dict[int, list[str]] = {}
    for node in _calls(gm):
        names = list(dict.fromkeys(roots(node.meta.get("from_node") or [])))
        if names:
            found.setdefault(node.meta.get("seq_nr", -1), names)
    found.pop(-1, None)
    return found


Scatters = dict[tuple[str, str], fx.Node]
"""(target, name of what is scattered) → the node that does it."""


def scatters(gm: fx.GraphModule) -> Scatters:
    """The nodes that write a part into a whole. Inductor's passes put others in their place, which know no line."""
    return {key: node for node in _calls(gm) if (key := _scatter(node)) is not None}


def _scatter(node: fx.Node) -> tuple[str, str] | None:
    target = str(node.target)
    if target.count(".") != 2 or not target.split(".")[1].endswith("_scatter") or len(node.all_input_nodes) < 2:
        return None
    return target, node.all_input_nodes[1].name


def post_grad_nodes(
    gm: fx.GraphModule,
    known: Collection[str],
    by_sequence: dict[int, list[str]],
    prefix: str = "",
    before: Scatters | None = None,
) -> list[PostGradNode]:
    """The call nodes of a graph that Inductor compiles.

    A node on which nothing is recorded (a gradient's sum, the copy into a buffer that the model updates) has the lines
    and the origins of what it reads last. One that scatters has those of the node that it replaced.

    Args:
        gm: the graph.
        known: names of the Dynamo graph's nodes.
        by_sequence: from :func:`origins_by_sequence`, for backward nodes, whose history does not reach that graph.
        prefix: ``"subgraph/"`` for the graph of a higher-order operator.
        before: from :func:`scatters`, of the graph before Inductor's passes.
    """
    names = set(known)
    return [_post_grad_node(node, _recorded(node, before or {}), names, by_sequence, prefix) for node in _calls(gm)]


def post_grad_record(
    gm: fx.GraphModule, id: str, nodes: Sequence[PostGradNode], placeholders: list[PlaceholderInfo]
) -> GraphRecord:
    """The graph that Inductor compiles, with the modules and FLOPs of ``nodes``, and without source lines.

    Args:
        gm: the graph.
        id: ``g0.forward`` or ``g0.backward``.
        nodes: from :func:`post_grad_nodes`, of this graph alone.
        placeholders: from :func:`lifted_placeholders`, of the Dynamo graph behind it.
    """
    roles = aot_placeholders(gm.graph, kind_of(id), placeholders, {})
    context = RecordContext(SourceFinder())
    found = graph_record(gm.graph, id=id, context=context, placeholders=roles, details=False)
    known = {node.name: node for node in nodes}
    told = [
        replace(record, module=node.module, flops=node.flops) if (node := known.get(record.name)) else record
        for record in found.nodes
    ]
    return replace(found, nodes=told)


def _post_grad_node(
    node: fx.Node, recorded: fx.Node, known: set[str], by_sequence: dict[int, list[str]], prefix: str
) -> PostGradNode:
    sequence = recorded.meta.get("seq_nr")
    origins = [name for name in roots(recorded.meta.get("from_node") or []) if name in known]
    origins = origins or [name for name in by_sequence.get(-1 if sequence is None else sequence, []) if name in known]
    return PostGradNode(
        name=prefix + node.name,
        target=str(node.target),
        original=str((recorded if _scatter(node) else node).meta.get("original_aten") or ""),
        sequence=sequence,
        pre_grad=tuple(dict.fromkeys(origins)),
        module=module_path(recorded, {}),
        stack_trace=recorded.meta.get("stack_trace") or "",
        inputs=tuple(prefix + source.name for source in node.all_input_nodes),
        view=node.target in _VIEWS or getattr(node.target, "is_view", False),
        flops=node_flops(node),
        elements=_elements(node),
    )


def _elements(node: fx.Node) -> int | None:
    values = pytree.tree_leaves([item.meta.get("val") for item in (node, *node.all_input_nodes)])
    sizes = [value.numel() for value in values if isinstance(value, torch.Tensor)]
    return max(sizes, default=None) if all(isinstance(size, int) for size in sizes) else None


def _recorded(node: fx.Node, before: Scatters) -> fx.Node:
    """The node, or the one that it reads last of those that tell where they came from."""
    found: fx.Node | None = node
    while found is not None and not _tells(found):
        key = _scatter(found)
        replaced = before.get(key) if key else None
        if replaced is not None and _tells(replaced):
            return replaced
        read = [source for source in found.all_input_nodes if source.op not in ("placeholder", "get_attr")]
        found = read[-1] if read else None
    return node if found is None else found


def _tells(node: fx.Node) -> bool:
    """Whether a node has its own origin recorded. A sum of gradients has the sequence number of any other node."""
    stack = node.meta.get("stack_trace") or ""
    return bool(stack) and GRADIENTS_SUM not in stack


def _calls(gm: fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in gm.graph.nodes if node.op in ("call_function", "call_method", "call_module"))
