"""Operations at fault behind any adapter: parts of a graph by the backend, inside an otherwise right run.

What each operation receives is known from a run by torch (:mod:`stages.localize.runs.reference`). The whole of a graph
is compiled by the backend as it is, and run on what it received. Where a result is wrong against float64 of that, each
half is compiled and run by itself on what torch gave it, and so on: log n compilations a fault. A part that is wrong
though neither of its halves is, is made smaller as long as it stays wrong; only its fusion is at fault.

A result that is bit for bit torch's own is right: torch's rounding is in every floor. The others are held against
float64, by one draw of the noise as long as parts have halves, and by several before anything is called wrong.

The rest is looked at again without the operations that are wrong by themselves. Others that were found stay in the
parts, since each may be wrong with one more too. What such a one takes and gives is then a result of the part: float64
starts anew from what it gives, which is not compared. If they make others wrong too, all of them are left out.

What is cut is given to the backend as a graph of its own, with the views through which the graph takes and gives it.
A view may be what is wrong. Where a backend does not take parts from inside a graph, it is given the graph's
beginnings: the shortest one that is wrong ends in the operation at fault.

To cut makes inputs of values that are none in the graph. Where a part is wrong, the backend is asked whether it reads
what the part receives as it is laid out. What it does not is given contiguous; an input of the graph is named.

A fault may need calls before: a part is then called on what it received in another run, as often as the case was.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.judging.replay import Local, Replay
from inductor_debug.stages.localize.runs.regions import Seen, computes
from inductor_debug.stages.localize.searching import pieces
from inductor_debug.stages.localize.searching.parts import Part, part_of

SIDE_BY_SIDE = 32
"""Operations that are alike and compiled side by side, at most."""

SMALLER_AT_MOST = 96
"""Compilations that making a part smaller may take."""

HIDDEN = f"{pieces.ALONE}, and not in what its whole graph gives"
TOGETHER = "only when these operations are compiled together"
SMALLER = "when these operations are compiled together; not all of their parts could be compiled by themselves"
BEGINNING = "in the shortest beginning of the graph that is wrong; parts from inside it could not be compiled"


@dataclass(frozen=True)
class AtFault:
    """What was found.

    Attributes:
        operations: that at fault; several where no single one is.
        local: the comparison that shows it.
        shows: how, in words.
        known: those of the operations whose values are known to be wrong.
        views: views that are given to no part any more.
    """

    operations: tuple[fx.Node, ...]
    local: Local
    shows: str
    known: tuple[fx.Node, ...] = ()
    views: tuple[fx.Node, ...] = ()


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
        right: whether the whole graph is, as it was given to the backend first.
        misread: values that the backend, given them, reads rightly only where they are contiguous.
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
    right: bool = False
    misread: dict[fx.Node, Local] = field(default_factory=dict)
    _asked: set[fx.Node] = field(default_factory=set)
    _operations: list[fx.Node] = field(default_factory=list)
    _hidden: bool = False

    @property
    def otherwise(self) -> list[str]:
        """What parts were given otherwise than the graph has it, in words."""
        inside = ", ".join(node.name for node in self.misread if node.op != "placeholder")
        why = "no inputs there, and the backend reads such inputs rightly only where they are contiguous"
        return [f"{self.seen.id} {inside} as laid out in the graph: {why}"] if inside else []

    def run(self) -> None:
        """Look, and look again beside what was found, until the rest is right.

        A fault of operations that are only together wrong may stand where a part was cut for the sake of another.
        """
        self._operations = [node for node in self.seen.graph.nodes if computes(node)]
        while rest := [node for node in self._operations if node not in self._left_out]:
            refused = len(self.missing)
            if not self._look(rest) and not (self.found and len(self.missing) > refused and self._beginnings(rest)):
                if self._hidden and self._leave_out():
                    continue
                if len(self.missing) == refused:
                    self.missing.clear()  # parts that could not be looked at by themselves are right in the whole
                    given = (self.compared.get(node.name) for node in self._part(rest).results)
                    self.right = not self.found and all(local and local.row is not None for local in given)
                return

    def _leave_out(self) -> bool:
        """Leave operations out that are only together wrong and give values that are not finite: these hide what comes
        after. Where none is known to give such values, all of them. False: there are none."""
        inside = [item for item in self.found if item.known and item.known != item.operations]
        chosen = [item for item in inside if not _is_finite(item.local)] or inside
        self.found = [replace(item, known=item.operations) if item in chosen else item for item in self.found]
        return bool(chosen)

    @property
    def _left_out(self) -> set[fx.Node]:
        return {node for item in self.found if item.known == item.operations for node in item.operations}

    @property
    def _given(self) -> set[fx.Node]:
        """Values that are known to be wrong."""
        known = {node for item in self.found for node in item.known}
        return known | {user for node in known for user in node.users if user.target is operator.getitem}

    def alone(self) -> None:
        """Each operation on what torch gave it; those that are alike are compiled side by side.

        What is wrong there is compiled once more by itself.
        """
        alike: dict[str, list[Part]] = {}
        for node in (item for item in self.seen.graph.nodes if computes(item)):
            part = self._part([node])
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
                self._single(part, by_itself)
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
            self._single(self._part(operations), wrong)
            return True
        middle, refused = len(operations) // 2, len(self.missing)
        halves = [self._look(half) for half in (operations[:middle], operations[middle:])]
        if any(halves):
            return True
        wrong = self._wrong(operations, confirmed=True)
        if not isinstance(wrong, Local):
            return False
        if len(self.missing) == refused:
            self._fused(operations, wrong, TOGETHER)
        elif not self._beginnings(operations):
            self._fused(operations, wrong, SMALLER)
        return True

    def _part(self, operations: Sequence[fx.Node]) -> Part:
        views = {view for item in self.found for view in item.views}
        taken = {node for item in self.found for known in item.known for node in taken_by(known)}
        return part_of(self.seen.graph, operations, without=views, given=self._given | taken)

    def _single(self, part: Part, wrong: Local) -> None:
        """An operation that is wrong alone, or the view by which it is."""
        view = pieces.wrong_view(self.seen, part.views, self.adapter)
        if view is not None:
            parts = tuple(node for node in view[0].users if node.target is operator.getitem)
            self.found.append(AtFault(view[:1], view[1], pieces.VIEW, views=(view[0], *parts)))
            return
        shows = HIDDEN if self.right else pieces.ALONE
        self.found.append(AtFault(part.operations, wrong, shows + _written(wrong), part.operations))

    def _beginnings(self, operations: Sequence[fx.Node]) -> bool:
        """Whether the operation at fault in a part was found by beginnings of the graph that end in it."""
        right, wrong = self._operations.index(operations[0]), self._operations.index(operations[-1]) + 1
        shown, before = self._wrong(self._operations[:wrong], confirmed=True), None
        while wrong - right > 1 and isinstance(shown, Local):
            middle = (right + wrong) // 2
            found = self._wrong(self._operations[:middle], confirmed=True)
            if isinstance(found, Local):
                wrong, shown = middle, found
            else:  # right, or not compiled: another one may be
                right, before = middle, found
        ended = (self._operations[wrong - 1],)
        names = {node.name for node in self._part(ended).members}
        if before is not None or not isinstance(shown, Local) or shown.region.node.name not in names:
            return False
        self.found.append(AtFault(ended, shown, BEGINNING, ended))
        return True

    def _fused(self, operations: Sequence[fx.Node], wrong: Local, shows: str) -> None:
        """A part of which neither half is wrong, without all that it stays wrong without (Zeller 2002, ``ddmin``)."""
        kept, chunk, tries = list(operations), max(len(operations) // 4, 1), SMALLER_AT_MOST
        while chunk:
            start, before = 0, len(kept)
            while start < len(kept) and tries:
                smaller = kept[:start] + kept[start + chunk :]
                still = self._wrong(smaller, confirmed=True) if smaller else None
                tries -= 1
                if isinstance(still, Local):
                    kept, wrong = smaller, still
                else:
                    start += chunk
            if chunk == 1 and (len(kept) == before or not tries):
                break
            chunk = max(chunk // 2, 1)
        maker = next(node for node in self.seen.graph.nodes if node.name == wrong.region.node.name)
        while maker not in kept and maker.op == "call_function":
            (maker, *_) = taken_by(maker)
        known = (maker,) if maker in kept and shows == TOGETHER else tuple(kept)
        spread = {item.operations for item in self.found if set(item.operations) <= set(kept)}
        self.found = [
            replace(item, known=item.operations) if item.operations in spread else item for item in self.found
        ]
        if not spread:  # else it is what was found before, that makes others wrong too
            self.found.append(AtFault(tuple(kept), wrong, shows + _written(wrong), known))

    def _wrong(self, operations: Sequence[fx.Node], *, confirmed: bool) -> Local | str | None:
        """The first wrong result of a part that the backend compiled and ran; why it could not, or None."""
        span = f"{self.seen.id} {operations[0].name} to {operations[-1].name}"
        if self.over():
            self.missing.append(f"{span}: time was up")
            return "time was up"
        part = self._part(operations)
        if self._given.issuperset(part.results):
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
            whole = self._piece(self.seen, parts)
            earlier = [] if self.before is None else self._piece(self.before, parts).inputs
            ran = pieces.run(whole, pieces.compiled(whole, self.adapter), [earlier] * self.calls)
            written = [pieces.differing(node, ran.inputs[node.name], ran.written[node.name]) for node in ran.graph.nodes
                       if node.name in ran.written]  # fmt: skip
            other = pieces.of_other_kind(ran, self.seen.values)
            self._hidden = any(name in self.seen.values and _hides(value, self.seen.values[name])
                               for name, value in ran.values.items())  # fmt: skip
            without = {node.name for node in self._given}
            replay = Replay(ran, factor=self.factor, known=self.seen.values, without=without)
            return other + written + replay.locals(confirmed=confirmed)

        found = pieces.attempted(compared)
        if not isinstance(found, str) and any(local.wrong for local in found) and self._misreads(parts):
            found = pieces.attempted(compared)
        if not isinstance(found, str):
            told = [local for local in found if local.row is not None or local.region.node.name not in self.compared]
            self.compared |= {local.region.node.name: local for local in told}
        return found

    def _piece(self, seen: Seen, parts: Sequence[Part]) -> pieces.Piece:
        each = [pieces.piece_of(seen, part, part.results, self.misread) for part in parts]
        whole = pieces.side_by_side(each)
        if any(node in self.misread for part in parts for node in part.received):
            FakeTensorProp(whole.module).propagate(*whole.inputs)  # other strides come out too
        return whole

    def _misreads(self, parts: Sequence[Part]) -> bool:
        """Whether, of what parts receive and was not asked for yet, the backend reads something only contiguous."""
        received = {node: None for part in parts for node in part.received if node not in self._asked}
        self._asked |= set(received)
        strided = [node for node in received if not _contiguous(node)]
        found = pieces.misread(self.seen, strided, self.adapter) if strided else {}
        self.misread |= found
        inputs = [(node, local) for node, local in found.items() if node.op == "placeholder"]
        self.found += [AtFault((node,), local, pieces.MISREAD) for node, local in inputs]
        return bool(found)


def _hides(value: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether a value is not finite where torch's is: of what comes after nothing tells whether it is right."""
    return value.is_floating_point() and not bool(value.isfinite().all()) and bool(right.isfinite().all())


def _is_finite(local: Local) -> bool:
    """Whether a value is finite as far as the right one is."""
    row = local.row
    pairs = [] if row is None else [(row.nan_test, row.nan_reference), (row.inf_test, row.inf_reference)]
    return all((mine or 0) <= (right or 0) for mine, right in pairs)


def _contiguous(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_contiguous()


def _written(local: Local) -> str:
    """What is told where the wrong value is one that was received, or of another kind than it should be."""
    kind = "" if local.row is None or local.row.error_rms is not None else f" ({local.row.message})"
    return (
        f", in what it leaves in its input {local.region.node.name}" if local.region.node.op == "placeholder" else kind
    )


def _signature(node: fx.Node, part: Part) -> str:
    """What is equal for two operations that one compilation serves: operator, arguments, and what it receives."""
    places = {source: number for number, source in enumerate(part.received)}
    arguments = fx.map_arg((node.args, node.kwargs), lambda source: f"<{places.get(source, source.name)}>")
    values = [source.meta.get("val") for source in part.received]
    told = [(value.dtype, value.shape, value.stride(), value.device) if isinstance(value, torch.Tensor) else value
            for value in values]  # fmt: skip
    takes = [(member.target, member.args[1:]) for member in part.members if member is not node]
    return f"{node.target} {arguments} {told} {takes} {len(part.results)}"
