"""Questions to a stored run, answered from its files, without torch: ``inductor-debug analyze``."""

from collections.abc import Callable
from dataclasses import dataclass

from inductor_debug.models.errors import UserError, invalid_choice
from inductor_debug.pipeline.query import decisions, kernels, others
from inductor_debug.pipeline.query.stored import Analysis, StoredRun, Table, Wanted

__all__ = ["TYPES", "Analysis", "StoredRun", "Table", "Wanted", "analyze"]


@dataclass(frozen=True)
class Kind:
    """One type of analysis.

    Attributes:
        read: makes the answer; UserError where the run does not hold it.
        question: that it answers.
        takes: fields of :class:`Wanted` that it heeds.
    """

    read: Callable[[StoredRun, Wanted], Analysis]
    question: str
    takes: tuple[str, ...] = ()


TYPES = {
    "summary": Kind(others.summary, "what came of the run, and what else can be asked of it?"),
    "guards": Kind(others.guards, "where does the graph break, and what makes it compile again?"),
    "constraints": Kind(others.constraints, "what breaks the accelerator's rules, at which line?"),
    "numerics": Kind(others.numerics, "which results are wrong, and by how much?"),
    "kernels": Kind(kernels.kernels, "which kernels came from a line, and which lines is a kernel?",
                    ("graph", "lines", "kernels", "nodes")),
    "fusion": Kind(decisions.fusion, "what was fused, what was not, and why?", ("graph", "lines", "nodes")),
    "autotuning": Kind(decisions.autotuning, "which candidate was taken, and how close were the others?", ("graph",)),
    "values": Kind(others.values, "where does the first NaN or infinity come from?", ("graph", "kernels")),
    "bisect": Kind(others.bisect, "which pass, lowering or option makes the fault go away?"),
    "profile": Kind(others.profile, "where does the time go?"),
}  # fmt: skip
"""Type → what it tells."""

OPTIONS = {"graph": "--graph", "lines": "--line", "kernels": "--kernel", "nodes": "--node"}
"""Field of :class:`Wanted` → the option that fills it."""


def analyze(run: StoredRun, name: str, wanted: Wanted) -> Analysis:
    """The answer of one type.

    Raises:
        UserError: no such type, an option that it does not take, or a run that does not hold it.
    """
    if name not in TYPES:
        raise invalid_choice("--type", name, TYPES, example="--type {}")
    takes = TYPES[name].takes
    for field, option in OPTIONS.items():
        if getattr(wanted, field) and field not in takes:
            valid = ", ".join(OPTIONS[each] for each in takes) or f"--type {name} without any"
            fitting = next(other for other, kind in TYPES.items() if field in kind.takes)
            raise UserError(
                f"--type {name}: got {option}, which it does not take; valid: {valid}.\nTry: --type {fitting}"
            )
    return TYPES[name].read(run, wanted)
