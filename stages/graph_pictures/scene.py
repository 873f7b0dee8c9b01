"""Boxes, what they say and where they are: a picture before it is written as SVG."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graph_pictures.flow import Flow, Path
from inductor_debug.stages.graph_pictures.grouping import Box
from inductor_debug.stages.graph_pictures.labels import MOST, Words, cells, fitted, tensor_words
from inductor_debug.stages.graph_pictures.layers import Item, Link
from inductor_debug.stages.graph_pictures.layout import Layout, lay_out
from inductor_debug.stages.graph_pictures.nets import Net, nets
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

Shape = Literal["box", "stack", "frame", "input", "output", "port"]


@dataclass
class Part:
    """One thing in a picture.

    Attributes:
        shape: what it is drawn as; a port is where lines pass a frame's border, and is not drawn.
        box: the box, for a box, a stack or a frame.
        node: the placeholder, for an input.
        title, lines: its text. tooltip: what it says when pointed at.
        width, height: in pixels. x, y: its left upper corner, in the whole picture.
        inside: of a frame, what is in it.
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
    x: float = 0.0
    y: float = 0.0

    @property
    def head(self) -> float:
        """Height of a frame's text."""
        return text_height(self.lines)


@dataclass
class Wire:
    """A line's meaning.

    Attributes:
        source, targets: positions of parts in the scene.
        tensors: numbers of the operations whose results it carries. node: the input that it carries instead.
        label: its text. tooltip: what it says when pointed at.
        kept: True from a joint graph's forward to its backward: such a line ends at a frame's border.
    """

    source: int
    targets: list[int]
    tensors: tuple[int, ...] = ()
    label: str = ""
    tooltip: str = ""
    node: NodeRecord | None = None
    kept: bool = False


@dataclass
class Scene:
    """A drawing, or the inside of a frame: parts, wires, and where they are."""

    parts: list[Part]
    wires: list[Wire]
    layout: Layout
    entries: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)

    def port(self, number: int) -> float:
        """The middle of a port, from the scene's left side."""
        return self.layout.places[number][0] + self.parts[number].width / 2


def text_height(lines: Sequence[str]) -> float:
    """Height in pixels of a title with lines under it."""
    return 2 * PADDING + ROW * (1 + len(lines)) - 2


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
        wires = [self._wire(net) for net in nets(self.flow, boxes)]
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
        wires.append(self._wire(Net(source, tensors, (target,))))

    def _wire(self, net: Net) -> Wire:
        lines = [self.words.node(self.flow.operations[number]) for number in net.tensors[:8]]
        lines += ["…"] if len(net.tensors) > 8 else []
        label = self.words.tensors(net.tensors)
        return Wire(net.source, list(net.targets), net.tensors, label, "\n".join(lines), kept=net.kept)

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

    def _placed(self, parts: list[Part], wires: list[Wire], scope_ports: "_Ports | None" = None) -> Scene:
        """Frames are set first: where lines pass their border decides where lines around them go."""
        for index, part in enumerate(parts):
            if part.shape == "frame":
                self._inside(index, part, wires)
        links = []
        for number, wire in enumerate(wires):
            leaves, enters = None, {}
            inside = parts[wire.source].inside
            if inside is not None and number in inside.exits:
                leaves = _shift(parts[wire.source], inside) + inside.port(inside.exits[number])
            for target in wire.targets:
                inner = parts[target].inside
                if inner is not None and number in inner.entries:
                    enters[target] = _shift(parts[target], inner) + inner.port(inner.entries[number])
            label = SMALL * cells(wire.label) + 6 if wire.label else 0.0
            links.append(Link(wire.source, tuple(sorted(wire.targets)), label, leaves, enters))
        pins: dict[str, Literal["", "top", "bottom"]] = {"output": "bottom"}
        items = [Item(part.width, part.height, pins.get(part.shape, "")) for part in parts]
        if scope_ports is not None:
            for number in scope_ports.entries.values():
                items[number] = Item(items[number].width, 0.0, "top")
            for number in scope_ports.exits.values():
                items[number] = Item(items[number].width, 0.0, "bottom")
        layout = lay_out(items, links)
        ports = scope_ports or _Ports({}, {})
        return Scene(parts, wires, layout, ports.entries, ports.exits)

    def _inside(self, index: int, part: Part, wires: list[Wire]) -> None:
        """Set what is in a frame; a port for each wire that enters or leaves it."""
        box = part.box
        assert box is not None
        scope = box.paths[0] if box.members else box.path
        boxes = box.inside
        parts = [self._part(inner, scope) for inner in boxes]
        inner_wires = [self._wire(net) for net in nets(self.flow, boxes)]
        entries: dict[int, int] = {}
        exits: dict[int, int] = {}
        for number, wire in enumerate(wires):
            if wire.kept:
                continue
            if index in wire.targets:
                readers = self._readers(boxes, wire)
                if readers:
                    entries[number] = len(parts)
                    parts.append(Part("port", 10.0))
                    inner_wires.append(replace(wire, source=entries[number], targets=readers, label=""))
            if wire.source == index:
                exits[number] = len(parts)
                parts.append(Part("port", 10.0))
                for inner, item in enumerate(boxes):
                    made = {item.stands[tensor] for tensor in wire.tensors if tensor in item.stands}
                    if made:
                        self._join(inner_wires, inner, tuple(sorted(made)), exits[number])
        for wire in inner_wires:
            if all(target >= len(boxes) for target in wire.targets):
                wire.label = ""  # it is said below the border
        part.inside = self._placed(parts, inner_wires, _Ports(entries, exits))
        part.width = max(part.width, part.inside.layout.width + 2 * FRAME)
        part.height = part.head + part.inside.layout.height + (0.0 if exits else FRAME)

    def _readers(self, boxes: Sequence[Box], wire: Wire) -> list[int]:
        """Which boxes of a frame read what a wire brings to it, themselves or for a module like them."""
        tensors = set(wire.tensors)
        return [
            index
            for index, box in enumerate(boxes)
            if any(wire.node in self.flow.inputs[n] or tensors.intersection(self.flow.reads[n]) for n in box.stands)
        ]


@dataclass
class _Ports:
    """Wire of the scene around → part of the scene inside that stands for it at the border."""

    entries: dict[int, int]
    exits: dict[int, int]


def _shift(part: Part, inside: Scene) -> float:
    """How far a frame's inside is from its left side."""
    return (part.width - inside.layout.width) / 2


def _sized(part: Part) -> Part:
    part.title = fitted(part.title)
    part.lines = [fitted(line, 64 if part.shape == "frame" else MOST) for line in part.lines]
    text = max([TITLE * cells(part.title), *(LINE * cells(line) for line in part.lines)])
    part.width = round(max(text + 2 * PADDING + 4, 90.0), 1)
    part.height = text_height(part.lines)
    return part


def settle(scene: Scene, x: float, y: float) -> None:
    """Tell every part where it is in the whole picture.

    Args:
        scene: the picture, or the inside of a frame.
        x, y: its left upper corner.
    """
    for part, (left, top) in zip(scene.parts, scene.layout.places, strict=True):
        part.x, part.y = round(x + left, 1), round(y + top, 1)
        if part.inside is not None:
            settle(part.inside, part.x + _shift(part, part.inside), part.y + part.head)


def origin(part: Part) -> tuple[float, float]:
    """Left upper corner of what is in a frame."""
    assert part.inside is not None
    return part.x + _shift(part, part.inside), part.y + part.head


def all_parts(scene: Scene) -> list[Part]:
    """The parts and, after each frame, those in it; without ports."""
    found = []
    for part in scene.parts:
        if part.shape != "port":
            found.append(part)
        if part.inside is not None:
            found += all_parts(part.inside)
    return found
