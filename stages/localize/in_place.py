"""Operations at fault behind any adapter: parts of a graph by the backend, inside an otherwise right run.

What each operation receives is known from a run by torch (:mod:`stages.localize.reference`). The whole of a graph is
compiled by the backend as it is, and run on what it received. Where a result is wrong against float64 of that, each
half is compiled and run by itself on what torch gave it, and so on: log n compilations a fault. A part that is wrong
though neither of its halves is, is made smaller from both ends; only its fusion is at fault.

A result that is bit for bit torch's own is right: torch's rounding is in every floor. The others are held against
float64, by one draw of the noise as long as parts have halves, and by several before anything is called wrong.

What is cut is given to the backend as a graph of its own. Where it does not take parts from inside a graph, it is given
the graph's beginnings: the shortest one that is wrong ends in the operation at fault.

A fault may need calls before: a part is then called on what it received in another run, as often as the case was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize import pieces
from inductor_debug.stages.localize.evaluation import taken_by
from inductor_debug.stages.localize.regions import Seen, computes
from inductor_debug.stages.localize.replay import Local, Replay

SIDE_BY_SIDE = 32
"""Operations that are alike and compiled side by side, at most."""

FEW = 16
"""Operations of which each is left out once, to see whether the others are wrong without it."""

ALONE = "alone"
TOGETHER = "only when these operations are compiled together"
SMALLER = "when these operations are compiled together; not all of their parts could be compiled by themselves"
BEGINNING = "in the shortest beginning of the graph that is wrong; parts from inside it could not be compiled"


@dataclass(frozen=True)
class Part:
    """A run of a graph's operations.

    Attributes:
        operations: in the graph's order.
        members: these, and views of what they make; ``received`` what those take from outside; ``results`` those of
            the members that others, or the graph's caller, take.
    """

    operations: tuple[fx.Node, ...]
    members: tuple[fx.Node, ...]
    received: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


def part_of(graph: fx.Graph, operations: Sequence[fx.Node]) -> Part:
    """The part that some operations of a graph are."""
    members: dict[fx.Node, None] = {}
    wanted = set(operations)
    for node in graph.nodes:
        view = node.op == "call_function" and not computes(node) and any(item in members for item in taken_by(node))
        if node in wanted or view:
            members[node] = None
    needed = {item for node in members for item in taken_by(node)}
    constants = {item: None for item in graph.nodes if item.op == "get_attr" and item in needed}
    received = [item for item in graph.nodes if item in needed and item not in members and item not in constants]
    results = [node for node in members if isinstance(node.meta.get("val"), torch.Tensor)
               and any(user not in members for user in node.users)]  # fmt: skip
    places = {node: index for index, node in enumerate(graph.nodes)}
    ordered = sorted([*members, *constants], key=places.__getitem__)
    return Part(tuple(operations), tuple(ordered), tuple(received), tuple(results))


@dataclass(frozen=True)
class AtFault:
    """What was found.

    Attributes:
        part: the operation at fault; several where no single one is.
        local: the comparison that shows it.
        shows: how, in words.
    """

    part: Part
    local: Local
    shows: str


@dataclass
class Search:
    """Halves a graph until single operations stand.

    Args:
        seen: a run by torch.
        adapter: the backend.
        factor: error over floor above which a value is wrong.
        over: whether time is up.
        progress: told of each part.
        before: an earlier run by torch, on other inputs; a part is first called on what it received in that.
        calls: how many calls come before the one that is looked at.

    Attributes:
        found: in the order in which they were found.
        missing: what could not be looked at.
        compared: by node, the last comparison of each value.
    """

    seen: Seen
    adapter: AcceleratorAdapter
    factor: float
    over: Callable[[], bool]
    progress: Callable[[str], None]
    before: Seen | None = None
    calls: int = 0
    found: list[AtFault] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    compared: dict[str, Local] = field(default_factory=dict)

    def run(self) -> None:
        """Look, and look again without what was found, until the rest is right.

        A fault of operations that are only together wrong may stand where a part was cut for the sake of another.
        """
        operations = [node for node in self.seen.graph.nodes if computes(node)]
        while operations and self._look(operations):
            known = {node for item in self.found for node in item.part.operations}
            operations = [node for node in operations if node not in known]

    def alone(self) -> None:
        """Each operation on what torch gave it; those that are alike are compiled side by side.

        What is wrong there is compiled once more by itself.
        """
        alike: dict[str, list[Part]] = {}
        for node in (item for item in self.seen.graph.nodes if computes(item)):
            part = part_of(self.seen.graph, [node])
            if part.results:
                alike.setdefault(_signature(node, part), []).append(part)
        for group in alike.values():
            for start in range(0, len(group), SIDE_BY_SIDE):
                self._beside(group[start : start + SIDE_BY_SIDE])

    def _beside(self, group: Sequence[Part]) -> None:
        """Operations that are alike, in one compilation."""
        first, *others = group
        target, name = first.operations[0].target, first.operations[0].name
        if self.over():
            self.missing.append(f"{self.seen.id} {target} alone: time was up")
            return
        self.progress(f"{self.seen.id}: {target} alone")
        found = self._attempted(group, confirmed=True)
        if isinstance(found, str):
            for part in group if others else ():
                self._beside([part])
            if not others:
                self.missing.append(f"{self.seen.id} {name} alone: {found}")
            return
        for part in group:
            names = {node.name for node in part.results}
            wrong = next((local for local in found if local.wrong and local.region.node.name in names), None)
            if wrong is None:
                continue
            by_itself = self._wrong(part.operations, confirmed=True) if others else wrong
            if isinstance(by_itself, Local):
                self.found.append(AtFault(part, by_itself, ALONE))
            else:
                name = part.operations[0].name
                self.missing.append(f"{self.seen.id} {name}, wrong beside those like it and right alone")

    def _look(self, operations: Sequence[fx.Node]) -> bool:
        """Whether a part is wrong; if so, what in it is at fault was found."""
        single = len(operations) == 1
        wrong = self._wrong(operations, confirmed=single)
        if not isinstance(wrong, Local):
            return False
        if single:
            self.found.append(AtFault(part_of(self.seen.graph, operations), wrong, ALONE))
            return True
        middle, refused = len(operations) // 2, len(self.missing)
        halves = [self._look(half) for half in (operations[:middle], operations[middle:])]
        if any(halves):
            return True
        wrong = self._wrong(operations, confirmed=True)
        if not isinstance(wrong, Local):
            return False
        if len(self.missing) == refused or not self._beginnings(operations):
            self._fused(operations, wrong, TOGETHER if len(self.missing) == refused else SMALLER)
        return True

    def _beginnings(self, operations: Sequence[fx.Node]) -> bool:
        """Whether the operation at fault in a part that starts where its graph does was found by beginnings of it."""
        if not computes_first(self.seen.graph, operations):
            return False
        right, wrong = 0, len(operations)
        shown: Local | None = None
        while wrong - right > 1:
            middle = (right + wrong) // 2
            found = self._wrong(operations[:middle], confirmed=True)
            if isinstance(found, str):
                return False
            if found is None:
                right = middle
            else:
                wrong, shown = middle, found
        shown = shown or self.compared.get(operations[right].name)
        if shown is None or not shown.wrong:
            return False
        self.found.append(AtFault(part_of(self.seen.graph, [operations[right]]), shown, BEGINNING))
        return True

    def _fused(self, operations: Sequence[fx.Node], wrong: Local, shows: str) -> None:
        """A part of which neither half is wrong, made smaller as long as it stays wrong."""
        kept = list(operations)
        for end in (0, -1):
            step = (len(kept) + 3) // 4
            while step >= 1 and len(kept) > 1:
                smaller = kept[step:] if end == 0 else kept[:-step]
                still = self._wrong(smaller, confirmed=True) if smaller else None
                if isinstance(still, Local):
                    kept, wrong = smaller, still
                else:
                    step //= 2
        if len(kept) <= FEW:
            for node in list(kept):  # what stands in between may not belong to it
                smaller = [other for other in kept if other is not node]
                still = self._wrong(smaller, confirmed=True) if smaller else None
                if isinstance(still, Local):
                    kept, wrong = smaller, still
        self.found.append(AtFault(part_of(self.seen.graph, kept), wrong, shows))

    def _wrong(self, operations: Sequence[fx.Node], *, confirmed: bool) -> Local | str | None:
        """The first wrong result of a part that the backend compiled and ran; why it could not, or None."""
        span = f"{self.seen.id} {operations[0].name} to {operations[-1].name}"
        if self.over():
            self.missing.append(f"{span}: time was up")
            return "time was up"
        part = part_of(self.seen.graph, operations)
        if not part.results:
            return None
        self.progress(f"{self.seen.id}: {len(operations)} operations from {operations[0].name} on by the backend")
        found = self._attempted([part], confirmed=confirmed)
        if isinstance(found, str):
            self.missing.append(f"{span}: {found}")
            return found
        return next((local for local in found if local.wrong), None)

    def _attempted(self, parts: Sequence[Part], *, confirmed: bool) -> list[Local] | str:
        """Parts side by side in one compilation, compared; or why they could not be compiled or run."""

        def compared() -> list[Local]:
            whole = pieces.side_by_side([pieces.piece_of(self.seen, part, part.results) for part in parts])
            earlier = [] if self.before is None else pieces.side_by_side(
                [pieces.piece_of(self.before, part, part.results) for part in parts]).inputs  # fmt: skip
            ran = pieces.run(whole, pieces.compiled(whole, self.adapter), [earlier] * self.calls)
            replay = Replay(ran, factor=self.factor, known=self.seen.values)
            return replay.locals(confirmed=confirmed)

        found = pieces.attempted(compared)
        if not isinstance(found, str):
            self.compared |= {local.region.node.name: local for local in found}
        return found


def computes_first(graph: fx.Graph, operations: Sequence[fx.Node]) -> bool:
    """Whether operations start with the first of their graph."""
    return operations[0] is next(node for node in graph.nodes if computes(node))


def _signature(node: fx.Node, part: Part) -> str:
    """What is equal for two operations that one compilation serves: operator, arguments, and what it receives."""
    places = {source: number for number, source in enumerate(part.received)}
    arguments = fx.map_arg((node.args, node.kwargs), lambda source: f"<{places.get(source, source.name)}>")
    values = [source.meta.get("val") for source in part.received]
    told = [(value.dtype, value.shape, value.stride(), value.device) if isinstance(value, torch.Tensor) else value
            for value in values]  # fmt: skip
    takes = [(member.target, member.args[1:]) for member in part.members if member is not node]
    return f"{node.target} {arguments} {told} {takes} {len(part.results)}"
