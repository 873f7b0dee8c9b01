"""Coordinates of a layered drawing.

Within a row, places are the least squares of the distances to what each vertex is tied to, under the row's order and
gaps: an isotonic regression, solved by pooling adjacent violators. Rows take turns until they hardly move.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inductor_debug.stages.graph_pictures.layers import GAP, Item, Link, Vertex, assign, order_rows, vertices

THIN = 14.0
"""Width that a line without a label takes in a row, its distance from others included."""
LABEL = 15.0
"""Height of a label on a line."""
ROUNDS = 40
"""Passes over the rows, each downward or upward, the last six minding both sides."""
EDGE = 12.0
"""How far from a box's corner a line may enter it."""


@dataclass(frozen=True)
class Line:
    """From a point down to another: straight where ``x`` is the same, else a curve with vertical ends."""

    x: float
    y: float
    to_x: float
    to_y: float


@dataclass
class Route:
    """How a link is drawn.

    Attributes:
        lines: its lines from the source down.
        tips: where it enters its targets.
        label: the middle of its label, or None.
    """

    lines: list[Line]
    tips: list[tuple[float, float]]
    label: tuple[float, float] | None = None


@dataclass
class Layout:
    """Places in pixels from the drawing's left upper corner.

    Attributes:
        places: left upper corner of each item.
        routes: of each link.
        width, height: of the whole.
    """

    places: list[tuple[float, float]]
    routes: list[Route]
    width: float = 0.0
    height: float = 0.0


def lay_out(items: Sequence[Item], links: Sequence[Link]) -> Layout:
    """Place items in layers, readers below what they read.

    Args:
        items: what to place.
        links: who reads whom; without cycles.
    """
    if not items:
        return Layout([], [])
    layer = assign(items, links)
    found = vertices(items, links, layer, THIN)
    rows = order_rows(found)
    x = _across(found, rows, links)
    left = min(x[index] - vertex.width / 2 for index, vertex in enumerate(found))
    x = [round(place - left, 1) for place in x]
    ports = _ports(items, links, found, x)
    tops, bottoms = _down(items, found, rows, x)
    places = [(round(x[index] - item.width / 2, 1), tops[2 * layer[index]]) for index, item in enumerate(items)]
    routes = _routes(items, links, layer, found, x, ports, tops, bottoms)
    width = max(x[index] + vertex.width / 2 for index, vertex in enumerate(found))
    return Layout(places, routes, round(width, 1), bottoms[-1])


def _gap(left: Vertex, right: Vertex) -> float:
    apart = GAP if left.item >= 0 and right.item >= 0 else 8.0
    return (left.width + right.width) / 2 + apart


def _offset(vertex: Vertex, other: Vertex, links: Sequence[Link]) -> float:
    """Where a line between an item and a trunk meets the item, from the item's middle; 0 where that is open."""
    link = links[max(vertex.link, other.link)]
    item = vertex if vertex.item >= 0 else other
    if item.item < 0:
        return 0.0
    fixed = link.leaves if item.item == link.source else link.enters.get(item.item)
    return 0.0 if fixed is None else fixed - item.width / 2


def _across(found: Sequence[Vertex], rows: Sequence[Sequence[int]], links: Sequence[Link]) -> list[float]:
    x = [0.0] * len(found)
    for row in rows:
        place = 0.0
        for position, index in enumerate(row):
            place += _gap(found[row[position - 1]], found[index]) if position else 0.0
            x[index] = place
        middle = (x[row[0]] + x[row[-1]]) / 2 if row else 0.0
        for index in row:
            x[index] -= middle
    for turn in range(ROUNDS):
        sides = ("up", "down") if turn >= ROUNDS - 6 else (("up",) if turn % 2 == 0 else ("down",))
        for row in rows if turn % 2 == 0 else reversed(rows):
            _settle(found, row, links, x, sides)
    for row in rows:
        for position, index in enumerate(row):
            if found[index].link >= 0:
                _straighten(found, row, position, x)
    return x


def _straighten(found: Sequence[Vertex], row: Sequence[int], position: int, x: list[float]) -> None:
    """Take a trunk straight down, where nothing is in its way."""
    index = row[position]
    (above, _) = found[index].up[0]
    low = high = x[above]
    if position:
        left = row[position - 1]
        low = x[left] + (found[left].width + found[index].width) / 2 + 1
    if position + 1 < len(row):
        right = row[position + 1]
        high = x[right] - (found[right].width + found[index].width) / 2 - 1
    if found[above].link >= 0 and low <= x[above] <= high:
        x[index] = x[above]


def _settle(
    found: Sequence[Vertex], row: Sequence[int], links: Sequence[Link], x: list[float], sides: tuple[str, ...]
) -> None:
    wanted, weights, starts = [], [], []
    start = 0.0
    for position, index in enumerate(row):
        vertex = found[index]
        near = [pair for side in sides for pair in getattr(vertex, side)]
        total, weight = 0.01 * x[index], 0.01
        for other, pull in near:
            shift = _offset(vertex, found[other], links)
            total += pull * (x[other] + (shift if found[other].item >= 0 else -shift))
            weight += pull
        start += _gap(found[row[position - 1]], vertex) if position else 0.0
        wanted.append(total / weight - start)
        weights.append(weight)
        starts.append(start)
    for index, place, start in zip(row, _isotonic(wanted, weights), starts, strict=True):
        x[index] = place + start


def _isotonic(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing numbers that are nearest to the wanted ones in weighted least squares."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (left, left_weight, left_count), (right, right_weight, right_count) = pools[-2:]
            both = left_weight + right_weight
            merged = ((left * left_weight + right * right_weight) / both, both, left_count + right_count)
            pools[-2:] = [merged]
    return [value for value, _, count in pools for _ in range(count)]


Port = tuple[int, int]
"""A link's number and an item's: where the one meets the other."""


def _ports(
    items: Sequence[Item], links: Sequence[Link], found: Sequence[Vertex], x: Sequence[float]
) -> dict[Port, float]:
    """Where lines leave and enter items: straight below or above their trunk where that is within the item."""
    sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
    for index, vertex in enumerate(found):
        if vertex.link < 0:
            continue
        for neighbors, enters in ((vertex.up, False), (vertex.down, True)):
            for other, _ in neighbors:
                if found[other].item >= 0:
                    sides.setdefault((other, enters), []).append((x[index], vertex.link))
    ports: dict[Port, float] = {}
    for (item, _), ends in sides.items():
        ends.sort()
        low, high = x[item] - items[item].width / 2, x[item] + items[item].width / 2
        edge = min(EDGE, items[item].width / 2)
        apart = min(THIN, (high - low - 2 * edge) / max(len(ends) - 1, 1))
        wanted = [min(max(place, low + edge), high - edge) - apart * turn for turn, (place, _) in enumerate(ends)]
        spread = [place + apart * turn for turn, place in enumerate(_isotonic(wanted, [1.0] * len(wanted)))]
        excess = max(0.0, spread[-1] - (high - edge)) if spread[-1] > high - edge else min(0.0, spread[0] - low - edge)
        for place, (_, link) in zip(spread, ends, strict=True):
            fixed = links[link].leaves if links[link].source == item else links[link].enters.get(item)
            ports[link, item] = round(place - excess if fixed is None else low + fixed, 1)
    return ports


def _down(
    items: Sequence[Item], found: Sequence[Vertex], rows: Sequence[Sequence[int]], x: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Top and bottom of every row; gaps grow with how far lines go across."""
    tops, bottoms = [], []
    y = 0.0
    for number, row in enumerate(rows):
        if number % 2:
            height = LABEL if any(found[index].width > THIN for index in row) else 0.0
        else:
            height = max((items[found[index].item].height for index in row if found[index].item >= 0), default=0.0)
        tops.append(round(y, 1))
        bottoms.append(round(y + height, 1))
        far = [abs(x[other] - x[index]) - found[index].width / 2 for index in row for other, _ in found[index].down]
        y += height + min(34.0, 12.0 + max([0.0, *far]) / 14)
    return tops, bottoms


def _routes(
    items: Sequence[Item],
    links: Sequence[Link],
    layer: Sequence[int],
    found: Sequence[Vertex],
    x: Sequence[float],
    ports: dict[Port, float],
    tops: Sequence[float],
    bottoms: Sequence[float],
) -> list[Route]:
    routes: list[Route] = []
    for link in links:
        row = 2 * layer[link.source]
        start = ports[len(routes), link.source]
        low = tops[row] + items[link.source].height
        lines = [Line(start, low, start, bottoms[row])] if bottoms[row] > low else []
        routes.append(Route(lines, []))
    trunks = sorted((vertex.link, vertex.row, index) for index, vertex in enumerate(found) if vertex.link >= 0)
    for number, row, index in trunks:
        link, route = links[number], routes[number]
        (above, _) = found[index].up[0]
        from_x = ports[number, link.source] if found[above].item >= 0 else x[above]
        route.lines.append(Line(from_x, bottoms[row - 1], x[index], tops[row]))
        if bottoms[row] > tops[row]:
            route.lines.append(Line(x[index], tops[row], x[index], bottoms[row]))
        if link.label and found[above].item >= 0:
            route.label = (x[index], (tops[row] + bottoms[row]) / 2)
        for other, _ in found[index].down:
            if found[other].item >= 0:
                tip = (ports[number, found[other].item], tops[row + 1])
                route.lines.append(Line(x[index], bottoms[row], *tip))
                route.tips.append(tip)
    return routes
