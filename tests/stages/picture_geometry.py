"""Reads a graph's picture back: its boxes, lines and labels, and what must hold of any."""

import json
import re
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
Rect = tuple[float, float, float, float]


@dataclass
class Group:
    """What is drawn in one place: the whole picture, or the inside of a frame."""

    parts: list["Drawn"] = field(default_factory=list)
    wires: list[list[tuple[float, float]]] = field(default_factory=list)
    labels: list[Rect] = field(default_factory=list)


@dataclass
class Drawn:
    """A box, a frame, an input or the output."""

    kinds: list[str]
    rect: Rect
    head: Rect
    nodes: list[str] | None
    texts: list[str]
    tooltip: str
    inside: Group


def parse(picture: str) -> Group:
    return _group(ElementTree.fromstring(picture))


def _group(element: ElementTree.Element, x: float = 0.0, y: float = 0.0) -> Group:
    """What is drawn in an element, from the picture's left upper corner; ``x``, ``y``: where the element's own is."""
    found = Group()
    for child in element:
        kinds = child.get("class", "").split()
        moved = re.fullmatch(r"translate\((\S+) (\S+)\)", child.get("transform", ""))
        if moved:
            inner = _group(child, x + float(moved[1]), y + float(moved[2]))
            found.parts += inner.parts
            found.wires += inner.wires
            found.labels += inner.labels
        elif "wire" in kinds:
            found.wires += [points for path in child.iter(f"{SVG}path") if path.get("class") != "tip"
                            for points in _points(path.get("d", ""), x, y)]  # fmt: skip
            found.labels += [_rect(rect, x, y) for rect in child.iter(f"{SVG}rect")]
        elif "part" in kinds:
            rects = [_rect(rect, x, y) for rect in child.findall(f"{SVG}rect")]
            head = rects[-1]
            rect = rects[0] if "frame" in kinds else rects[-1]
            nodes = child.get("data-nodes")
            texts = ["".join(text.itertext()) for text in (*child.findall(f"{SVG}text"), *child.findall(f"{SVG}a"))]
            tooltip = child.findtext(f"{SVG}title") or ""
            names = None if nodes is None else json.loads(nodes)
            found.parts.append(Drawn(kinds, rect, head, names, texts, tooltip, _group(child, x, y)))
    return found


def _rect(element: ElementTree.Element, x: float, y: float) -> Rect:
    left, top, width, height = (float(element.get(key, "nan")) for key in ("x", "y", "width", "height"))
    return x + left, y + top, x + left + width, y + top + height


def _points(path: str, left: float, top: float) -> list[list[tuple[float, float]]]:
    """Each stroke of a path, as points from its start to its end."""
    found = []
    for stroke in path.split("M")[1:]:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", stroke)]
        x, y = numbers[:2]
        if "V" in stroke:
            found.append([(x, y), (x, (y + numbers[2]) / 2), (x, numbers[2])])
        else:
            (a, b), (c, d), (e, f) = zip(numbers[2::2], numbers[3::2], strict=True)
            steps = [step / 12 for step in range(13)]
            found.append([
                ((1 - t) ** 3 * x + 3 * (1 - t) ** 2 * t * a + 3 * (1 - t) * t * t * c + t**3 * e,
                 (1 - t) ** 3 * y + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t * t * d + t**3 * f)
                for t in steps
            ])  # fmt: skip
    return [[(left + x, top + y) for x, y in points] for points in found]


def all_parts(group: Group) -> list[Drawn]:
    return [found for part in group.parts for found in (part, *all_parts(part.inside))]


def boxes(group: Group) -> list[Drawn]:
    """What stands for operations."""
    return [part for part in all_parts(group) if part.nodes is not None]


def check(group: Group) -> None:
    """Nothing lies over anything else, lines go down and around boxes, frames hold what is in them."""
    for one, other in combinations([part.rect for part in group.parts], 2):
        assert _apart(one, other), (one, other)
    for one, other in combinations(group.labels, 2):
        assert _apart(one, other), (one, other)
    for label in group.labels:
        for part in group.parts:
            assert _apart(label, part.rect), (label, part.texts)
    for wire in group.wires:
        for (_, upper), (_, lower) in pairwise(wire):
            assert lower >= upper - 0.11, wire
        for x, y in wire:
            for part in group.parts:
                left, top, right, bottom = part.rect
                assert not (left + 1 < x < right - 1 and top + 1 < y < bottom - 1), (wire, part.texts)
    for part in group.parts:
        if "frame" in part.kinds:
            left, _, right, bottom = part.rect
            for inner in part.inside.parts:
                assert left <= inner.rect[0] and inner.rect[2] <= right, inner.texts
                assert part.head[3] <= inner.rect[1] and inner.rect[3] <= bottom, inner.texts
            check(part.inside)


def _apart(one: Rect, other: Rect) -> bool:
    slack = 0.15  # figures have one digit after the point
    return (
        one[2] <= other[0] + slack
        or other[2] <= one[0] + slack
        or one[3] <= other[1] + slack
        or other[3] <= one[1] + slack
    )
