"""What a bisection is made of: switches, settings of them, what a probe found, and the answer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inductor_debug.stages.artifacts.bisection import FaultRecord, RemedyRecord
from inductor_debug.stages.bisect.kinds import Link, Verdict
from inductor_debug.stages.torch_internals.switch_records import Application, Group, Switch


@dataclass(frozen=True)
class BackendFacts:
    """What the search must know of the backend.

    Attributes:
        links: of the chain below it.
        inductor: it is TorchInductor as this project runs it.
        switch_key: below which its own switches are typed.
        own_front: not our AOTAutograd.
        disabled_passes: torch has the option of that name.
        options: group → those to try, as typed.
    """

    name: str = "backend"
    links: Sequence[Link] = ()
    inductor: bool = False
    switch_key: str = ""
    own_front: bool = False
    disabled_passes: bool = False
    options: Mapping[Group, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What one probe compiles with.

    Attributes:
        link: how much of the compiler, one of :class:`Link`.
        off: what is turned off in it.
        fallback: overloads whose lowering is replaced by a call of the operator, as ``make_fallback`` does it.
        undecomposed: overloads taken out of TorchInductor's table of decompositions.
        split: hand the backend its graphs through the splitter of :mod:`stages.bisect.partial`, in one piece.
        watched: passes of which the nodes that they change are to be told.
    """

    link: Link = Link.BACKEND
    off: frozenset[Switch] = frozenset()
    fallback: tuple[str, ...] = ()
    undecomposed: tuple[str, ...] = ()
    split: bool = False
    watched: frozenset[Switch] = frozenset()

    @property
    def words(self) -> str:
        """What is other than usual, for a table."""
        parts = [str(switch) for switch in sorted(self.off, key=_order)]
        parts += [f"make_fallback: {name}" for name in self.fallback]
        parts += [f"decompositions.pop: {name}" for name in self.undecomposed]
        parts += ["through AOTAutograd in front of compile()"] * self.split
        return "; ".join(parts)


def _order(switch: Switch) -> tuple[str, str, int]:
    return switch.group, switch.key, -1 if switch.occurrence is None else switch.occurrence


def keys_of(applications: Iterable[Application], group: Group) -> list[str]:
    """Keys of a group, in the order in which they were first applied."""
    return list(dict.fromkeys(item.key for item in applications if item.group == group))


@dataclass
class Outcome:
    """What one probe found.

    Attributes:
        verdict: ``ok``, ``defect``, ``raised`` or ``not_established``.
        failure: class of what was raised (:func:`failure_class`); empty otherwise.
        message: kerneldiff's line, or that of what was raised.
        compared: kerneldiff's own verdict.
        seconds: wall time.
        graphs: Dynamo graphs that were compiled.
        applications: everything with a switch that the compiler came to.
        died: the process of the probe ended, or was ended, so that there are no applications.
        errors: compared tensor → its RMS error, and whether that is a defect.
        other_figures: compared tensor → mean error, number of NaN and of infinities, and in words what no figure tells.
        told: the exception's type and message without what changes from compilation to compilation.
        raised_at: key of the thing with a switch that the compiler came to last before it raised.
    """

    verdict: str
    failure: str = ""
    message: str = ""
    compared: str = ""
    seconds: float = 0.0
    graphs: int = 0
    applications: list[Application] = field(default_factory=list)
    died: bool = False
    errors: dict[str, tuple[float, bool]] = field(default_factory=dict)
    other_figures: dict[str, tuple[float, float, float, str]] = field(default_factory=dict)
    told: str = ""
    raised_at: str = ""

    def same_result(self, other: "Outcome") -> bool:
        """Whether nothing tells the two apart: what was raised, and of each defect in either how wrong it is."""
        if (self.failure, self.told) != (other.failure, other.told):
            return False
        both = {**self.errors, **other.errors}
        names = [name for name in both if any(item.errors.get(name, (0, False))[1] for item in (self, other))]
        return all(name in self.errors and name in other.errors and self._equally_wrong(other, name) for name in names)

    def _equally_wrong(self, other: "Outcome", name: str) -> bool:
        *mine, my_text = self.errors[name][0], *self.other_figures.get(name, _NOTHING)
        *theirs, their_text = other.errors[name][0], *other.other_figures.get(name, _NOTHING)
        return my_text == their_text and all(_close(*pair) for pair in zip(mine, theirs, strict=True))

    def same_fault(self, other: "Outcome") -> bool:
        """Whether both are faults of one kind: defects, or failures of the same class."""
        return self.verdict == other.verdict != Verdict.OK and self.failure == other.failure


_NOTHING = (0.0, 0.0, 0.0, "")


def _close(first: float, second: float) -> bool:
    """Within a tenth, which rounding does not come to; two that are not finite are."""
    finite = [math.isfinite(item) for item in (first, second)]
    return abs(first - second) <= 0.1 * max(first, second) if all(finite) else not any(finite)


@dataclass
class Probe:
    """One row of ``probes.csv``.

    Attributes:
        number: from 1.
        setting: what it compiled with.
        outcome: what it found.
        fault: ``present``; ``gone`` (compared, and right); ``other``: another failure, which says neither.
        purpose: what it was for.
        confirms: it was made to see what was found once more.
    """

    number: int
    setting: Setting
    outcome: Outcome
    fault: str
    purpose: str
    confirms: bool = False


@dataclass
class Bisection:
    """The answer: with what the fault goes away. That is what hides it, and not necessarily where it is.

    Attributes:
        verdict: ``found``: a single switch, or a few together, make the fault go away, and on again it is back.
            ``narrowed``: these switches together do, and fewer could not be tried, because something else fails then.
            ``none``: it is no fault of the compiler's, or there is none. ``subsystem``: the subsystem is known, but
            no switch in it explains the fault. ``not_established``: the fault did not repeat, or the search ended
            before it had an answer.
        answer: one line for a person.
        fault: what was looked for; None where there is none.
        subsystem: ``dynamo``, ``aot_autograd``, ``decompositions``, ``backend`` or ``inductor``; else None.
        group, names: what within it: a :class:`Group`, and the switches that it takes together.
        faults: these switches by the fault that goes away without them (:mod:`stages.bisect.independence`). Those in
            one list were not told apart: it is not established whether they are one fault or several.
        ended: the probes were used up after the switches were found, and before all that is told of them was asked.
        applications: of these switches, those that must be off; ``applied`` is how many there were in the compilation.
        located: whether fewer of the applications were tried; where not, none of them is named.
        pattern: the pattern of that pass without which the fault goes away, with its applications.
        also: lowerings without which it goes away too, where an option makes it go away.
        remedy: what to type.
        confirmed: the probes with only these switches off, and with everything on again.
        repeats: False where the fault was gone when it was looked for again with nothing changed.
        probes: all of them.
    """

    verdict: str = Verdict.UNKNOWN
    answer: str = ""
    fault: FaultRecord | None = None
    subsystem: str | None = None
    group: Group | None = None
    names: list[str] = field(default_factory=list)
    faults: list[list[str]] = field(default_factory=list)
    ended: bool = False
    applications: list[Application] = field(default_factory=list)
    applied: int = 0
    located: bool = True
    pattern: list[Application] = field(default_factory=list)
    also: list[str] = field(default_factory=list)
    remedy: RemedyRecord | None = None
    confirmed: dict[str, int] = field(default_factory=dict)
    repeats: bool = True
    probes: list[Probe] = field(default_factory=list)

    @property
    def compilations(self) -> int:
        """Probes that compiled anything."""
        return sum(probe.setting.link != Link.UNCOMPILED for probe in self.probes)

    @property
    def seconds(self) -> float:
        return sum(probe.outcome.seconds for probe in self.probes)
