"""Which operations findings concern, and whose bytes they cost, each once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from inductor_debug.stages.graphs.operation_names import Operation
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, number_of
from inductor_debug.stages.rules.checked_tensors import SHARED_ROLES, tensors
from inductor_debug.stages.rules.violation import Violation

Place = tuple[str, str]
"""A graph's id and the name of a node in it."""
Line = tuple[str, str]
"""A source line and a module."""


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
        self._by_line: dict[str, dict[Line, list[NodeRecord]]] = {}

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
        distinct = {id(places): places for places in became.values()}
        if None in distinct.values():
            return None
        alone = {key for key, places in distinct.items() if places and places.isdisjoint(found)}
        paying = [row for row in rows if self.counts(row) or id(became[row.graph, row.node]) in alone]
        return found.union(*filter(None, distinct.values())), paying

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
        """What became of each call of Dynamo's graphs that has a row; None where that can't be told.

        Calls of one operation at one line have one set.

        Args:
            rows: of one rule and effect.
            found: operations that have rows of their own.
        """
        calls = {(row.graph, row.node) for row in rows if not self.counts(row)}
        became: dict[Place, set[Place] | None] = {}
        known: dict[tuple[str, Line, Operation], set[Place] | None] = {}
        others: dict[tuple[str, Line], set[Operation]] = {}
        for graph, name in calls:
            node = self._nodes.get(graph, {}).get(name)
            if node is None or (node.source is None and not node.module):
                became[graph, name] = None
                continue
            line = _line(node)
            if (graph, line) not in others:
                beside = self._operations(graph).get(line, ())
                others[graph, line] = {Operation.dispatched(each) for each in beside if (graph, each.name) not in calls}
            key = (graph, line, Operation.dispatched(node))
            if key not in known:
                known[key] = self._became(*key, others[graph, line], found)
            became[graph, name] = known[key]
        return became

    def _at(self, place: Place) -> Iterator[Place]:
        graph, name = place
        nodes = self._nodes.get(graph, {})
        node = nodes.get(name)
        while node is not None and node.op not in ("placeholder", "get_attr"):
            if node.is_operation:
                yield graph, node.name
                return
            node = nodes.get(node.inputs[0]) if node.inputs else None
        if node is None:
            return
        yield from self._reading(graph, node.name)
        other = f"{number_of(graph)}.backward"
        again = self._nodes.get(other, {}).get(node.name)
        if graph != other and other in self._ids and again is not None and again.role in SHARED_ROLES:
            yield from self._reading(other, node.name)

    def _reading(self, graph: str, name: str) -> Iterator[Place]:
        """The operations that read a node's tensor, views of it among them."""
        views = [name]
        while views:
            for reader in self._readers(graph).get(views.pop(), ()):
                if reader.is_operation:
                    yield graph, reader.name
                if reader.aliases:
                    views.append(reader.name)

    def _readers(self, graph: str) -> dict[str, list[NodeRecord]]:
        if graph not in self._read_by:
            found = self._read_by[graph] = defaultdict(list)
            for node in self._graphs[graph].nodes:
                for name in node.inputs if node.is_call else ():
                    found[name].append(node)
        return self._read_by[graph]

    def _operations(self, graph: str) -> dict[Line, list[NodeRecord]]:
        if graph not in self._by_line:
            found = self._by_line[graph] = defaultdict(list)
            for node in self._graphs[graph].nodes:
                if node.is_operation:
                    found[_line(node)].append(node)
        return self._by_line[graph]

    def _became(
        self, graph: str, line: Line, call: Operation, others: set[Operation], found: set[Place]
    ) -> set[Place] | None:
        """What became of the calls of an operation that have a row; None where that can't be told.

        Args:
            graph: Dynamo's.
            line: where the calls are.
            call: the operation.
            others: those of the line's calls without a row.
            found: operations that have rows of their own.
        """
        there: dict[Operation, list[tuple[Place, NodeRecord]]] = defaultdict(list)
        for other in self.counted:
            for item in self._operations(other.id).get(line, ()) if number_of(other.id) == number_of(graph) else ():
                there[Operation.of(item)].append(((other.id, item.name), item))
        if not there:
            return None
        own = [operation for operation in there if _may_be(call, operation)]
        places = {place for operation in own for place, _ in there[operation]}
        if not places.isdisjoint(found):
            return set()  # the aten graph has said which
        if not others:
            return {place for items in there.values() for place, _ in items}
        beside = {Operation.dispatched(each) for each in self._operations(graph).get(line, ())}
        unclaimed = any(
            any(item.flops for _, item in items) and not any(_may_be(other, operation) for other in beside)
            for operation, items in there.items()
        )
        shared = any(_may_be(other, operation) for operation in own for other in others)
        return None if not own or unclaimed or shared else places


def _line(node: NodeRecord) -> Line:
    return str(node.source), node.module


def _may_be(call: Operation, item: Operation) -> bool:
    """Whether an aten operation may be what a Python call became."""
    return bool((call.short | call.maybe) & item.short)
