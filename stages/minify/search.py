"""Reduces a set of units to a smallest one that still fails, with few and cheap executions.

The units are numbered in topological order, and a failure mostly needs few of them that are near one another. So the
search halves first. It then narrows both ends, and takes groups out of the middle by counter-based delta debugging
(arXiv 2408.04735). Last it leaves out one unit at a time. Only a set that was executed and failed is adopted, so a
failure that comes and goes as units are left out costs executions but is never lost.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Units = tuple[int, ...]

_GROWTH = 1 / (1 - 1 / math.e)
"""A group is removed with chance 1/e where its size is the best for its units' probability. So where it is needed, its
units are this many times as probable to be needed (Bayes)."""


@dataclass(frozen=True)
class Reduced:
    """What a set was reduced to.

    Attributes:
        kept: the units left, ascending.
        minimal: whether each of them was tried to be left out and is needed.
        tried: candidates executed.
        failed: how many of those showed the failure.
    """

    kept: Units
    minimal: bool
    tried: int
    failed: int


def reduced(
    cost: Sequence[float],
    failing: Callable[[Units], bool],
    *,
    starts: Iterable[Sequence[int]] = (),
    over: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda left, tried: None,
) -> Reduced:
    """A smallest set of units that still fails: without any one of them it does not.

    The whole set is known to fail and is not executed. No set is executed twice, and the empty one never is.

    With n units, a failure that no further unit hides takes at most 4 n + 8 log2 n + 8 executions, and some 2 log2 n
    where one unit causes it. Any other failure takes at most n (n + 1) / 2 more: each removal may make each unit left
    worth another try.

    Args:
        cost: what each unit costs to run, positive.
        failing: executes some units, ascending, and says whether they show the same failure. What it raises is raised.
        starts: sets that may well fail, e.g. a localized operation. They are tried in order until one fails.
        over: whether the budget is spent; asked before each execution. The best set so far is then the result.
        progress: called after each execution with the number of units left and the executions so far.

    Raises:
        ValueError: if a start has a unit that is not one of the set's.
    """
    search = _Search(cost, failing, over, progress)
    minimal = True
    try:
        search.start(starts)
        search.halve()
        search.narrow()
        search.remove_groups()
        search.remove_units()
    except _Spent:
        minimal = False
    return Reduced(search.left, minimal, search.tried, search.failed)


class _Spent(Exception):
    """The budget is spent; caught by ``reduced``."""


class _Search:
    """The smallest set found so far, ``left``, and what was executed to find it."""

    def __init__(
        self,
        cost: Sequence[float],
        failing: Callable[[Units], bool],
        over: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> None:
        self._cost, self._failing, self._over, self._progress = cost, failing, over, progress
        self._passed: set[Units] = set()
        self.left: Units = tuple(range(len(cost)))
        self.tried = self.failed = 0

    def start(self, starts: Iterable[Sequence[int]]) -> None:
        """Adopt the first start that fails."""
        whole = set(self.left)
        for start in starts:
            units = set(start)
            if strange := sorted(units - whole):
                raise ValueError(f"a start has the units {strange}; valid are 0 to {len(whole) - 1}")
            if units != whole and self._adopts(tuple(sorted(units))):
                return

    def halve(self) -> None:
        """Adopt one half, the cheaper one first, until neither fails."""
        while len(self.left) > 1:
            cheaper, dearer = sorted(_halves(self.left), key=self._cost_of)
            if not self._adopts(cheaper) and not self._adopts(dearer):
                return

    def narrow(self) -> None:
        """Find the last and the first unit needed, by a binary search for each: the former in the second half.

        The two searches take turns. As soon as most of the cost lies between them, what lies there is left out if it
        can be; every later candidate is then cheap.
        """
        head, tail = _halves(self.left)
        body: Units = ()
        body_needed = False
        while len(head) > 1 or len(tail) > 1:
            if len(tail) > 1:
                front, back = _halves(tail)
                body, tail = (body, front) if self._adopts(head + body + front) else (body + front, back)
            if len(head) > 1:
                front, back = _halves(head)
                head, body = (back, body) if self._adopts(back + body + tail) else (front, back + body)
            if not body_needed and self._cost_of(body) > self._cost_of(head + tail):
                body_needed = not self._adopts(head + tail)
                body = body if body_needed else ()

    def remove_groups(self) -> None:
        """Leave out groups of neighbours between the first and the last unit, smaller ones each round.

        The size s of a group maximizes the units expected to go, s (1 - p)^s, where each is needed with probability p.
        The first group is all that is between.
        """
        probability = -math.expm1(-1 / max(1, len(self.left) - 2))
        while (size := round(-1 / math.log1p(-probability))) > 1:
            for group in sorted(_groups(self.left[1:-1], size), key=self._cost_of, reverse=True):
                self._adopts(self._without(group))
            probability *= _GROWTH

    def remove_units(self) -> None:
        """Leave out single units, expensive ones first, until each was tried in vain on the same set."""
        before: Units = ()
        while before != self.left:
            before = self.left
            for unit in sorted(before, key=self._cost.__getitem__, reverse=True):
                self._adopts(self._without((unit,)))

    def _adopts(self, units: Units) -> bool:
        """Whether some of the units left fail; they are then what is left."""
        if not units or units in self._passed:
            return False
        if self._over():
            raise _Spent
        fails = self._failing(units)
        self.tried += 1
        if fails:
            self.failed += 1
            self.left = units
        else:
            self._passed.add(units)
        self._progress(len(self.left), self.tried)
        return fails

    def _without(self, group: Units) -> Units:
        gone = set(group)
        return tuple(unit for unit in self.left if unit not in gone)

    def _cost_of(self, units: Units) -> float:
        return math.fsum(self._cost[unit] for unit in units)


def _halves(units: Units) -> tuple[Units, Units]:
    middle = len(units) // 2
    return units[:middle], units[middle:]


def _groups(units: Units, size: int) -> list[Units]:
    """Neighbours in groups of nearly the same size, at most ``size``."""
    count = math.ceil(len(units) / size)
    return [units[len(units) * index // count : len(units) * (index + 1) // count] for index in range(count)]
