"""From a kernel to the operations it computes, to the captured graph's nodes, to the user's lines."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stages.capture.sources import SourceFinder
from stages.graphs import GraphRecord, NodeRecord, SourceLine
from stages.lower.kernels import Kernel

if TYPE_CHECKING:
    from stages.torch_internals.inductor import LoweredGraph, PostGradNode


def map_nodes(
    nodes: "Sequence[PostGradNode]", captured: Sequence[GraphRecord], finder: SourceFinder
) -> list[dict[str, Any]]:
    """Records of ``nodes.json``: one a post-grad node, with the captured nodes that it came from.

    Lower's graph and capture's are traced apart and with different decompositions, so names and autograd's sequence
    numbers differ. What both know is the operation before decomposition and the user's line. Within one such pair the
    k-th operation of one graph is the k-th of the other; where their numbers differ, all of the pair are named.

    Args:
        captured: the captured graph of the same id first, others (a forward recomputed in a backward) after it.

    Returns:
        dicts with ``node``, ``target``, ``original``, ``source``, ``captured`` ([{graph, node}]) and ``by``:
        ``operation``, ``line`` (the operation was made by one of Inductor's passes: the nodes of its line), or
        ``""`` where nothing fits.
    """
    lines = {node.name: finder.find(node.stack_trace) for node in nodes}
    ordinals = _ordinals(nodes, lines)
    by_operation, by_line = _index(captured)
    records = []
    for node in nodes:
        line = lines[node.name]
        original = node.original or node.target
        found, by = _candidates(by_operation, (original, _place(line)), ordinals[node.name]), "operation"
        if not found and line is not None:
            found, by = _first_graph(by_line.get(_place(line), [])), "line"
        records.append(
            {
                "node": node.name,
                "target": node.target,
                "original": node.original,
                "source": None if line is None else str(line),
                "captured": [{"graph": graph, "node": name} for graph, name in found],
                "by": by if found else "",
            }
        )
    return records


def _place(line: SourceLine | None) -> str:
    return "" if line is None else str(line)


def _ordinals(nodes: "Sequence[PostGradNode]", lines: dict[str, SourceLine | None]) -> dict[str, tuple[int, int]]:
    """Node → (which operation it belongs to among those of the same kind and line, how many of those there are)."""
    groups: dict[tuple[str, str], dict[Any, int]] = defaultdict(dict)
    for node in nodes:
        group = groups[(node.original or node.target, _place(lines[node.name]))]
        group.setdefault((node.sequence, node.dynamo), len(group))
    ordinals = {}
    for node in nodes:
        group = groups[(node.original or node.target, _place(lines[node.name]))]
        ordinals[node.name] = (group[(node.sequence, node.dynamo)], len(group))
    return ordinals


Place = tuple[str, str]


def _index(captured: Sequence[GraphRecord]) -> tuple[dict[Place, list[Place]], dict[str, list[Place]]]:
    """(operation, line) → captured (graph, node) pairs in order, and line → the same."""
    by_operation: dict[Place, list[Place]] = defaultdict(list)
    by_line: dict[str, list[Place]] = defaultdict(list)
    for graph in captured:
        for node in _calls(graph):
            by_operation[(node.target, _place(node.source))].append((graph.id, node.name))
            if node.source is not None:
                by_line[str(node.source)].append((graph.id, node.name))
    return by_operation, by_line


def _calls(graph: GraphRecord) -> Iterable[NodeRecord]:
    return (node for node in graph.nodes if node.op.startswith("call_"))


def _first_graph(pairs: list[Place]) -> list[Place]:
    return [pair for pair in pairs if pair[0] == pairs[0][0]]


def _candidates(index: dict[Place, list[Place]], key: Place, ordinal: tuple[int, int]) -> list[Place]:
    pairs = _first_graph(index.get(key, []))
    position, count = ordinal
    return [pairs[position]] if len(pairs) == count else pairs


def describe_kernels(
    lowered: "LoweredGraph",
    kernels: Sequence[Kernel],
    nodes: Sequence[dict[str, Any]],
    finder: SourceFinder,
) -> list[dict[str, Any]]:
    """The ``kernels`` of ``provenance.json``: one record a launch, then kernels that no launch was recorded for.

    Args:
        nodes: from :func:`map_nodes`.

    Returns:
        dicts with ``name``, ``handle`` (also in output_code.py as a comment), ``kind``, ``nodes`` (post-grad),
        ``captured`` ([{graph, node}]), ``sources`` ([{file, line, code}]), ``file`` (None for an extern kernel).
    """
    defined = {kernel.name: kernel for kernel in kernels}
    known = {record["node"].rpartition("/")[2]: record for record in nodes}
    launches = dict.fromkeys([*lowered.kernel_nodes, *lowered.kernel_stacks])
    records = []
    for launch in launches:
        name, _, handle = launch.rpartition(":")
        members = lowered.kernel_nodes.get(launch, [])
        traces = [finder.find(trace) for trace in lowered.kernel_stacks.get(launch, [])]
        lines = sorted({line for line in traces if line is not None}, key=lambda line: (line.file, line.line))
        captured = {
            (item["graph"], item["node"]) for name in members if name in known for item in known[name]["captured"]
        }
        records.append(_record(name, handle, defined.get(name), members, sorted(captured), lines))
    launched = {record["name"] for record in records}
    return records + [_record(name, "", kernel, [], [], []) for name, kernel in defined.items() if name not in launched]


def _record(
    name: str,
    handle: str,
    kernel: Kernel | None,
    nodes: list[str],
    captured: list[Place],
    lines: list[SourceLine],
) -> dict[str, Any]:
    unique = {(line.file, line.line): line for line in lines}
    return {
        "name": name,
        "handle": int(handle) if handle else None,
        "kind": "extern" if kernel is None else kernel.kind,
        "nodes": nodes,
        "captured": [{"graph": graph, "node": node} for graph, node in captured],
        "sources": [{"file": line.file, "line": line.line, "code": line.code} for line in unique.values()],
        "file": None if kernel is None else f"kernels/{kernel.file}",
    }


def share(hits: int, total: int) -> float | None:
    """``hits / total``, or None where there is nothing to map."""
    return hits / total if total else None
