"""Boxes and what they say: a picture before it is written as SVG."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graph_pictures.flow import Flow, Path
from inductor_debug.stages.graph_pictures.grouping import Box
from inductor_debug.stages.graph_pictures.labels import MOST, Words, cells, fitted, tensor_words
from inductor_debug.stages.graph_pictures.layout import THIN, Part, Scene, Shape, Wire, lay_out
from inductor_debug.stages.graphs.records import NodeRecord

TITLE, LINE, SMALL = 7.3, 6.7, 6.1
"""Width of a character in pixels: in a title, in a line, on an edge."""
ROW = 15.0
"""Height of a line of text."""
PADDING = 9.0
FRAME = 16.0
"""Pixels between a frame and what is in it."""
INPUTS = 12
"""Inputs from which on none has a box of its own."""
RETURNS = 4
"""Results of the graph up to which each has a line to the output; of more, those that nothing else reads."""


class Composer:
    """Sets the scene of one graph.

    Args:
        flow: the graph.
        words: what to say about it.
    """

    def __init__(self, flow: Flow, words: Words) -> None:
        self.flow, self.words = flow, words

    def scene(self, boxes: Sequence[Box]) -> Scene:
        """The whole picture."""
        parts = [self._part(box, ()) for box in boxes]
        wires = self._wires(boxes)
        inputs = [node for role in ("input", "tangent") for node in self.flow.placeholder(role) if node.outputs]
        if len(inputs) <= INPUTS:
            for node in inputs:
                self._input(node, boxes, parts, wires)
        self._output(boxes, parts, wires)
        return self._placed(parts, wires)

    def _input(self, node: NodeRecord, boxes: Sequence[Box], parts: list[Part], wires: list[Wire]) -> None:
        readers = [index for index, box in enumerate(boxes) if any(node in self.flow.inputs[n] for n in box.numbers)]
        lines = [tensor_words(tensor) for tensor in node.outputs[:1]] + ([node.role] if node.role == "tangent" else [])
        part = _sized(Part("input", title=node.target, lines=lines, tooltip=[self.words.node(node)], node=node))
        parts.append(part)
        if readers:
            wires.append(Wire(len(parts) - 1, readers, tooltip=self.words.node(node), node=node))

    def _output(self, boxes: Sequence[Box], parts: list[Part], wires: list[Wire]) -> None:
        count = len({name for node in self.flow.record.nodes if node.op == "output" for name in node.inputs})
        parts.append(_sized(Part("output", title="output", lines=[counted(count, "result")])))
        returning = [index for index, box in enumerate(boxes) if self.flow.returned & set(box.numbers)]
        if len(self.flow.returned) > RETURNS:
            read = {wire.source for wire in wires}
            returning = [index for index in returning if index not in read]
        for index in returning:
            tensors = tuple(sorted(self.flow.returned & set(boxes[index].numbers)))
            self._join(wires, index, tensors, len(parts) - 1)

    def _join(self, wires: list[Wire], source: int, tensors: tuple[int, ...], target: int) -> None:
        """Lead a wire to one target more, or make it."""
        for wire in wires:
            if wire.source == source and wire.tensors == tensors and not wire.kept:
                wire.targets.append(target)
                return
        wires.append(self._wire(source, tensors, [target]))

    def _wires(self, boxes: Sequence[Box]) -> list[Wire]:
        """Between boxes of one scope: one wire for all readers of the same results. Symbolic sizes have none."""
        box_of = {number: index for index, box in enumerate(boxes) for number in box.numbers}
        read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for number, target in box_of.items():
            for source in self.flow.reads[number]:
                if source in box_of and box_of[source] != target and not self.flow.is_size(source):
                    read[box_of[source], target].add(source)
        together: dict[tuple[int, tuple[int, ...], bool], list[int]] = defaultdict(list)
        for (source, target), tensors in sorted(read.items()):
            kept = boxes[target].backward and not boxes[source].backward
            together[source, tuple(sorted(tensors)), kept].append(target)
        return [self._wire(source, made, targets, kept) for (source, made, kept), targets in together.items()]

    def _wire(self, source: int, tensors: tuple[int, ...], targets: list[int], kept: bool = False) -> Wire:
        lines = [self.words.node(self.flow.operations[number]) for number in tensors[:8]]
        lines += ["…"] if len(tensors) > 8 else []
        label = self.words.tensors(tensors)
        room = SMALL * cells(label) + 12 if label else THIN
        return Wire(source, targets, tensors, label, "\n".join(lines), kept=kept, room=room)

    def _part(self, box: Box, scope: Path) -> Part:
        shape: Shape = "frame" if box.inside else "stack" if box.members else "box"
        lines = self.words.header(box, scope) if box.inside else self.words.lines(box, scope)
        if box.like is not None:
            lines.append(f"like {self.words.title(box.like, scope)}")
        found = Counter(effect for _, effect, _ in self.words.found(box))
        if found:
            lines.append("! " + ", ".join(f"{effect} {count}" for effect, count in found.items()))
        part = Part(shape, title=self.words.title(box, scope), lines=lines, tooltip=self.words.tooltip(box), box=box)
        return _sized(part)

    def _placed(self, parts: list[Part], wires: list[Wire]) -> Scene:
        """Frames are set first: where lines pass their border decides where lines around them go."""
        for index, part in enumerate(parts):
            if part.shape == "frame":
                self._inside(index, part, wires)
        return lay_out(parts, wires)

    def _inside(self, index: int, part: Part, wires: list[Wire]) -> None:
        """Set what is in a frame; a port for each wire that enters or leaves it."""
        box = part.box
        assert box is not None
        scope = box.paths[0] if box.members else box.path
        boxes = box.inside
        parts = [self._part(inner, scope) for inner in boxes]
        inner_wires = self._wires(boxes)
        entries: dict[int, Part] = {}
        exits: dict[int, Part] = {}
        for number, wire in enumerate(wires):
            if wire.kept:
                continue
            readers = self._readers(boxes, wire) if index in wire.targets else []
            if readers:
                inner_wires.append(Wire(len(parts), readers, wire.tensors, tooltip=wire.tooltip, node=wire.node))
                entries[number] = Part("entry", 10.0)
                parts.append(entries[number])
            if wire.source == index:
                exits[number] = Part("exit", 10.0)
                parts.append(exits[number])
                for inner, item in enumerate(boxes):
                    made = {item.stands[tensor] for tensor in wire.tensors if tensor in item.stands}
                    if made:
                        self._join(inner_wires, inner, tuple(sorted(made)), len(parts) - 1)
        for wire in inner_wires:
            if all(target >= len(boxes) for target in wire.targets):
                wire.label, wire.room = "", THIN  # it is said below the border
        part.inside = self._placed(parts, inner_wires)
        part.width = max(part.width, part.inside.width + 2 * FRAME)
        part.head = part.height
        part.height += part.inside.height + (0.0 if exits else FRAME)
        left = (part.width - part.inside.width) / 2
        for number, entry in entries.items():
            wires[number].enters[index] = left + entry.middle
        for number, leaving in exits.items():
            wires[number].leaves = left + leaving.middle

    def _readers(self, boxes: Sequence[Box], wire: Wire) -> list[int]:
        """Which boxes of a frame read what a wire brings to it, themselves or for a module like them."""
        tensors = set(wire.tensors)
        return [
            index
            for index, box in enumerate(boxes)
            if any(wire.node in self.flow.inputs[n] or tensors.intersection(self.flow.reads[n]) for n in box.stands)
        ]


def _sized(part: Part) -> Part:
    part.title = fitted(part.title)
    part.lines = [fitted(line, 64 if part.shape == "frame" else MOST) for line in part.lines]
    text = max([TITLE * cells(part.title), *(LINE * cells(line) for line in part.lines)])
    part.width = round(max(text + 2 * PADDING + 4, 90.0), 1)
    part.height = 2 * PADDING + ROW * (1 + len(part.lines)) - 2
    return part


def all_parts(scene: Scene) -> list[Part]:
    """The parts and, after each frame, those in it; without entries and exits."""
    found = []
    for part in scene.parts:
        if part.shown:
            found.append(part)
        if part.inside is not None:
            found += all_parts(part.inside)
    return found
