"""One thing that is held to what it was, and the scales on which it is."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from inductor_debug.pipeline.query.gate.limits import Limits

NOTHING_TO_HOLD_TO = "A has none that it could be held to"
ONLY_IN_A = "A had it established, B has none"


class Outcome(StrEnum):
    """What became of it."""

    WORSE = "worse"
    BETTER = "better"
    NOT_ESTABLISHED = "not_established"


@dataclass(frozen=True)
class Judgement:
    """A row of the tables ``worse``, ``better`` and ``not_established``. What is neither has none.

    Attributes:
        what: is held.
        a, b: what each side has of it; None for nothing.
        change: from A to B, or why it is not known.
        limit: key and value of the limit.
        fails: whether it makes the exit code 1.
    """

    what: str
    a: Any
    b: Any
    change: str
    limit: str
    outcome: Outcome
    fails: bool


@dataclass
class Scales:
    """Holds what B has to what A had, and keeps what is not as it was.

    Args:
        limits: what is allowed. Nothing is judged by a limit of None.
    """

    limits: Limits
    rows: list[Judgement] = field(default_factory=list)

    def limit(self, key: str) -> Any:
        """A limit's value; None where it is not to be judged."""
        return getattr(self.limits, key)

    def worse(self, key: str, what: str, a: Any, b: Any, change: str) -> None:
        """Keep something that got worse beyond its limit.

        Args:
            key: of the limit.
            what, a, b, change: as of :class:`Judgement`.
        """
        self._keep(key, what, a, b, change, Outcome.WORSE, True)

    def better(self, key: str, what: str, a: Any, b: Any, change: str) -> None:
        """Keep something that got better.

        Args:
            key: of the limit.
            what, a, b, change: as of :class:`Judgement`.
        """
        self._keep(key, what, a, b, change, Outcome.BETTER, False)

    def unknown(self, key: str, what: str, a: Any, b: Any, why: str, *, fails: bool) -> None:
        """Keep something that could not be compared.

        Args:
            key: of the limit.
            what, a, b: as of :class:`Judgement`.
            why: it could not.
            fails: True where A had it established.
        """
        self._keep(key, what, a, b, why, Outcome.NOT_ESTABLISHED, fails)

    def lacks(self, key: str, what: str, a: Any, b: Any) -> bool:
        """Whether it can't be compared as a side has none of it, which is kept where the other has one.

        Args:
            key: of the limit.
            what, a, b: as of :class:`Judgement`; None for nothing.
        """
        if a is None and b is not None:
            self.unknown(key, what, a, b, NOTHING_TO_HOLD_TO, fails=False)
        if a is not None and b is None:
            self.unknown(key, what, a, b, ONLY_IN_A, fails=True)
        return a is None or b is None

    def count(self, key: str, what: str, a: int | None, b: int | None) -> None:
        """Hold a count, of which more is worse: the limit is how many more.

        Args:
            key: of the limit.
            what, a, b: as of :class:`Judgement`.
        """
        limit = self.limit(key)
        if limit is None or self.lacks(key, what, a, b):
            return
        assert a is not None and b is not None
        if b - a > limit:
            self.worse(key, what, a, b, f"{b - a:+d}")
        elif b < a:
            self.better(key, what, a, b, f"{b - a:+d}")

    def amount(self, key: str, what: str, a: float | None, b: float | None, *, noise: float = 0.0) -> None:
        """Hold an amount, of which more is worse: the limit is how many times as much.

        Args:
            key: of the limit.
            what, a, b: as of :class:`Judgement`; NaN counts as infinite.
            noise: amounts up to this one are all alike.
        """
        limit = self.limit(key)
        if limit is None or self.lacks(key, what, a, b):
            return
        assert a is not None and b is not None
        times = _times(max(_ordered(a), noise), max(_ordered(b), noise))
        if times > limit:
            self.worse(key, what, a, b, f"{times:.3g} times")
        elif times * limit < 1:
            self.better(key, what, a, b, f"{times:.3g} times")

    def _keep(self, key: str, what: str, a: Any, b: Any, change: str, outcome: Outcome, fails: bool) -> None:
        if self.limit(key) is not None:
            self.rows.append(Judgement(what, a, b, change, f"{key}: {self.limit(key)}", outcome, fails))


def number(cell: Any) -> float | None:
    """A table's cell as a number, "nan" and "inf" included; None where it holds none."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, str) and cell not in ("nan", "inf", "-inf"):
        return None
    return float(cell)


def _ordered(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _times(a: float, b: float) -> float:
    """b / a, where nothing has become equal to itself, and something is endlessly more than nothing."""
    if a == b:
        return 1.0
    return b / a if a > 0 and not math.isinf(a) else (0.0 if math.isinf(a) else math.inf)
