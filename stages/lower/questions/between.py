"""Which library calls lie between two operations of a stored graph, so that no kernel can hold both."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.stored_run import StoredRun


class Between:
    """The library calls of a graph by where they stand in its data flow.

    A kernel that held both ends of a path would have to run before and behind a call on it.

    Args:
        run: a stored run.
        graph: the graph's id.
        launches: the graph's.
    """

    def __init__(self, run: StoredRun, graph: str, launches: Iterable[LaunchRecord]) -> None:
        nodes = run.json(files.POST_GRAD_NODES, graph).nodes
        self._inputs = {node.node: node.inputs for node in nodes}
        self._place = {name: place for place, name in enumerate(self._inputs)}
        self._users: dict[str, list[str]] = {}
        for name, inputs in self._inputs.items():
            for read in inputs:
                self._users.setdefault(read, []).append(name)
        self._calls = {node: launch.launch for launch in launches if launch.kind == "extern" for node in launch.nodes}

    def calls(self, first: Collection[str], second: Collection[str]) -> list[str]:
        """The launches on a way from one to the other, its ends included, in the graph's order.

        Args:
            first, second: names of post-grad nodes.
        """
        inside: set[str] = set()
        for above, below in ((first, second), (second, first)):
            last = max((self._place.get(name, -1) for name in below), default=-1)
            begin = min((self._place.get(name, last) for name in above), default=last)
            reached = self._closure(above, self._users, below, range(last + 1))
            leading = self._closure(below, self._inputs, above, range(begin, len(self._place)))
            inside |= reached & leading | reached & {*below} | leading & {*above}
        between = sorted(inside, key=self._place.__getitem__)
        return list(dict.fromkeys(self._calls[name] for name in between if name in self._calls))

    def _closure(
        self, start: Iterable[str], edges: Mapping[str, Sequence[str]], end: Collection[str], places: range
    ) -> set[str]:
        """What is reached from ``start`` by ``edges`` at these places; what has come to ``end`` does not leave it."""
        found, left = set[str](), list(start)
        while left:
            at = left.pop()
            for name in edges.get(at, ()):
                if name not in found and self._place.get(name) in places and (at not in end or name in end):
                    found.add(name)
                    left.append(name)
        return found
