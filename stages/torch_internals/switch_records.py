"""What can be turned off in torch's compiler, and what the compiler did with it."""

import enum
from dataclasses import dataclass, field


class Group(enum.StrEnum):
    """What a switch is of. ``singular``: what one of them is called."""

    singular: str

    PRE_GRAD = "pre_grad_passes", "pre-grad pass"
    JOINT = "joint_graph_passes", "joint-graph pass"
    POST_GRAD = "post_grad_passes", "post-grad pass"
    PATTERNS = "patterns", "pattern"
    OPTIONS = "options", "option"
    CUDAGRAPHS = "cudagraphs", "CUDA graph"
    LOWERINGS = "lowerings", "lowering"
    DECOMPOSITION = "decompositions", "decomposition"
    DYNAMO_OPTIONS = "dynamo_options", "option"
    AOT_OPTIONS = "aot_options", "option"
    FLAGS = "flags", "option"
    OPERATIONS = "operations", "operation"

    def __new__(cls, value: str, singular: str) -> "Group":
        made = str.__new__(cls, value)
        made._value_, made.singular = value, singular
        return made


PASSES = (Group.PRE_GRAD, Group.JOINT, Group.POST_GRAD)
OPTION_GROUPS = (Group.DYNAMO_OPTIONS, Group.AOT_OPTIONS, Group.OPTIONS, Group.FLAGS)
"""Switches that are set to another value; ``flags`` are those of a backend that is not TorchInductor."""

EVERY = "*"
"""The key of the switch that stands for all of its group."""


@dataclass(frozen=True, order=True)
class Switch:
    """One thing that can be turned off.

    Attributes:
        group: what it is of.
        key: a pass's name, an operator's overload, a pattern's name, or ``option=value`` for an option that is set to
            another value; :data:`EVERY` for all of the group.
        occurrence: which of its applications in one compilation of the case, from 0; None for all of them.
    """

    group: Group
    key: str = EVERY
    occurrence: int | None = None

    def __str__(self) -> str:
        place = "" if self.occurrence is None else f" #{self.occurrence}"
        return f"{self.group}: all" if self.key == EVERY else f"{self.group}: {self.key}{place}"

    def covers(self, group: str, key: str, occurrence: int) -> bool:
        """Whether turning this off turns that application off."""
        return self.group == group and self.key in (EVERY, key) and self.occurrence in (None, occurrence)


@dataclass
class NodeSeen:
    """A node that a pass, a lowering or another switch acted on.

    Attributes:
        graph: what is known of its graph: ``forward``, ``backward``, ``dynamo``, ``joint``; "" where nothing is.
        name, target: as FX has them.
        trace: its stack trace, or "".
        source: ``file:line`` of the model's own line, "" where there is none; ``code``: that line.
    """

    graph: str
    name: str
    target: str
    trace: str = ""
    source: str = ""
    code: str = ""


@dataclass
class Application:
    """One time that the compiler came to a thing that has a switch.

    Attributes:
        group, key, occurrence: as of :class:`Switch`.
        nodes: what it acted on, as far as that is known.
        within: for a pattern, the pass that applied it: (group, key, occurrence); else None.
        definition: ``function file:line`` of the code behind the switch, where it is known.
    """

    group: Group
    key: str
    occurrence: int
    nodes: list[NodeSeen] = field(default_factory=list)
    within: tuple[str, str, int] | None = None
    definition: str = ""
