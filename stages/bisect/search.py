"""Which switches, turned off, make a fault go away: the smallest set of them.

QuickXplain (U. Junker, AAAI 2004) with a third answer: a setting in which something else fails says nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from inductor_debug.stages.bisect.kinds import Fault
from inductor_debug.stages.torch_internals.switch_records import Switch

MOST = 4
"""So many switches together are an explanation; more are none."""


class TooMany(Exception):
    """More than :data:`MOST` switches would have to be off together."""


class Search:
    """Looks among switches, everything else being on.

    Args:
        ask: what becomes of the fault with these switches off: present, gone or other. Asked once for each set.
        known: what is known of some sets already.

    Attributes:
        narrow: False where a smaller set than the one found could not be ruled out, something else having failed.
    """

    def __init__(
        self, ask: Callable[[frozenset[Switch]], str], known: Mapping[frozenset[Switch], str] | None = None
    ) -> None:
        self._ask = ask
        self._known: dict[frozenset[Switch], str] = dict(known or {})
        self._found = 0
        self.narrow = True

    def explain(self, switches: Iterable[Switch]) -> list[Switch] | None:
        """A smallest set of switches that makes the fault go away: no smaller one within it does.

        Returns:
            None where none of the sets that were tried does.

        Raises:
            TooMany: it takes more than :data:`MOST`.
        """
        self._found = 0
        enough = self._enough(frozenset(), list(switches))
        if enough is None:
            return None
        return self._only(enough) or self._needed(frozenset(), enough)

    def _state(self, off: frozenset[Switch]) -> str:
        if off not in self._known:
            self._known[off] = self._ask(off)
        return self._known[off]

    def _enough(self, off: frozenset[Switch], switches: Sequence[Switch]) -> list[Switch] | None:
        """``switches``, or a part of them where all together break something else; None where the fault stays."""
        if not switches:
            return None
        state = self._state(off | frozenset(switches))
        if state == Fault.GONE:
            return list(switches)
        if state != Fault.OTHER or len(switches) == 1:
            return None
        for half in _halves(switches):
            found = self._enough(off, half)
            if found is not None:
                return found
        return None

    def _only(self, switches: list[Switch]) -> list[Switch] | None:
        """The one switch of these that is enough, supposing that there is one; None where there is not.

        Of two halves one is asked for: where the fault is present without the first, it is gone without the second.
        """
        while len(switches) > 1:
            first, second = _halves(switches)
            state = self._state(frozenset(first))
            if state == Fault.OTHER and self._state(frozenset(second)) != Fault.GONE:
                return None
            switches = first if state == Fault.GONE else second
        return switches if self._state(frozenset(switches)) == Fault.GONE else None

    def _needed(self, off: frozenset[Switch], switches: list[Switch]) -> list[Switch]:
        """A smallest part of ``switches`` that is enough on top of ``off``; all of them are."""
        if len(switches) == 1:
            self._found += 1
            if self._found > MOST:
                raise TooMany
            return switches
        first, second = _halves(switches)
        for half in (first, second):
            found = self._enough(off, half)
            if found is not None:
                return self._needed(off, found)
        if Fault.OTHER in (self._state(off | frozenset(first)), self._state(off | frozenset(second))):
            self.narrow = False
        right = self._needed(off | frozenset(first), second)
        if self._state(off | frozenset(right)) == Fault.GONE:
            return right
        return [*self._needed(off | frozenset(right), first), *right]


def _halves(switches: Sequence[Switch]) -> tuple[list[Switch], list[Switch]]:
    middle = (len(switches) + 1) // 2
    return list(switches[:middle]), list(switches[middle:])
