"""Whether switches that must all be off hide one fault or several.

With one switch of a smallest set on and all others of it off the fault is there. That is so of two faults, and of one
fault that either switch keeps. What is left when one of them is excluded tells them apart:

- a wrong result: one fault that either switch keeps is equally wrong with the one on, the other on, and both;
- a failure: each raises at its own place; or the failure with both on is that of one of them, and the other's differs;
- an operation of a backend's graphs: compiled by itself, all others left to torch, each fails or is wrong.

Where none of these tells, the switches stay together, and the answer says that it is not established.
"""

from collections.abc import Callable, Collection, Sequence

from inductor_debug.stages.bisect.kinds import Fault, Verdict
from inductor_debug.stages.bisect.records import Probe
from inductor_debug.stages.torch_internals.switch_records import Switch

Ask = Callable[[frozenset[Switch], str], Probe]
"""The probe with these switches off: the one made before, or a new one for this purpose."""


class Independence:
    """Groups a smallest set's names by fault.

    Args:
        single: the set.
        operations: every operation of the backend's graphs where the set is of operations; else none.
        ask: asked at most once a name, once a pair of names, and once more a name of operations.
    """

    def __init__(self, single: Sequence[Switch], operations: Collection[Switch], ask: Ask) -> None:
        self._single, self._operations, self._ask = single, operations, ask
        self._names = list(dict.fromkeys(switch.key for switch in single))
        self._alone: dict[str, Probe] = {}

    def faults(self) -> list[list[str]]:
        """The names by fault; those that were not told apart are in one list."""
        for name in self._names if len(self._names) > 1 else []:
            purpose = f"is it a fault of its own, with {name} alone on?"
            self._alone[name] = self._ask(self._off_but(name), purpose)
        faults: list[list[str]] = []
        for name in self._names:
            same = next((fault for fault in faults if not self._apart(fault[0], name)), None)
            if same is None:
                faults.append([name])
            else:
                same.append(name)
        return faults

    def _off_but(self, *names: str) -> frozenset[Switch]:
        return frozenset(switch for switch in self._single if switch.key not in names)

    def _apart(self, first: str, second: str) -> bool:
        return self._left_apart(first, second) or (self._by_itself(first) and self._by_itself(second))

    def _left_apart(self, first: str, second: str) -> bool:
        """Whether what is left without the one, and without the other, can't be one fault."""
        one, other = self._alone[first], self._alone[second]
        if not one.fault == other.fault == Fault.PRESENT:
            return False
        differ = not one.outcome.same_result(other.outcome)
        raised = one.outcome.verdict == Verdict.RAISED
        if raised != differ:
            return differ
        both = self._ask(self._off_but(first, second), f"what is it with {first} and {second} on?")
        if raised:  # it fails at the first of two faults; where all three differ, words that change say nothing
            return both.outcome.same_result(one.outcome) or both.outcome.same_result(other.outcome)
        return both.outcome.verdict == Verdict.DEFECT and not both.outcome.same_result(one.outcome)

    def _by_itself(self, name: str) -> bool:
        """Whether the fault is at this very switch: it raises there, or the operation fails compiled by itself."""
        if not self._operations:
            alone = self._alone[name]
            return alone.fault == Fault.PRESENT and alone.outcome.raised_at == name
        off = frozenset(switch for switch in self._operations if switch.key != name)
        probe = self._ask(off, f"does {name} fail when it is compiled by itself?")
        return probe.outcome.verdict in (Verdict.DEFECT, Verdict.RAISED)
