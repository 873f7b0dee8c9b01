"""A captured graph read back from data that others may have made: what its nodes refer to is there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import shaped
from inductor_debug.models.visible import visible
from inductor_debug.stages.artifacts.records import Node
from inductor_debug.stages.graphs.records import GraphRecord, SourceLine, TensorRecord
from inductor_debug.stages.graphs.symbolic_sizes import readable

KINDS = ("dynamo", "forward", "backward", "joint")
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
LARGEST = 2**63
"""Sizes are below: what 64 bits hold."""

_ID = re.compile(rf"g[0-9]{{1,6}}\.({'|'.join(KINDS)})")
_TENSOR, _SOURCE = ({field.name for field in fields(kind)} for kind in (TensorRecord, SourceLine))


def read_graph(data: Mapping[str, Any], path: Path) -> GraphRecord:
    """The record of a graph.

    Args:
        data: of the shape :class:`stages.artifacts.records.Graph`.
        path: its file, whose name is the graph's id.

    Raises:
        DamagedError: its id is another one or none, a name is there twice, a node reads what does not precede it, or a
            size is none.
    """
    if data["id"] != path.stem or not _ID.fullmatch(data["id"]) or not data["id"].endswith(f".{data['kind']}"):
        raise _damaged(path, f"the id is {data['id']!r} and the kind {data['kind']!r}", f"{path.stem} and its kind")
    known: set[str] = set()
    for node in data["nodes"]:
        if node["name"] in known:
            raise _damaged(path, f"two nodes are called {node['name']!r}", "names that are each there once")
        _check_node(node, path)
        read = [*node.get("inputs", ()), *_references([node.get("args", []), node.get("kwargs", {})])]
        unknown = [name for name in read if name not in known]
        if unknown:
            raise _damaged(path, f"{node['name']} reads {unknown[0]!r}", "a node that precedes it")
        known.add(node["name"])
    for name, symbol in data.get("symbols", {}).items():
        if any(value is not None and abs(value) > LARGEST for value in symbol.values()):
            raise _damaged(path, f"the symbol {name!r} has {symbol}", "numbers of 64 bits")
    return GraphRecord.from_json(dict(data))


def _check_node(node: Mapping[str, Any], path: Path) -> None:
    if node["op"] not in OPS:
        raise _damaged(path, f"{node['name']} has the op {node['op']!r}", ", ".join(OPS))
    if not 0 <= (node.get("flops") or 0) < LARGEST:
        raise _damaged(path, f"{node['name']} has {node['flops']} FLOPs", "a number of 64 bits")
    if node["source"] and not set(node["source"]) <= _SOURCE:
        raise _damaged(path, f"{node['name']} has a source with {sorted(node['source'])}", ", ".join(sorted(_SOURCE)))
    for tensor in node["outputs"]:
        if not set(tensor) <= _TENSOR:
            raise _damaged(path, f"{node['name']} has a tensor with {sorted(tensor)}", ", ".join(sorted(_TENSOR)))
        hints = tensor.get("hints")
        if hints is not None and len(hints) != len(tensor["shape"]):
            raise _damaged(path, f"{node['name']} has {len(hints)} hints", "one for each size")
        sizes = [*tensor["shape"], *tensor["stride"], *(hints or ()), *map(tensor.get, _SCALARS)]
        _check_sizes([size for size in sizes if size is not None], node["name"], path)
    if node.get("value") is not None and isinstance(node["value"], str):
        _check_sizes([node["value"]], node["name"], path)
    for inner in node.get("body") or ():
        _check_body(inner, path)


_SCALARS = ("storage_offset", "storage_bytes", "storage_hint")


def _check_body(node: Mapping[str, Any], path: Path) -> None:
    """A call inside a higher-order operator: of a node's shape, and its references are to the graph inside."""
    _check_node(shaped(node, Node, path), path)


def _check_sizes(sizes: Sequence[Any], name: str, path: Path) -> None:
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
    return DamagedError(f"{visible(str(path))}: {visible(what)}; valid: {valid}.")
