"""Operations at fault behind any adapter: parts of a graph by the backend, inside an otherwise right run.

The case runs once with torch executing AOTAutograd's graphs, operation by operation; so what each operation receives is
known. Then the whole of a graph is compiled by the backend as it is, and run on what it received. Where a result is
wrong against float64 of that, each half is compiled and run by itself on what torch gave it, and so on: log n
compilations a fault. A part that is wrong though neither of its halves is, is made smaller from both ends; only its
fusion is at fault.

What is cut is given to the backend as a graph of its own. So a fault that needs the neighbour is found only as a part.
One that needs what a call leaves behind, or the n-th call, is not found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize import pieces
from inductor_debug.stages.localize.evaluation import taken_by
from inductor_debug.stages.localize.replay import Local, Seen, computes
from inductor_debug.stages.localize.sources import Origin, origins_of_record

TOGETHER = 32
"""Operations that are alike and compiled side by side, at most."""

FEW = 16
"""Operations of which each is left out once, to see whether the others are wrong without it."""


class ReferenceRun(AcceleratorAdapter):
    """AOTAutograd's graphs as the adapter would get them, executed by torch; every value is kept.

    Args:
        adapter: whose decompositions are applied.

    Attributes:
        seen: each run of a graph, in order.
        origins: graph id → origins of its nodes.
    """

    name = "reference"

    def __init__(self, adapter: AcceleratorAdapter) -> None:
        self.decompositions = adapter.decompositions
        self.seen: list[Seen] = []
        self.origins: dict[str, dict[str, Origin]] = {}
        self.on = False

    @property
    def as_traced(self) -> bool:
        return True

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        record = self.record(gm)
        self.origins[record.id] = origins_of_record(record)

        def run(*inputs: Any) -> Any:
            if not self.on:
                return gm.forward(*inputs)
            values = _Values(gm)
            names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            given = {name: value.clone() if isinstance(value, torch.Tensor) else value
                     for name, value in zip(names, inputs, strict=True)}  # fmt: skip
            result = values.run(*inputs)
            calls = sum(item.id == record.id for item in self.seen)
            self.seen.append(Seen(record.id, gm.graph, gm, given, values.found, {}, calls))
            return result

        return run


class _Values(fx.Interpreter):
    """Keeps a copy of what each call gives."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.found: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            self.found[n.name] = result.detach().clone()
        return result


def reference_run(case: Case, adapter: AcceleratorAdapter) -> ReferenceRun:
    """One step of the case, as it stands, through :class:`ReferenceRun`; the case is left as found."""
    reference = ReferenceRun(adapter)
    compiled = compile_case(case, reference)
    reference.on = True
    case.run(compiled)
    return reference


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


@dataclass
class Search:
    """Halves a graph until single operations stand.

    Args:
        seen: a run by torch.
        adapter: the backend.
        factor: error over floor above which a value is wrong.
        over: whether time is up.
        progress: told of each part.

    Attributes:
        found: operations at fault, and the comparison that shows each.
        missing: what could not be looked at.
    """

    seen: Seen
    adapter: AcceleratorAdapter
    factor: float
    over: Callable[[], bool]
    progress: Callable[[str], None]
    found: list[tuple[Part, Local]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    compared: dict[str, Local] = field(default_factory=dict)

    def run(self) -> None:
        operations = [node for node in self.seen.graph.nodes if computes(node)]
        if operations:
            self._look(operations)

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
            for start in range(0, len(group), TOGETHER):
                self._beside(group[start : start + TOGETHER])

    def _beside(self, group: Sequence[Part]) -> None:
        """Operations that are alike, in one compilation."""
        first, *others = group
        target, name = first.operations[0].target, first.operations[0].name
        if self.over():
            self.missing.append(f"{self.seen.id} {target} alone: time was up")
            return
        self.progress(f"{self.seen.id}: {target} alone")
        found = pieces.attempted(lambda: self._compared_beside(group))
        if isinstance(found, str):
            for part in group if others else ():
                self._beside([part])
            if not others:
                self.missing.append(f"{self.seen.id} {name} alone: {found}")
            return
        self.compared |= {local.region.node.name: local for local in found}
        for part in group:
            names = {node.name for node in part.results}
            wrong = next((local for local in found if local.wrong and local.region.node.name in names), None)
            if wrong is None:
                continue
            by_itself = self._wrong(part.operations) if others else wrong
            if by_itself is None:
                name = part.operations[0].name
                self.missing.append(f"{self.seen.id} {name}, wrong beside those like it and right alone")
            else:
                self.found.append((part, by_itself))

    def _compared_beside(self, group: Sequence[Part]) -> list[Local]:
        whole = pieces.side_by_side([pieces.piece_of(self.seen, part, part.results) for part in group])
        return pieces.compared(whole, self.adapter, factor=self.factor)

    def _look(self, operations: Sequence[fx.Node]) -> bool:
        """Whether a part is wrong; if so, what in it is at fault was found."""
        wrong = self._wrong(operations)
        if wrong is None:
            return False
        if len(operations) == 1:
            self.found.append((part_of(self.seen.graph, operations), wrong))
            return True
        middle = len(operations) // 2
        halves = [self._look(half) for half in (operations[:middle], operations[middle:])]
        if not any(halves):
            self._fused(operations, wrong)
        return True

    def _fused(self, operations: Sequence[fx.Node], wrong: Local) -> None:
        """A part of which neither half is wrong, made smaller as long as it stays wrong."""
        kept = list(operations)
        for end in (0, -1):
            step = (len(kept) + 3) // 4
            while step >= 1 and len(kept) > 1:
                smaller = kept[step:] if end == 0 else kept[:-step]
                still = self._wrong(smaller) if smaller else None
                if still is None:
                    step //= 2
                else:
                    kept, wrong = smaller, still
        if len(kept) <= FEW:
            for node in list(kept):  # what stands in between may not belong to it
                smaller = [other for other in kept if other is not node]
                still = self._wrong(smaller) if smaller else None
                if still is not None:
                    kept, wrong = smaller, still
        self.found.append((part_of(self.seen.graph, kept), wrong))

    def _wrong(self, operations: Sequence[fx.Node]) -> Local | None:
        """The first wrong result of a part that the backend compiled and ran; None where there is none."""
        if self.over():
            self.missing.append(f"{self.seen.id} {operations[0].name} to {operations[-1].name}: time was up")
            return None
        part = part_of(self.seen.graph, operations)
        if not part.results:
            return None
        self.progress(f"{self.seen.id}: {len(operations)} operations from {operations[0].name} on by the backend")
        found = pieces.attempted(lambda: pieces.compared(pieces.piece_of(self.seen, part, part.results), self.adapter,
                                                         factor=self.factor))  # fmt: skip
        if isinstance(found, str):
            self.missing.append(f"{self.seen.id} {operations[0].name} to {operations[-1].name}: {found}")
            return None
        for local in found:
            self.compared[local.region.node.name] = local
        return next((local for local in found if local.wrong), None)


def _signature(node: fx.Node, part: Part) -> str:
    """What is equal for two operations that one compilation serves: operator, arguments, and what it receives."""
    places = {source: number for number, source in enumerate(part.received)}
    arguments = fx.map_arg((node.args, node.kwargs), lambda source: f"<{places.get(source, source.name)}>")
    values = [source.meta.get("val") for source in part.received]
    told = [(value.dtype, value.shape, value.stride(), value.device) if isinstance(value, torch.Tensor) else value
            for value in values]  # fmt: skip
    takes = [(member.target, member.args[1:]) for member in part.members if member is not node]
    return f"{node.target} {arguments} {told} {takes} {len(part.results)}"
