"""A graph in which a value is made by the node that computes it, where another node wrote into it.

TorchInductor's own passes write through views (``copy_`` into a slice), and what reads the memory later takes the node
that it had before. Here it takes the one that wrote.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import OpOverload, OpOverloadPacket, schema_of
from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.runs.regions import is_view

aten = torch.ops.aten

SCATTER = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""View → what gives all of what it looks at, with other values in the view."""

IN_ORDER = {aten.reshape.default, aten.view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims}
"""Views of all elements in their order."""


def made_functional(graph: fx.Graph) -> dict[str, str]:
    """Let what reads memory after a write take the node that wrote. Nodes keep their names.

    A write of which it is not known what it leaves is a node that can't be replayed, and so is what reads it.

    Returns:
        Node that wrote → the node, or the input, in whose memory it wrote; in the order of the writes.
    """
    roots: dict[str, str] = {}
    inputs: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if isinstance(node.target, OpOverloadPacket):  # as one of those passes leaves ``clone``
            node.target = node.target.default
        for view in _written(node):
            base = _base(view)
            later = _later(node, base)
            if not any(later.values()):
                continue
            root = next((item for item, last in inputs.items() if last is base), base)
            whole = _whole(graph, node, view, base)
            roots[whole.name] = roots.get(root.name, root.name)
            if root.op == "placeholder":
                inputs[root] = whole
            for alias, readers in later.items():
                now = _looked_at(graph, alias, base, whole) if readers else alias
                for reader in readers:
                    reader.replace_input_with(alias, now)
    (output,) = (node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        for given, last in inputs.items():
            graph.call_function(aten.copy_.default, (given, last)).meta = dict(given.meta)
    return roots


def _written(node: fx.Node) -> Iterator[fx.Node]:
    """What a node writes into."""
    if node.op != "call_function":
        return
    if not isinstance(node.target, OpOverload):
        if getattr(node.target, "__name__", "") == "triton_kernel_wrapper_mutation":
            yield from node.all_input_nodes
        return
    arguments = schema_of(node.target).arguments
    for place, argument in enumerate(arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            found: list[fx.Node] = []
            fx.map_arg(given, found.append)
            yield from found


def _base(node: fx.Node) -> fx.Node:
    """What a view is in the end a view of."""
    while is_view(node):
        node = taken_by(node)[0]
    return node


def _later(write: fx.Node, base: fx.Node) -> dict[fx.Node, list[fx.Node]]:
    """A value and the views of it that were taken before a write → what reads them after it, but for such views."""
    order = {node: place for place, node in enumerate(write.graph.nodes)}
    aliases = [base]
    for node in write.graph.nodes:
        if node is write:
            break
        if is_view(node) and taken_by(node)[0] in aliases:
            aliases.append(node)
    return {alias: [user for user in alias.users if order[user] > order[write]] for alias in aliases}


def _whole(graph: fx.Graph, write: fx.Node, view: fx.Node, base: fx.Node) -> fx.Node:
    """The node that wrote, as one that gives what it wrote into as a whole, or that can't be replayed."""
    if write.target is not aten.copy_.default:
        known = isinstance(write.target, UnknownWrite) or (view is base and _gives_what_it_wrote(write))
        if not known:
            write.args, write.kwargs, write.target = tuple(taken_by(write)), {}, UnknownWrite(write.target)
        return write
    source: Any = write.args[1]
    meta = view.meta
    with graph.inserting_before(write):
        if view is base or not _alike(source, view):
            source = _call(graph, aten.copy.default, (view, source), meta)
        while view is not base:
            parent, meta = taken_by(view)[0], taken_by(view)[0].meta
            if view.target in SCATTER:
                source = _call(graph, SCATTER[view.target], (parent, source, *view.args[1:]), meta, view.kwargs)
            elif view.target in IN_ORDER:
                source = _call(graph, aten.reshape.default, (source, list(parent.meta["val"].shape)), meta)
            else:
                source = _call(graph, UnknownWrite(view.target), (parent, source), meta)
            view = parent
    write.target, write.args, write.kwargs = source.target, source.args, source.kwargs
    write.meta |= source.meta
    graph.erase_node(source)
    return write


def _gives_what_it_wrote(write: fx.Node) -> bool:
    """Whether the one thing that an operator gives is the one that it wrote into."""
    if not isinstance(write.target, OpOverload):
        return False
    returned = schema_of(write.target).returns
    written = [item for item in returned if item.alias_info is not None and item.alias_info.is_write]
    return len(returned) == len(written) == len(list(_written(write))) == 1


class UnknownWrite:
    """The target of a write of which it is not known what it leaves; ``by`` is the one that the graph had."""

    def __init__(self, by: object) -> None:
        self.__name__ = self.__qualname__ = type(self).__name__
        self._by = by

    def __str__(self) -> str:
        return f"what {self._by} leaves in memory"

    def __call__(self, *given: Any) -> Any:
        """Not to be called.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"{self} is not known")


def _alike(source: object, view: fx.Node) -> bool:
    """Whether a write neither converts nor expands."""
    if not isinstance(source, fx.Node) or not isinstance(source.meta.get("val"), torch.Tensor):
        return False
    given, wanted = source.meta["val"], view.meta["val"]
    return given.dtype == wanted.dtype and given.shape == wanted.shape


def _looked_at(graph: fx.Graph, alias: fx.Node, base: fx.Node, whole: fx.Node) -> fx.Node:
    """A view of what was there before, of what is there after a write."""
    if alias is base:
        return whole
    source = _looked_at(graph, taken_by(alias)[0], base, whole)
    with graph.inserting_after(source):
        return graph.node_copy(alias, lambda node: source if node is taken_by(alias)[0] else node)


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...], meta: dict[str, Any], kwargs: Any = None) -> fx.Node:
    node = graph.call_function(target, args, kwargs or {})
    node.meta = {"val": meta["val"]}
    return node
