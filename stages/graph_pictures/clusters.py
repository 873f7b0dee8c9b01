"""Operations put together so that what they make is still without cycles.

Folding a module to one box can close a cycle. A residual block's own sum lies between its children. One ReLU module can
be called before and after a convolution. So a box is not a module but a *visit* of it. An operation joins its module's
box only where nothing that it reads comes from that box by way of another.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from inductor_debug.stages.graph_pictures.flow import Flow


def cluster(flow: Flow, numbers: Sequence[int], key: Callable[[int], Hashable | None]) -> list[list[int]]:
    """Groups of operations with the same key, such that the graph over the groups has no cycle.

    An operation joins the latest group of its key where it continues that group. It does where it follows it, reads it,
    or reads nothing that the group does not depend on already. What takes one of several results goes with what made
    them.

    Args:
        flow: the graph.
        numbers: the operations, in order.
        key: what belongs together; None for an operation that stays alone.

    Returns:
        The groups by their first operation, each in order.
    """
    groups: list[list[int]] = []
    above: list[int] = []  # of each group the set of groups that it depends on, as bits
    group_of: dict[int, int] = {}
    latest: dict[Hashable, int] = {}
    previous: Hashable | None = None
    for number in numbers:
        wanted = key(number)
        read = {group_of[source] for source in flow.reads[number] if source in group_of}
        here = None if wanted is None else latest.get(wanted)
        if flow.is_item(number) and read:
            here = next(iter(read))
        elif here is not None and wanted != previous and here not in read:
            here = here if all(above[here] >> other & 1 for other in read) else None
        if here is None or any(above[other] >> here & 1 for other in read - {here}):
            here = len(groups)
            groups.append([])
            above.append(0)
            if wanted is not None:
                latest[wanted] = here
        _add_ancestors(above, here, read - {here}, first=not groups[here])
        groups[here].append(number)
        group_of[number] = here
        previous = wanted
    return groups


def _add_ancestors(above: list[int], here: int, read: Iterable[int], *, first: bool) -> None:
    """Note that a group depends on others now, and with it all that depend on it, of which a new one has none."""
    gained = 0
    for other in read:
        gained |= above[other] | 1 << other
    gained &= ~above[here]
    if first:
        above[here] = gained
    elif gained:
        above[here] |= gained
        mark = 1 << here
        for index, bits in enumerate(above):
            if bits & mark:
                above[index] = bits | gained


def ordered(flow: Flow, groups: Sequence[Sequence[int]]) -> list[int] | None:
    """Positions of groups such that each comes after all that it reads, else by first operation; None for a cycle."""
    group_of = {number: index for index, group in enumerate(groups) for number in group}
    above = {
        index: {group_of[read] for number in group for read in flow.reads[number] if read in group_of} - {index}
        for index, group in enumerate(groups)
    }
    sorter = TopologicalSorter(above)
    try:
        sorter.prepare()
    except CycleError:
        return None
    ready: list[tuple[int, int]] = []
    result: list[int] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, (groups[index][0], index))
        result.append(heapq.heappop(ready)[1])
        sorter.done(result[-1])
    return result
