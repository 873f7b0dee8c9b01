"""A drawing in rows: parts below what they read, and the lines between them.

A line to the next row goes straight there. One that goes further runs down a lane at the right of the rows that it
passes, so that it crosses no part. What several parts read has one line, from which they branch off.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from inductor_debug.stages.graph_pictures.grouping import Box
from inductor_debug.stages.graphs.records import NodeRecord

GAP = 26.0
"""Pixels between neighboring parts."""
WIDEST = 1300.0
"""Pixels of a row, gaps included; what comes on top goes to the next."""
THIN = 14.0
"""Pixels between neighboring lines."""
LABEL = 15.0
"""Height of a label on a line."""
BEND, DROP = 12.0, 30.0
"""Height in which lines come to their labels, and from there to the next row."""
EDGE = 12.0
"""How far from a part's corner a line may enter it."""
SWEEPS = 7
"""Passes over the rows, each downward or upward, in search of short lines; the last one is downward."""

Shape = Literal["box", "stack", "frame", "input", "output", "entry", "exit"]


@dataclass
class Part:
    """One thing in a picture.

    Attributes:
        shape: what it is drawn as; an entry or an exit, where lines pass a frame's border, is not drawn.
        width, height: in pixels.
        title, lines: its text. tooltip: what it says when pointed at.
        box: the box, for a box, a stack or a frame.
        node: the placeholder, for an input.
        inside: of a frame, what is in it, and ``head`` the height of the text above that.
        x, y: its left upper corner, in its scene.
    """

    shape: Shape
    width: float = 0.0
    height: float = 0.0
    title: str = ""
    lines: list[str] = field(default_factory=list)
    tooltip: list[str] = field(default_factory=list)
    box: Box | None = None
    node: NodeRecord | None = None
    inside: "Scene | None" = None
    head: float = 0.0
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def shown(self) -> bool:
        return self.shape not in ("entry", "exit")


@dataclass(frozen=True)
class Line:
    """From a point down to another: straight where ``x`` is the same, else a curve with vertical ends."""

    x: float
    y: float
    to_x: float
    to_y: float


@dataclass
class Wire:
    """What some parts read of another, and how it is drawn.

    Attributes:
        source, targets: positions of parts in the scene.
        tensors: numbers of the operations whose results it carries. node: the input that it carries instead.
        label: its text, and ``room`` the pixels that it needs. tooltip: what it says when pointed at.
        kept: True from a joint graph's forward to its backward: such a line ends at a frame's border.
        leaves, enters: where it passes a frame's border, in pixels from the frame's left side; by target.
        path, tips: its lines from the source down, and where it enters each target.
        label_at: the middle of its label.
    """

    source: int
    targets: list[int]
    tensors: tuple[int, ...] = ()
    label: str = ""
    tooltip: str = ""
    node: NodeRecord | None = None
    kept: bool = False
    room: float = THIN
    leaves: float | None = None
    enters: dict[int, float] = field(default_factory=dict)
    path: list[Line] = field(default_factory=list)
    tips: dict[int, tuple[float, float]] = field(default_factory=dict)
    label_at: tuple[float, float] = (0.0, 0.0)


@dataclass
class Scene:
    """A drawing, or the inside of a frame. Places are in pixels from its left upper corner."""

    parts: list[Part]
    wires: list[Wire]
    width: float = 0.0
    height: float = 0.0


def lay_out(parts: list[Part], wires: list[Wire]) -> Scene:
    """Give every part and every wire its place.

    Args:
        parts: each after those that it reads, but for inputs and entries, which read none.
        wires: who reads whom.
    """
    scene = Scene(parts, wires)
    if parts:
        rows = _rows(parts, wires)
        leaving: dict[int, list[Wire]] = defaultdict(list)
        for wire in wires:
            leaving[wire.source].append(wire)
        _across(parts, wires, rows, [
            max(part.width, sum(wire.room for wire in leaving[index])) for index, part in enumerate(parts)
        ])  # fmt: skip
        _Drawing(scene, rows).draw(leaving)
    return scene


def _rows(parts: Sequence[Part], wires: Sequence[Wire]) -> list[list[int]]:
    """The parts by row: below all that they read, and what reads nothing right above its first reader."""
    sources, readers = _neighbors(parts, wires)
    used: dict[int, float] = defaultdict(float)
    first = int(any(part.shape == "entry" for part in parts))
    row = {index: 0 if part.shape == "entry" else first for index, part in enumerate(parts) if not sources[index]}

    def fits(index: int, place: int) -> bool:
        return not used[place] or used[place] + parts[index].width + GAP <= WIDEST

    for index in (index for index in range(len(parts)) if sources[index]):
        row[index] = max(row[source] for source in sources[index]) + 1
        while not fits(index, row[index]):
            row[index] += 1
        used[row[index]] += parts[index].width + GAP
    for index, part in enumerate(parts):
        if not sources[index] and part.shape != "entry" and readers[index]:
            lowest = min(row[reader] for reader in readers[index]) - 1
            row[index] = next((place for place in range(lowest, first, -1) if fits(index, place)), first)
            used[row[index]] += part.width + GAP
    last = max(row.values()) + 1
    row |= {index: last for index, part in enumerate(parts) if part.shape in ("output", "exit")}
    return [[index for index in sorted(row) if row[index] == place] for place in sorted({*row.values()})]


def _neighbors(parts: Sequence[Part], wires: Sequence[Wire]) -> tuple[list[list[int]], list[list[int]]]:
    """Of each part those that it reads, and those that read it."""
    sources: list[list[int]] = [[] for _ in parts]
    readers: list[list[int]] = [[] for _ in parts]
    for wire in wires:
        for target in wire.targets:
            sources[target].append(wire.source)
            readers[wire.source].append(target)
    return sources, readers


def _across(parts: Sequence[Part], wires: Sequence[Wire], rows: list[list[int]], room: Sequence[float]) -> None:
    """Order each row by what its parts read and who reads them, and center it. ``room``: of each part's column."""
    neighbors = _neighbors(parts, wires)
    middle = [0.0] * len(parts)

    def pack(row: Sequence[int]) -> None:
        left = -(sum(room[index] for index in row) + GAP * (len(row) - 1)) / 2
        for index in row:
            middle[index] = left + room[index] / 2
            left += room[index] + GAP

    def wanted(index: int) -> float:
        return fmean(middle[other] for other in near[index]) if near[index] else middle[index]

    for row in rows:
        pack(row)
    for sweep in range(SWEEPS):
        near = neighbors[sweep % 2]
        for row in rows[:: -1 if sweep % 2 else 1]:
            row.sort(key=wanted)
            pack(row)
    left = min(middle[index] - room[index] / 2 for index in range(len(parts)))
    for index, part in enumerate(parts):
        part.x = middle[index] - left - part.width / 2


class _Drawing:
    """Draws the wires of parts whose rows and ``x`` are known, and gives the parts their ``y``."""

    def __init__(self, scene: Scene, rows: Sequence[Sequence[int]]) -> None:
        self.scene, self.parts = scene, scene.parts
        self.row = {index: number for number, row in enumerate(rows) for index in row}
        self.tops: list[float] = []
        self.bottoms: list[float] = []
        self.ends: list[float] = []  # of each row, where its labels end
        self.right: list[float] = []  # of each row, where what is in it ends
        labelled = {self.row[wire.source] for wire in scene.wires if wire.label}
        y = 0.0
        for number, row in enumerate(rows):
            self.tops.append(y)
            self.bottoms.append(y + max(self.parts[index].height for index in row))
            self.ends.append(self.bottoms[-1] + BEND + (LABEL if number in labelled else 0.0))
            self.right.append(max(self.parts[index].x + self.parts[index].width for index in row))
            y = self.ends[-1] + DROP
            for index in row:
                self.parts[index].y = self.tops[-1]

    def draw(self, leaving: Mapping[int, list[Wire]]) -> None:
        slots = [pair for index, wires in sorted(leaving.items()) for pair in self._slots(index, wires)]
        enters: dict[int, list[tuple[float, Wire]]] = defaultdict(list)
        for wire, slot in sorted(slots, key=lambda pair: self._length(pair[0])):  # the shortest lanes are innermost
            row = self.row[wire.source]
            last, lane = self._lane(wire)
            self._leave(wire, slot, row)
            if last > row + 1:
                wire.path.append(Line(slot, self.ends[row], lane, self.tops[row + 1]))
                wire.path.append(Line(lane, self.tops[row + 1], lane, self.ends[last - 1]))
            for target in wire.targets:
                enters[target].append((slot if self.row[target] == row + 1 else lane, wire))
        for target, found in enters.items():
            self._enter(target, sorted(found, key=lambda pair: pair[0]))
        self.scene.width, self.scene.height = max(self.right), self.bottoms[-1]

    def _length(self, wire: Wire) -> int:
        return max(self.row[target] for target in wire.targets) - self.row[wire.source]

    def _slots(self, index: int, wires: Sequence[Wire]) -> list[tuple[Wire, float]]:
        """Where the lines of one part have their labels, side by side; those that take a lane are at the right."""

        def order(wire: Wire) -> tuple[bool, float]:
            return self._length(wire) > 1, fmean(self.parts[target].middle for target in wire.targets)

        row, found = self.row[index], []
        left = self.parts[index].middle - sum(wire.room for wire in wires) / 2
        for wire in sorted(wires, key=order):
            found.append((wire, left + wire.room / 2))
            left += wire.room
        self.right[row] = max(self.right[row], left)
        return found

    def _lane(self, wire: Wire) -> tuple[int, float]:
        """The wire's last row, and the ``x`` of its lane, right of all that is in the rows between."""
        row = self.row[wire.source]
        last = row + self._length(wire)
        passed = range(row + 1, last)
        lane = max((self.right[number] for number in passed), default=0.0) + THIN
        for number in passed:
            self.right[number] = lane
        return last, lane

    def _leave(self, wire: Wire, slot: float, row: int) -> None:
        part = self.parts[wire.source]
        bottom, bend, end = part.y + part.height, self.bottoms[row] + BEND, self.ends[row]
        if wire.leaves is None:
            edge = min(EDGE, part.width / 2)
            leaves = min(max(slot, part.x + edge), part.x + part.width - edge)
        else:
            leaves = part.x + wire.leaves
        if leaves == slot:
            wire.path = [Line(slot, bottom, slot, end)]
        else:
            wire.path = [Line(leaves, bottom, leaves, self.bottoms[row]), Line(leaves, self.bottoms[row], slot, bend)]
            wire.path.append(Line(slot, bend, slot, end))
        wire.label_at = slot, bend + LABEL / 2

    def _enter(self, target: int, wires: Sequence[tuple[float, Wire]]) -> None:
        """Lines come to a part side by side; a single one straight down where that is within the part."""
        part, row = self.parts[target], self.row[target]
        edge = min(EDGE, part.width / 2)
        low, high = part.x + edge, part.x + part.width - edge
        apart = min(THIN, (high - low) / max(len(wires) - 1, 1))
        for number, (x, wire) in enumerate(wires):
            place = part.middle + apart * (number - (len(wires) - 1) / 2) if len(wires) > 1 else min(max(x, low), high)
            if target in wire.enters:
                place = part.x + wire.enters[target]
            wire.path.append(Line(x, self.ends[row - 1], place, self.tops[row]))
            wire.tips[target] = place, self.tops[row]
