"""Which operations findings concern, and whose bytes they cost, each once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from inductor_debug.stages.graphs.operation_names import Operation
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, number_of
from inductor_debug.stages.rules.checked_tensors import SHARED_ROLES, tensors
from inductor_debug.stages.rules.violation import Violation

Place = tuple[str, str]
"""A graph's id and the name of a node in it."""


class AffectedOperations:
    """The graphs of a check, to tell what its rows come to.

    Attributes:
        counted: the graphs that shares are of: AOTAutograd's forward and backward graphs where there are any, else the
            joint one, else Dynamo's, which is another picture of the same.
    """

    def __init__(self, graphs: Iterable[GraphRecord]) -> None:
        self._graphs = {graph.id: graph for graph in graphs}
        self._nodes = {graph.id: graph.by_name for graph in self._graphs.values()}
        kinds = (("forward", "backward"), ("joint",))
        found = ([graph for graph in self._graphs.values() if graph.kind in kind] for kind in kinds)
        self.counted = next(filter(None, found), list(self._graphs.values()))
        self._ids = {graph.id for graph in self.counted}
        self._read_by: dict[str, dict[str, list[NodeRecord]]] = {}

    def totals(self) -> tuple[int, int, int]:
        """Operations, bytes of the tensors, each once and no view, and known FLOPs."""
        calls = [node for graph in self.counted for node in graph.nodes if node.is_operation]
        nbytes = 0
        for graph in self.counted:
            shown = graph.kind == "backward" and f"{number_of(graph.id)}.forward" in self._ids
            found = tensors(graph, forward_checked=shown)
            nbytes += sum(item.tensor.nbytes or 0 for item in found if not item.node.aliases)
        return len(calls), nbytes, sum(node.flops or 0 for node in calls)

    def counts(self, row: Violation) -> bool:
        """Whether a row is of a graph that shares are of."""
        return row.graph in self._ids

    def flops(self, places: Iterable[Place]) -> int:
        """Known FLOPs of operations."""
        return sum(self._nodes[graph][node].flops or 0 for graph, node in places)

    def of(self, rows: Sequence[Violation]) -> tuple[set[Place], int] | tuple[None, None]:
        """The operations of :attr:`counted` that rows concern, and bytes that rows cost together.

        None where that can't be told of one row. A row of a parameter or an input stands for the operations that read
        it, through views too. A row of Dynamo's graph stands for what became of the call, by the source line and the
        module that both have; of its bytes those count that its aten graphs do not show.
        """
        concern = self._concern(rows)
        return (None, None) if concern is None else (concern[0], sum(row.cost_bytes or 0 for row in concern[1]))

    def _concern(self, rows: Sequence[Violation]) -> tuple[set[Place], list[Violation]] | None:
        """The operations that rows concern, and those of the rows whose bytes count; None as in :meth:`of`."""
        found = self._own(rows)
        became = self._became_of(rows, found)
        if None in became.values():
            return None
        alone = {place for place, places in became.items() if places and not places & found}
        paying = [row for row in rows if self.counts(row) or (row.graph, row.node) in alone]
        return found.union(*filter(None, became.values())), paying

    def together(self, rows: Iterable[Violation]) -> tuple[int, list[Violation]] | tuple[None, None]:
        """How many operations rows of several rules concern, and those rows whose bytes count; None for not known."""
        groups: dict[tuple[str, str], list[Violation]] = defaultdict(list)
        for row in rows:
            groups[row.rule, row.effect].append(row)
        operations, paying = set[Place](), list[Violation]()
        for group in groups.values():
            concern = self._concern(group)
            if concern is None:
                return None, None
            operations |= concern[0]
            paying += concern[1]
        return len(operations), paying

    def _own(self, rows: Iterable[Violation]) -> set[Place]:
        found = ((row.graph, name) for row in rows if self.counts(row) for name in (row.node, *row.also))
        return {place for start in dict.fromkeys(found) for place in self._at(start)}

    def _became_of(self, rows: Iterable[Violation], found: set[Place]) -> dict[Place, set[Place] | None]:
        calls = {(row.graph, row.node) for row in rows if not self.counts(row)}
        return {place: self._became(place, calls, found) for place in sorted(calls)}

    def _at(self, place: Place) -> Iterator[Place]:
        graph, name = place
        node = self._nodes.get(graph, {}).get(name)
        if node is None:
            return
        if node.is_operation:
            yield place
        elif node.op in ("placeholder", "get_attr"):
            yield from self._reading(graph, name)
            other = f"{number_of(graph)}.backward"
            again = self._nodes.get(other, {}).get(name)
            if graph != other and other in self._ids and again is not None and again.role in SHARED_ROLES:
                yield from self._reading(other, name)
        elif node.inputs:
            yield from self._at((graph, node.inputs[0]))

    def _reading(self, graph: str, name: str) -> Iterator[Place]:
        """The operations that read a node's tensor, views of it among them."""
        for reader in self._readers(graph).get(name, ()):
            if reader.is_operation:
                yield graph, reader.name
            if reader.aliases:
                yield from self._reading(graph, reader.name)

    def _readers(self, graph: str) -> dict[str, list[NodeRecord]]:
        if graph not in self._read_by:
            found = self._read_by[graph] = defaultdict(list)
            for node in self._graphs[graph].nodes:
                for name in node.inputs if node.is_call else ():
                    found[name].append(node)
        return self._read_by[graph]

    def _became(self, call: Place, denied: set[Place], found: set[Place]) -> set[Place] | None:
        """What became of a call of Dynamo's graph; None where that can't be told.

        Args:
            call: the call.
            denied: all such calls that have a row.
            found: operations that have rows of their own.
        """
        graph, name = call
        node = self._nodes.get(graph, {}).get(name)
        if node is None or (node.source is None and not node.module):
            return None
        beside = [other for other in self._graphs[graph].nodes if other.is_operation and _where(other) == _where(node)]
        there = {
            (other.id, item.name): item
            for other in self.counted
            if number_of(other.id) == number_of(graph)
            for item in other.nodes
            if item.is_operation and _where(item) == _where(node)
        }
        if not there:
            return None
        own = {place for place, item in there.items() if _may_be(node, item)}
        if own & found:
            return set()  # the aten graph has said which
        others = [other for other in beside if (graph, other.name) not in denied]
        if not others:
            return set(there)
        unclaimed = any(item.flops and not any(_may_be(other, item) for other in beside) for item in there.values())
        shared = any(_may_be(other, there[place]) for place in own for other in others)
        return None if not own or unclaimed or shared else own


def _where(node: NodeRecord) -> tuple[str, str]:
    return str(node.source), node.module


def _may_be(call: NodeRecord, item: NodeRecord) -> bool:
    """Whether an aten operation may be what a Python call became."""
    operation = Operation.dispatched(call)
    return bool((operation.short | operation.maybe) & Operation.of(item).short)
