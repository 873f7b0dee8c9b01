"""A captured graph read back from data that others may have made: what its nodes refer to is there."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.visible import visible
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, Size
from inductor_debug.stages.graphs.symbolic_sizes import readable

KINDS = ("dynamo", "forward", "backward", "joint")
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
LARGEST = 2**63
"""Sizes are below: what 64 bits hold."""

_ID = re.compile(rf"g[0-9]{{1,6}}\.({'|'.join(KINDS)})")


def checked_graph(graph: GraphRecord, path: Path) -> GraphRecord:
    """The same graph, where it is one.

    Args:
        graph: as read.
        path: its file, whose name is the graph's id.

    Raises:
        DamagedError: its id is another one or none, a name is there twice, a node reads what does not precede it, or a
            size is none.
    """
    if graph.id != path.stem or not _ID.fullmatch(graph.id) or not graph.id.endswith(f".{graph.kind}"):
        raise _damaged(path, f"the id is {graph.id!r} and the kind {graph.kind!r}", f"{path.stem} and its kind")
    known: set[str] = set()
    for node in graph.nodes:
        if node.name in known:
            raise _damaged(path, f"two nodes are called {node.name!r}", "names that are each there once")
        _check_node(node, path)
        read = [*node.inputs, *_references([node.args, node.kwargs])]
        unknown = [name for name in read if name not in known]
        if unknown:
            raise _damaged(path, f"{node.name} reads {unknown[0]!r}", "a node that precedes it")
        known.add(node.name)
    for name, symbol in graph.symbols.items():
        if any(value is not None and abs(value) > LARGEST for value in symbol.values()):
            raise _damaged(path, f"the symbol {name!r} has {symbol}", "numbers of 64 bits")
    return graph


def _check_node(node: NodeRecord, path: Path) -> None:
    """A node, or a call inside a higher-order operator, whose references are to the graph inside."""
    if node.op not in OPS:
        raise _damaged(path, f"{node.name} has the op {node.op!r}", ", ".join(OPS))
    if not 0 <= (node.flops or 0) < LARGEST:
        raise _damaged(path, f"{node.name} has {node.flops} FLOPs", "a number of 64 bits")
    for tensor in node.outputs:
        if tensor.hints is not None and len(tensor.hints) != len(tensor.shape):
            raise _damaged(path, f"{node.name} has {len(tensor.hints)} hints", "one for each size")
        scalars = (tensor.storage_offset, tensor.storage_bytes, tensor.storage_hint)
        sizes = [*tensor.shape, *tensor.stride, *(tensor.hints or ()), *scalars]
        _check_sizes([size for size in sizes if size is not None], node.name, path)
    if isinstance(node.value, str):
        _check_sizes([node.value], node.name, path)
    for inner in node.body or ():
        _check_node(inner, path)


def _check_sizes(sizes: Sequence[Size], name: str, path: Path) -> None:
    for size in sizes:
        fits = readable(size) if isinstance(size, str) else 0 <= size < LARGEST
        if not fits:
            raise _damaged(path, f"{name} has the size {size!r}", "a whole number, or an expression of symbols")


def _references(value: Any) -> list[str]:
    """Names in ``{"node": name}``, which stand for nodes among arguments."""
    if isinstance(value, Mapping):
        if list(value) == ["node"] and isinstance(value["node"], str):
            return [value["node"]]
        value = list(value.values())
    return [name for item in value for name in _references(item)] if isinstance(value, list) else []


def _damaged(path: Path, what: str, valid: str) -> DamagedError:
    return DamagedError(visible(what), key=visible(str(path)), valid=valid)
