"""What kerneldiff stores beside its tables: the diagnosis, and the worst elements of each tensor."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import OMITTED, Number
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.localization import Localization


@dataclass(frozen=True)
class Worst:
    """One element among the worst: its index, what each side holds there, and the absolute difference.

    Attributes:
        reference, test: numbers; a complex one is stored as text.
    """

    index: list[int]
    reference: Any
    test: Any
    error: Number


@dataclass(frozen=True)
class WorstElements:
    """One of kerneldiff/worst.json: a tensor's row of outputs.csv, and its worst elements, worst first."""

    kind: str
    path: str
    verdict: str
    worst: list[Worst]


@dataclass(frozen=True)
class TaskMeasures:
    """Class scores of the test side against the reference's, over all rows (all positions but the last dimension).

    Attributes:
        path: of the output.
        rows, classes: how many.
        top1_agreement: share of rows whose largest score is of the same class (of equal scores the first).
        kl_mean, kl_max: Kullback-Leibler divergence of softmax(test) from softmax(reference), in nats; NaN where a
            score is NaN.
    """

    path: str
    rows: int
    classes: int
    top1_agreement: float
    kl_mean: Number
    kl_max: Number


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """kerneldiff/diagnosis.json.

    Attributes:
        kind: of fault; None where a fault is not localized.
        first_divergence: graph, node, target, source and kernel of the first operation that is wrong; None for none.
        localization: what localization found, in words, or why it did not run.
        localized: the same as data.
        error: type, message and traceback of what a ``side`` raised.
        gold_error: of what gold raised.
        random: what is known of random draws.
        worst: kind, path and message of the worst row.
        failed, drawn: rows, and how many of them have a plot.
        draw: of the inputs, the first that fails by itself; 1 too where none does.
        reference: where it was run.
        baseline: whether one was stored; ``golden`` is what earlier versions called it.
        tasks: measures of class scores; None where nothing was compiled.
        execution: who executed the test side; None where nothing was compared.
    """

    verdict: str = ""
    kind: str | None = None
    message: str = ""
    first_divergence: Any = None
    localization: str | None = None
    error: dict[str, str] | None = None
    gold_error: dict[str, str] | None = None
    random: str = ""
    worst: dict[str, str] | None = None
    failed: int = 0
    drawn: int = 0
    draw: int = 1
    reference: str | None = None
    baseline: str | None = None
    tasks: list[TaskMeasures] | None = field(default=None, metadata=OMITTED)
    execution: Execution | None = field(default=None, metadata=OMITTED)
    localized: Localization | None = field(default=None, metadata=OMITTED)
    golden: str | None = field(default=None, metadata=OMITTED)
