"""What a reproduction looks for."""

from dataclasses import dataclass

REPRODUCED, NOT_REPRODUCED, COULD_NOT_RUN = 0, 1, 3
"""A script's exit codes. 2 is argparse's own, for a wrong command line."""


@dataclass(frozen=True)
class Check:
    """A property measured on the values of a program.

    Attributes:
        rule: name of what is violated, e.g. ``"alignment"``.
        measured: Python expression over ``values`` (name → value of each operand and result) and ``called`` (the aten
            overloads that the program dispatched, in order). Helpers: ``tensors(value)``, ``denied(patterns, names)``.
        violated: Python expression over ``found`` (the value of ``measured``), ``values`` and ``called``; true where
            the property is violated.
        expected: what ``measured`` was in the graph, as ``str`` shows it.
        limit: what is allowed, as a person would write it.
    """

    rule: str
    measured: str
    violated: str
    expected: str
    limit: str

    @property
    def line(self) -> str:
        """The line that the script prints where the violation reproduces with the measure of the graph."""
        return f"VIOLATION {self.rule} measured={self.expected} limit={self.limit}"
