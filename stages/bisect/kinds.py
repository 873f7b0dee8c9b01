"""The words of a bisection: how much of the compiler there is, what a probe found, what became of the fault."""

import enum

from inductor_debug.stages.torch_internals.switch_records import Group


class Link(enum.StrEnum):
    """How much of the compiler is there, each link with what the one before has."""

    UNCOMPILED = "uncompiled"
    DYNAMO = "dynamo"
    AOT = "aot_autograd"
    DECOMPOSITIONS = "decompositions"
    BACKEND = "backend"


class Verdict(enum.StrEnum):
    """What one probe found."""

    OK = "ok"
    DEFECT = "defect"
    RAISED = "raised"
    UNKNOWN = "not_established"


class Fault(enum.StrEnum):
    """What became of the fault in a probe; ``other``: something else failed."""

    PRESENT = "present"
    GONE = "gone"
    OTHER = "other"


CONFIG_MODULES = {
    Group.OPTIONS: "torch._inductor.config",
    Group.DYNAMO_OPTIONS: "torch._dynamo.config",
    Group.AOT_OPTIONS: "torch._functorch.config",
}
"""Group of options → the module that holds them."""
