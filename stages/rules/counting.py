"""Costs that add up: the bytes of one tensor in one row, however many read it or show it as a view."""

from collections import Counter
from collections.abc import Iterable

from inductor_debug.stages.graphs.known import known_total
from inductor_debug.stages.graphs.records import GETITEM, GraphRecord, number_of
from inductor_debug.stages.rules.checked_tensors import SHARED_ROLES
from inductor_debug.stages.rules.violation import Violation

WHOLE = ("dtype", "rank", "size", "memory_tensor", "operation")
"""Rules whose cost, but for padding, is the tensor itself: a view of one that was counted costs nothing more. A
layout's is a copy of the very view."""


def stands_alone(rule: str, effect: str) -> bool:
    """Whether a row of it costs all that it says, or nothing where another row of the same piece did: no other cost
    changes it."""
    return rule not in WHOLE or effect == "pad"


class Storages:
    """Whose bytes a piece shows."""

    def __init__(self, graphs: Iterable[GraphRecord]) -> None:
        self._nodes = {graph.id: graph.by_name for graph in graphs}
        self._owners: dict[tuple[str, str], tuple[str, str]] = {}
        self._bytes: dict[tuple[str, str], int | None] = {}

    def of(self, piece: str) -> tuple[str, int | None]:
        """The node whose memory a piece is of, a view's that of its base, and that node's bytes; None: not known."""
        graph, _, rest = piece.partition("/")
        place = graph, name = self._owner((graph, rest.partition("[")[0]))
        if place not in self._bytes:
            node = self._nodes.get(graph, {}).get(name)
            self._bytes[place] = None if node is None else known_total(tensor.nbytes for tensor in node.outputs)
        return f"{graph}/{name}", self._bytes[place]

    def _owner(self, place: tuple[str, str]) -> tuple[str, str]:
        passed = []
        while place not in self._owners:
            base = self._base(*place)
            if base is None:
                self._owners[place] = place
            else:
                passed.append(place)
                place = base
        self._owners.update(dict.fromkeys(passed, self._owners[place]))
        return self._owners[place]

    def _base(self, graph: str, name: str) -> tuple[str, str] | None:
        """What a view or a ``getitem`` is of, or a backward graph got of its forward; None for what has memory."""
        node = self._nodes.get(graph, {}).get(name)
        if node is None:
            return None
        if node.is_call:
            view = node.aliases or node.target == GETITEM
            return (graph, node.inputs[0]) if view and node.inputs else None
        forward = f"{number_of(graph)}.forward"
        shared = graph != forward and node.role in SHARED_ROLES and name in self._nodes.get(forward, {})
        return (forward, name) if shared else None


def count_once(rows: Iterable[Violation], graphs: Iterable[GraphRecord]) -> list[Violation]:
    """``rows`` with the cost of each piece in the first of a rule and effect that is not waived, so that costs add up.

    A tensor that several operations read is padded, cast or copied once; the views of one cost together no more than
    it does.
    """
    storages = Storages(graphs)
    first: dict[tuple[str, str, str], Violation] = {}
    holders: dict[tuple[str, str, str], Violation] = {}
    counted: Counter[tuple[str, str, str]] = Counter()
    result = []
    for row in rows:
        cost = row.cost_bytes
        if row.piece and cost and row.severity != "waived":
            known = first.setdefault((row.rule, row.effect, row.piece), row)
            if known is not row:
                row = _counted_at(known, row, 0)
            elif not stands_alone(row.rule, row.effect):
                base, nbytes = storages.of(row.piece)
                key = (row.rule, row.effect, base)
                left = cost if nbytes is None else min(cost, nbytes - counted[key])
                counted[key] += left
                holder = holders.setdefault(key, row)
                if holder is not row and left < cost:
                    row = _counted_at(holder, row, left)
        result.append(row)
    return result


def _counted_at(known: Violation, row: Violation, left: int) -> Violation:
    place = known.node if known.graph == row.graph else f"{known.graph} {known.node}"
    if (known.graph, known.node) == (row.graph, row.node):
        return row.but(cost_bytes=left, message=f"{row.message} (its bytes are counted in another row of {known.node})")
    return row.but(cost_bytes=left, message=f"{row.message} (its bytes are counted at {place})")
