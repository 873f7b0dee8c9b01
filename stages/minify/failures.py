"""What a program shows when it is compiled and run, and what makes two failures the same."""

import re
from dataclasses import dataclass

from inductor_debug.stages.minify.workers import Outcome
from inductor_debug.stages.repro.check import COULD_NOT_RUN

DEFECT, ERROR, CRASH, HANG = "defect", "error", "crash", "hang"

ASKED = "asked"
"""The failure that a user's predicate or program says is there."""

STORM = "storm"
"""Compilations of one frame again and again, which modules and calls show."""

CHILD = (CRASH, HANG)
"""Failures that the process which looks for them does not outlive."""

RAN = "eager runs"
"""What a script prints once torch itself has run the program."""

_FOUND = re.compile(r"^FOUND (.+)$", re.MULTILINE)


def said(outcome: Outcome) -> str:
    """What a script says that it found; empty where it came to no answer."""
    found = _FOUND.search(outcome.output)
    return found[1] if found is not None else ""


@dataclass(frozen=True)
class Failure:
    """What was found.

    Attributes:
        kind: ``defect``, ``error``, ``crash``, ``hang`` or ``asked``.
        text: the same for the same failure: ``defect``; ``error TYPE in file:function, file:function``, the innermost
            ones, and after ``says`` the first error of a C++ compiler; ``signal NUMBER``; ``hang``; ``asked``.
    """

    kind: str
    text: str

    @classmethod
    def of(cls, outcome: Outcome) -> "Failure | None":
        """What a script showed that ran in its own process with ``--here``; None where it shows none.

        An abort or a hang counts once torch itself has run the program.
        """
        if outcome.code == COULD_NOT_RUN:
            return None
        if outcome.timed_out or outcome.signal is not None:
            ran = RAN in outcome.output
            text = HANG if outcome.timed_out else f"signal {outcome.signal}"
            return cls(HANG if outcome.timed_out else CRASH, text) if ran else None
        text = said(outcome)
        return None if text in ("", "nothing") else cls.named(text)

    @classmethod
    def named(cls, text: str) -> "Failure":
        """The failure of a text."""
        kind = text.partition(" ")[0]
        return cls(CRASH if kind == "signal" else kind, text)
