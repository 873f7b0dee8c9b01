"""Operations folded to boxes by module, so that a picture has some tens of them.

From the model down, modules are opened level by level while the boxes stay within the budget. Modules of the same
structure that follow each other become one *stack*. What is left of the budget goes into frames: a stack, or the first
module of a kind, shows its inside; the others say whom they are like.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from inductor_debug.stages.graph_pictures.clusters import cluster, ordered
from inductor_debug.stages.graph_pictures.flow import Flow, Path, common
from inductor_debug.stages.graph_pictures.repeated_blocks import Likeness

SMALL = 60
"""A graph of fewer operations is drawn operation by operation."""
BUDGET = 48
"""Boxes of a picture, those inside frames included; the graph's inputs and its output come on top."""
INSIDE = 24
"""Boxes within one frame."""
DEEPEST = 2
"""Frames within frames."""
WORTH = 8
"""Operations from which on a module without others in it is unfolded, in a picture of few boxes."""
FEW = 12
"""Boxes of such a picture."""
STACK = 3
"""Equal numbered modules (``layer.0``, ``layer.1``, …) that make a stack; two are drawn as two."""


@dataclass(eq=False)
class Box:
    """One box.

    Attributes:
        numbers: its operations as its neighbors see them: in a stack's inside, those of the stack's first module.
        path: the module that all are in; its own operations, one visit of it, or all of it.
        whole: True for a visit of a module with what is in it, False for some operations of the module's own.
        backward: in a joint graph, True for a part of the backward.
        members: of a stack the operations of each of its modules; empty for any other box.
        paths: of a stack the modules.
        visit: which visit of its module this is, counted from 1; 0 where there is only one.
        span: of operations that belong together only by their order, the first and the last one's number; else None.
        inside: what is unfolded in it; empty for a closed box.
        like: the box that has the same structure and is unfolded, if this one isn't.
        stands: what it stands for: its operations, in a stack's inside those of all the stack's modules → which of
            ``numbers`` each is like.
    """

    numbers: list[int]
    path: Path = ()
    whole: bool = False
    backward: bool = False
    members: list[list[int]] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    visit: int = 0
    span: tuple[int, int] | None = None
    inside: list["Box"] = field(default_factory=list)
    like: "Box | None" = None
    stands: dict[int, int] = field(default_factory=dict)

    @property
    def drawn(self) -> list[int]:
        """The operations that its inside shows: of a stack those of the first module."""
        return self.members[0] if self.members else self.numbers


def all_boxes(boxes: Iterable[Box]) -> list[Box]:
    """The boxes and, after each, those in it."""
    return [found for box in boxes for found in (box, *all_boxes(box.inside))]


def fold(flow: Flow, budget: int = BUDGET, small: int = SMALL) -> list[Box]:
    """The boxes of a graph, each after those that it reads; together they hold every operation once.

    Args:
        flow: the graph.
        budget: see :data:`BUDGET`.
        small: see :data:`SMALL`.
    """
    everything = list(range(len(flow.operations)))
    if not everything:
        return []
    if sum(not flow.is_item(number) for number in everything) < small:
        boxes = _Folding(flow, budget).single(everything)
    else:
        boxes = _Folding(flow, budget).boxes(everything)
    for box in boxes:
        _spread(box, [box.numbers])
    return boxes


def _box(flow: Flow, group: list[int]) -> Box:
    path = common([flow.paths[number] for number in group if not flow.is_item(number)] or [flow.paths[group[0]]])
    return Box(group, path, backward=any(flow.backward[number] for number in group))


def _in_order(flow: Flow, boxes: list[Box]) -> list[Box]:
    order = ordered(flow, [box.numbers for box in boxes])
    assert order is not None, "clusters have no cycle"
    return [boxes[index] for index in order]


def _spread(box: Box, members: list[list[int]]) -> None:
    """Tell a box and its inside all operations that they stand for.

    Args:
        box: the box.
        members: the same part of the graph as often as the box stands for it, ``box.numbers`` first.
    """
    box.stands = {other: number for member in members for other, number in zip(member, box.numbers, strict=True)}
    place = {number: position for position, number in enumerate(box.numbers)}
    inner = box.members or [box.numbers]
    spread = [[member[place[number]] for number in part] for member in members for part in inner]
    position = {number: index for index, number in enumerate(box.drawn)}
    for part in box.inside:
        _spread(part, [[member[position[number]] for number in part.numbers] for member in spread])


class _Folding:
    """Folds one graph."""

    def __init__(self, flow: Flow, budget: int) -> None:
        self.flow, self.budget = flow, budget
        self.likeness = Likeness(flow)

    def boxes(self, numbers: list[int]) -> list[Box]:
        """The boxes of the whole graph; what no module parts is parted by order."""
        budget = self.budget
        scope = common([self.flow.paths[number] for number in numbers])
        found = self._levels(numbers, scope, budget)
        if len(found) == 1:
            found = self.single(numbers)
        if len(found) > budget:
            found = _spans(found, max(budget // 2, 1))
        self._frames(found, budget - len(found), 0)
        return found

    def _levels(self, numbers: list[int], scope: Path, budget: int) -> list[Box]:
        """Boxes of the deepest level that is within the budget; those of the first where none is."""
        opened, paths = {scope}, self.flow.paths
        best = self._level(numbers, scope, opened)
        while len(best) <= budget:
            lists = {box.path for box in best if box.members}
            closed = [box for box in best if box.whole and not box.members and box.path[:-1] not in lists]
            deeper = {box.path for box in closed if any(len(paths[number]) > len(box.path) for number in box.numbers)}
            if not deeper:
                break
            trial = self._level(numbers, scope, opened | deeper)
            if len(trial) > budget:
                break
            opened |= deeper
            best = trial
        return best

    def _level(self, numbers: list[int], scope: Path, opened: set[Path]) -> list[Box]:
        """Boxes where the given modules are open, and their own operations beside those of the modules in them."""

        def key(number: int) -> tuple[bool, Path, bool]:
            path = self.flow.paths[number]
            for depth in range(len(scope), len(path) + 1):
                if path[:depth] not in opened:
                    return self.flow.backward[number], path[:depth], False
            return self.flow.backward[number], path, True

        boxes = []
        for group in cluster(self.flow, numbers, key):
            backward, path, own = key(group[0])
            boxes.append(Box(group, path, not own, backward))
        visits: dict[tuple[bool, Path], list[Box]] = defaultdict(list)
        for box in boxes:
            if box.whole:
                visits[box.backward, box.path].append(box)
        for same in visits.values():
            for visit, box in enumerate(same, 1):
                box.visit = visit if len(same) > 1 else 0
        return self._stacked(_in_order(self.flow, boxes))

    def _stacked(self, boxes: list[Box]) -> list[Box]:
        """The same with runs of equal modules as stacks, where that closes no cycle."""
        siblings: dict[tuple[bool, Path], list[Box]] = defaultdict(list)
        for box in boxes:
            if box.whole and box.path and box.path[-1].isdigit() and not box.visit:
                siblings[box.backward, box.path[:-1]].append(box)
        for same in siblings.values():
            for run in self._runs(same):
                stack = Box(
                    sorted(number for box in run for number in box.numbers),
                    common([box.path for box in run]),
                    whole=True,
                    backward=run[0].backward,
                    members=[box.numbers for box in run],
                    paths=[box.path for box in run],
                )
                merged = [box for box in boxes if box not in run] + [stack]
                order = ordered(self.flow, [box.numbers for box in merged])
                boxes = boxes if order is None else [merged[index] for index in order]
        return boxes

    def _runs(self, boxes: list[Box]) -> list[list[Box]]:
        runs = groupby(boxes, key=lambda box: self.likeness.same(box.numbers, len(box.path)))
        return [run for run in (list(same) for _, same in runs) if len(run) >= STACK]

    def _frames(self, boxes: list[Box], budget: int, depth: int) -> int:
        """Unfold one box of each kind, the kind with most operations first; gives what is left of the budget."""
        kinds: dict[tuple[bool, Any], list[Box]] = defaultdict(list)
        for box in boxes:
            if box.whole and len(box.drawn) > 1:
                depth_of_box = len(box.paths[0] if box.members else box.path)
                kinds[box.backward, self.likeness.kind(box.drawn, depth_of_box)].append(box)
        for same in sorted(kinds.values(), key=lambda same: -sum(len(box.numbers) for box in same)):
            first = next((box for box in same if box.members), same[0])
            inside = self._inside(first, budget) if depth < DEEPEST else []
            if len(inside) > 1:
                first.inside = inside
                budget = self._frames(inside, budget - len(inside), depth + 1)
            for box in same:
                box.like = first if first.inside and box is not first else None
        return budget

    def _inside(self, box: Box, left: int) -> list[Box]:
        scope = box.paths[0] if box.members else box.path
        budget = min(left, INSIDE)
        found = self._levels(box.drawn, scope, budget)
        if len(found) == 1 and len(box.drawn) >= WORTH and left > self.budget - FEW:
            found = self.single(box.drawn)
            found = _spans(found, FEW) if len(found) > budget else found
        return found if len(found) <= budget else []

    def single(self, numbers: list[int]) -> list[Box]:
        """Boxes of one operation each."""
        groups = cluster(self.flow, numbers, lambda number: None)
        return _in_order(self.flow, [_box(self.flow, group) for group in groups])


def _spans(boxes: Sequence[Box], budget: int) -> list[Box]:
    """Boxes that follow each other put together to at most about so many: their order leaves no cycle."""
    share = -(-sum(len(box.numbers) for box in boxes) // budget)
    result: list[list[Box]] = [[]]
    together = 0
    for box in boxes:
        if result[-1] and together + len(box.numbers) > share:
            result.append([])
            together = 0
        result[-1].append(box)
        together += len(box.numbers)
    return [run[0] if len(run) == 1 else _span(run) for run in result]


def _span(run: list[Box]) -> Box:
    numbers = sorted(number for box in run for number in box.numbers)
    path = common([box.path for box in run])
    paths = list(dict.fromkeys(path for box in run for path in (box.paths or [box.path])))
    backward = any(box.backward for box in run)
    return Box(numbers, path, backward=backward, paths=paths, span=(numbers[0], numbers[-1]))


def targets(flow: Flow, numbers: Iterable[int]) -> Counter[str]:
    """How often each target is called, without those that only take one of several results."""
    return Counter(flow.operations[number].target for number in numbers if not flow.is_item(number))
