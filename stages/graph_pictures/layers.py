"""A layered drawing's layers and orders: longest paths, then barycenters (Sugiyama, Tagawa and Toda 1981).

Every net gets one trunk, from which its readers branch off: a vertical line from the layer of what makes the results
down to the last layer before a reader. So twelve readers of one mask cost one line, not twelve.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

GAP = 26.0
"""Pixels between neighboring boxes."""
WIDEST = 1300.0
"""Pixels of boxes in one layer, gaps included; what comes on top goes to the next."""
STIFF = 60.0
"""Weight of a trunk's straightness, where that of a box above its reader is two."""
SWEEPS = 16
"""Passes over the layers in search of fewer crossings."""


@dataclass(frozen=True)
class Item:
    """Something to place: its size in pixels, and whether it is at the very top or bottom."""

    width: float
    height: float
    pin: Literal["", "top", "bottom"] = ""


@dataclass(frozen=True)
class Link:
    """Readers of an item. ``label`` is the width that its text needs on the trunk, in pixels, 0 for none.

    Attributes:
        source, targets: positions of items; each target comes after the source.
        leaves: where it leaves the source, in pixels from the source's left side; None leaves that open.
        enters: target → where it enters, likewise.
    """

    source: int
    targets: tuple[int, ...]
    label: float = 0.0
    leaves: float | None = None
    enters: dict[int, float] = field(default_factory=dict)


@dataclass
class Vertex:
    """One place in a row: an item (``item``) or a trunk's way through it (``link``).

    Attributes:
        up, down: neighbors in the rows above and below as (vertex, weight).
    """

    row: int
    width: float
    item: int = -1
    link: int = -1
    up: list[tuple[int, float]] = field(default_factory=list)
    down: list[tuple[int, float]] = field(default_factory=list)


def assign(items: Sequence[Item], links: Sequence[Link]) -> list[int]:
    """The layer of each item: below all that it reads, above all readers, no layer much wider than :data:`WIDEST`."""
    above: list[set[int]] = [set() for _ in items]
    below: list[set[int]] = [set() for _ in items]
    for link in links:
        for target in link.targets:
            above[target].add(link.source)
            below[link.source].add(target)
    first = int(any(item.pin == "top" for item in items))
    layer = [0] * len(items)
    used: dict[int, float] = {}

    def fits(index: int, place: int) -> bool:
        return not used.get(place) or used[place] + items[index].width + GAP <= WIDEST

    def put(index: int, place: int) -> None:
        layer[index] = place
        used[place] = used.get(place, 0.0) + items[index].width + GAP

    order = _topological(above, below)
    for index in order:
        place = first if items[index].pin != "top" else 0
        place = max([place, *(layer[source] + 1 for source in above[index])])
        while not fits(index, place) and not items[index].pin:
            place += 1
        put(index, place)
    came = [sum(index in link.targets for link in links) for index in range(len(items))]
    gone = [sum(index == link.source for link in links) for index in range(len(items))]
    for index in reversed(order):  # what has no more above than below comes down to its readers
        readers = [reader for reader in below[index] if items[reader].pin != "bottom"]
        if items[index].pin or not readers or came[index] > gone[index]:
            continue
        lowest = min(layer[reader] for reader in readers) - 1
        lower = next((place for place in range(lowest, layer[index], -1) if fits(index, place)), None)
        if lower is not None:
            used[layer[index]] -= items[index].width + GAP
            put(index, lower)
    return _closed_up(items, layer)


def _closed_up(items: Sequence[Item], layer: list[int]) -> list[int]:
    """The same without empty layers, and what is pinned to the bottom below everything."""
    rest = [place for item, place in zip(items, layer, strict=True) if item.pin != "bottom"]
    new = {place: number for number, place in enumerate(sorted(set(rest)))}
    return [len(new) if item.pin == "bottom" else new[place] for item, place in zip(items, layer, strict=True)]


def _topological(above: Sequence[set[int]], below: Sequence[set[int]]) -> list[int]:
    waiting = [len(sources) for sources in above]
    order = [index for index, count in enumerate(waiting) if not count]
    for index in order:
        for reader in sorted(below[index]):
            waiting[reader] -= 1
            if not waiting[reader]:
                order.append(reader)
    assert len(order) == len(above), "what is drawn has no cycle"
    return order


def vertices(items: Sequence[Item], links: Sequence[Link], layer: Sequence[int], thin: float) -> list[Vertex]:
    """Items in even rows (twice their layer) and trunks from the row below their source on.

    Args:
        items, links, layer: what is drawn, and where.
        thin: width of a trunk without a label, in pixels.
    """
    found = [
        Vertex(2 * place, item.width, item=index) for index, (item, place) in enumerate(zip(items, layer, strict=True))
    ]

    def join(upper: int, lower: int, weight: float) -> None:
        found[upper].down.append((lower, weight))
        found[lower].up.append((upper, weight))

    for number, link in enumerate(links):
        last = max(layer[target] for target in link.targets)
        previous = link.source
        for row in range(2 * layer[link.source] + 1, 2 * last):
            first = row == 2 * layer[link.source] + 1
            found.append(Vertex(row, max(link.label, thin) if first else thin, link=number))
            join(previous, len(found) - 1, 2.0 if first else STIFF)
            previous = len(found) - 1
            for target in link.targets:
                if 2 * layer[target] == row + 1:
                    join(previous, target, 2.0)
    return found


def order_rows(found: Sequence[Vertex]) -> list[list[int]]:
    """The vertices of each row from left to right, with few crossings."""
    rows: list[list[int]] = [[] for _ in range(1 + max((vertex.row for vertex in found), default=-1))]
    for index, vertex in enumerate(found):
        rows[vertex.row].append(index)
    best, fewest = [list(row) for row in rows], _crossings(found, rows)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        place = {index: position for row in rows for position, index in enumerate(row)}
        for row in rows if down else reversed(rows):
            _by_barycenter(found, row, place, down)
        crossings = _crossings(found, rows)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _by_barycenter(found: Sequence[Vertex], row: list[int], place: dict[int, int], down: bool) -> None:
    def center(index: int) -> float:
        near = found[index].up if down else found[index].down
        return sum(place[other] for other, _ in near) / len(near) if near else float(place[index])

    row.sort(key=center)
    for position, index in enumerate(row):
        place[index] = position


def _crossings(found: Sequence[Vertex], rows: Sequence[Sequence[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {index: position for position, index in enumerate(lower)}
        seen: list[int] = []
        for index in upper:
            ends = sorted(place[other] for other, _ in found[index].down)
            for end in ends:
                total += len(seen) - bisect_right(seen, end)
            for end in ends:
                insort(seen, end)
    return total
