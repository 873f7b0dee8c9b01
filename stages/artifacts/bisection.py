"""What bisect stores: ``bisect/bisect.json``."""

from dataclasses import dataclass, field

from inductor_debug.models.shapes import Number

SUBSYSTEMS = {"inductor": "TorchInductor", "dynamo": "Dynamo", "aot_autograd": "AOTAutograd"}
"""Parts of the compiler by their names for a reader; others are called as they are stored."""


@dataclass(frozen=True)
class ChangedNode:
    """A node that a switch acted on; ``graph`` and ``source`` are "" where they are not known."""

    graph: str = ""
    name: str = ""
    target: str = ""
    source: str = ""
    code: str = ""


@dataclass(frozen=True)
class ApplicationRecord:
    """A place where a culprit is applied.

    Attributes:
        name: of the switch.
        index: which of its applications in one compilation, from 0.
        definition: ``file:line`` of the switch itself, or "".
        nodes: what it acted on.
    """

    name: str
    index: int | None
    definition: str | None
    nodes: list[ChangedNode]


@dataclass(frozen=True)
class PatternRecord:
    """The pattern of a pass without which the fault goes away."""

    name: str = ""
    applications: list[ApplicationRecord] | None = None


@dataclass(frozen=True)
class RemedyRecord:
    """What makes the fault go away.

    Attributes:
        kind: ``option`` (typed on the command line), ``python`` (run before compiling) or ``edit`` (of the adapter).
        text: what to type, whole; of an edit, what to do.
        probe: number of the probe that showed it.
    """

    kind: str
    text: str
    probe: int | None = None


@dataclass(frozen=True)
class FaultRecord:
    """What was looked for: ``kind`` is defect or raised, ``failure`` the class of what was raised or ""."""

    kind: str
    failure: str
    message: str


@dataclass(frozen=True)
class ChainProbe:
    """What a probe with no more than one link of the compiler found: its number, and what became of the fault."""

    probe: int
    fault: str


@dataclass(frozen=True)
class Established:
    """What was seen with no more than each link of the compiler; ``off`` and ``on`` → the probe that confirms."""

    chain: dict[str, ChainProbe] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BisectionRecord:
    """bisect/bisect.json: see :class:`stages.bisect.records.Bisection`.

    Attributes:
        kind: what a switch of its group is called.
        relation: ``goes_away_with`` or ``goes_away_without`` the names; None for no name.
        probes, compilations: how many.
    """

    verdict: str
    answer: str
    fault: FaultRecord | None = None
    subsystem: str | None = None
    kind: str | None = None
    relation: str | None = None
    names: list[str] = field(default_factory=list)
    faults: list[list[str]] = field(default_factory=list)
    located: bool = True
    ended: bool = False
    applied: int = 0
    applications: list[ApplicationRecord]
    pattern: PatternRecord | None
    also: list[str] = field(default_factory=list)
    remedy: RemedyRecord | None
    established: Established = field(default_factory=Established)
    probes: int = 0
    compilations: int = 0
    seconds: Number = 0.0
