"""From a post-grad node to the captured graph's nodes, to the Dynamo graph's, to the user's lines; and back."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inductor_debug.stages.artifacts.lowering import CapturedNode, MappedNode
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor_nodes import PostGradNode

MOST = 100
"""Captured nodes that may be named for one post-grad node."""


def map_nodes(
    nodes: "Sequence[PostGradNode]",
    captured: Sequence[GraphRecord],
    finder: SourceFinder,
    record: GraphRecord | None = None,
) -> list[MappedNode]:
    """Records of ``nodes.json``: one a post-grad node, with the captured nodes that it came from.

    Lower's graph and capture's are traced apart and with different decompositions, so names and autograd's sequence
    numbers differ. What both know is the operation before decomposition, the line and the module. Within one such
    group the k-th operation of one graph is the k-th of the other. Where their numbers differ, those of the group are
    named that came from the same call of Dynamo's graph, or all where that is not known, unless they are more than
    ``MOST``: that would say nothing, and take the square of their number.

    Args:
        nodes: of the graph that was compiled.
        finder: of the model's lines.
        captured: the captured graph of the same id first, others (a forward recomputed in a backward) after it.
        record: the graph that ``nodes`` are of, which tells what they make; None where that is not known.
    """
    made = {} if record is None else {node.name: node.outputs for node in record.nodes}
    lines = {node.name: finder.find(node.stack_trace, node.module) for node in nodes}
    groups = [_Groups(captured, by_module=True), _Groups(captured, by_module=False)]
    for group in groups:
        group.count(nodes, lines)
    by_line = _by_line(captured)
    origins = {(graph.id, node.name): frozenset(node.origins) for graph in captured for node in _calls(graph)}
    records = []
    for node in nodes:
        line = lines[node.name]
        found, by = next(filter(None, (group.captured(node, line) for group in groups)), []), "operation"
        if not found and line is not None:
            found, by = by_line.get(_place(line), []), "line"
        if len(found) > 1:
            same = [pair for pair in found if not origins[pair].isdisjoint(node.pre_grad)]
            found = _named(same or found)
        records.append(
            MappedNode(
                node.name,
                node.target,
                node.original,
                node.module,
                source=None if line is None else str(line),
                pre_grad=list(node.pre_grad),
                captured=[CapturedNode(*pair) for pair in found],
                by=by if found else "",
                inputs=list(node.inputs),
                outputs=made.get(node.name, []),
            )
        )
    return records


def _place(line: SourceLine | None) -> str:
    return "" if line is None else str(line)


Place = tuple[str, str]
Key = tuple[str, str, str]


class _Groups:
    """Captured nodes in groups that are alike in operation, line and (``by_module``) module."""

    def __init__(self, captured: Sequence[GraphRecord], *, by_module: bool) -> None:
        self.by_module = by_module
        self.members: dict[Key, list[Place]] = defaultdict(list)
        self.ordinals: dict[str, int] = {}
        self.counts: dict[Key, int] = {}
        for graph in captured:
            for node in _calls(graph):
                members = self.members[self._key(node.target, node.source, node.module)]
                if not members or members[0][0] == graph.id:
                    members.append((graph.id, node.name))

    def _key(self, operation: str, line: SourceLine | None, module: str) -> Key:
        return operation, _place(line), module if self.by_module else ""

    def _key_of(self, node: "PostGradNode", line: SourceLine | None) -> Key:
        return self._key(node.original or node.target, line, node.module)

    def count(self, nodes: "Sequence[PostGradNode]", lines: Mapping[str, SourceLine | None]) -> None:
        """Find out which operation of its group each post-grad node belongs to, and how many each group has."""
        groups: dict[Key, dict[Any, int]] = defaultdict(dict)
        for node in nodes:
            group = groups[self._key_of(node, lines[node.name])]
            self.ordinals[node.name] = group.setdefault((node.sequence, node.pre_grad[:1]), len(group))
        self.counts = {key: len(group) for key, group in groups.items()}

    def captured(self, node: "PostGradNode", line: SourceLine | None) -> list[Place]:
        """The captured node that a post-grad node came from, or all that it may have come from."""
        key = self._key_of(node, line)
        pairs = self.members.get(key, [])
        return [pairs[self.ordinals[node.name]]] if pairs and len(pairs) == self.counts[key] else pairs


def _by_line(captured: Sequence[GraphRecord]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = defaultdict(list)
    for graph in captured:
        for node in _calls(graph):
            if node.source is not None:
                members = found[str(node.source)]
                if not members or members[0][0] == graph.id:
                    members.append((graph.id, node.name))
    return found


def _calls(graph: GraphRecord) -> Iterable[NodeRecord]:
    return (node for node in graph.nodes if node.is_call)


def _named(pairs: list[Place]) -> list[Place]:
    return pairs if len(pairs) <= MOST else []
