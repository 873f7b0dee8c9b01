"""Untimed calls of one side until it is steady."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK_S = 0.02
"""Seconds that a block of calls takes at least: a single call where one takes so long."""
FALL = 0.05
"""A side is steady once a block is not faster by this share than the fastest block before it."""
SHARE = 4
"""Of a process's timing budget, one part in so many may go into warming up a side beyond the least calls."""


@dataclass
class Steadiness:
    """Judges the times of calls, one after the other; the very first call of a side is not to be among them.

    Attributes:
        steady: whether the last whole block was no faster than the ones before it. False before there are two.
    """

    steady: bool = False
    _block: list[float] = field(default_factory=list)
    _in_block: float = 0.0
    _fastest: float | None = None

    def take(self, seconds: float) -> None:
        """Judge one more call."""
        self._block.append(seconds)
        self._in_block += seconds
        if self._in_block < BLOCK_S:
            return
        middle = statistics.median(self._block)
        self.steady = self._fastest is not None and middle >= (1 - FALL) * self._fastest
        self._fastest = middle if self._fastest is None else min(middle, self._fastest)
        self._block, self._in_block = [], 0.0


def warm_up(
    call: Callable[[], object],
    *,
    least: int,
    most: int | None,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[int, bool]:
    """Call until the times fall no more, at least ``least`` times.

    It ends without that at ``most`` calls, or where ``budget_s`` is spent. So a side whose calls go on getting faster
    is told as not steady.

    Args:
        call: one synchronised step, which was taken once before.
        least: calls at least.
        most: calls at most; None: as many as the budget holds. It wins over ``least``.
        budget_s: seconds after which no further call is made, once there are ``least``.
        clock: seconds.

    Returns:
        How many calls were made, and whether the side was steady at their end.
    """
    found, count, began = Steadiness(), 0, clock()
    while most is None or count < most:
        if count >= least and (found.steady or clock() - began > budget_s):
            break
        start = clock()
        call()
        found.take(clock() - start)
        count += 1
    return count, found.steady
