"""What one test side came to."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.stages.artifacts.comparison import TaskMeasures
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.kerneldiff.reviews import Reviewed
from inductor_debug.stages.numerics.records import TensorComparison, text_table
from inductor_debug.stages.sides.running import Leaves


@dataclass
class Comparison:
    """What one test side came to.

    Attributes:
        verdict: the worst of its rows, ``not_exercised`` or ``not_established``.
        message: one line that says it.
        rows: one a tensor, as the reviews left it.
        reviews: what changed a verdict, step by step.
        error: what the ``side`` that it names raised, so that nothing was compared; else None.
        gold_error: what gold raised, so that a tolerance decided; else None.
        random: what is known of random draws, in words.
        reference, test: the leaves that were compared.
        tasks: what the errors of class scores mean.
        tables: of later runs, optimizer steps and planted faults, by file.
        draw: of the inputs, the first that fails; 1 too where none does, and for what only a later call shows.
        calls: draws of the test side's calls, in order, up to the first that fails; empty where none does.
        adapter: the test side's; None where nothing was compared.
        execution: who executed the test side; None where nothing was compared.
    """

    verdict: str
    message: str
    rows: list[TensorComparison] = field(default_factory=list)
    reviews: Reviewed = field(default_factory=Reviewed)
    error: dict[str, str] | None = None
    gold_error: dict[str, str] | None = None
    random: str = ""
    reference: Leaves = field(default_factory=dict, repr=False)
    test: Leaves = field(default_factory=dict, repr=False)
    tasks: list[TaskMeasures] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict, repr=False)
    adapter: AcceleratorAdapter | None = field(default=None, repr=False)
    draw: int = 1
    calls: list[int] = field(default_factory=list)
    execution: Execution | None = None

    @property
    def failed(self) -> list[TensorComparison]:
        """Rows whose verdict is ``defect`` or ``not_established``."""
        return [row for row in self.rows if row.failed]

    def __str__(self) -> str:
        return f"{self.message}\n{text_table(self.rows)}"
