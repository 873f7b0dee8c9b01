"""What is known of one compared tensor: a row of ``kerneldiff/outputs.csv``, and rows as a table of text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from inductor_debug.stages.numerics.accumulator import Number
from inductor_debug.stages.numerics.verdict import Judgement, Reason
from inductor_debug.stages.numerics.worst import NONE, WorstFirst


@dataclass
class TensorComparison:
    """One row: a tensor of the test side against the reference's.

    Attributes:
        kind: output, loss, gradient, parameter, buffer or input.
        path: where in the structure, e.g. ``logits`` or ``hidden_states[3]``; of a later run ``logits (run 2)``.
        shape, dtype: the reference's (``A vs B`` in the dtype where they differ).
        verdict: exact, within_floor, within_tolerance, defect or not_established.
        bound: what decided: bits, floor_rms, floor_max, conditioning, tolerance, nonfinite, shape, dtype,
            structure, value, random.
        message: one line for a person.
        elements: number of elements compared.
        mismatched, mismatched_share: elements beyond ``atol + rtol · |reference|``, and their share.
        max_abs, mean_abs, rmse: of ``|test - reference|``; ``max_abs`` of integers is an exact int.
        max_rel, mean_rel: of ``|test - reference| / |reference|`` over elements whose reference is not 0.
        zero_reference: elements left out of the relative errors.
        max_ulp: representable numbers between the two, in the dtype, over elements finite on both sides;
            None for integers, bool and different dtypes.
        cosine: cosine similarity over elements finite on both sides.
        snr_db: 20·log10(norm(reference) / norm(test - reference)).
        nan_reference, nan_test, inf_reference, inf_test: counts.
        worst_index, worst_reference, worst_test: the element of the largest error; None where nothing differs.
        floor_rms, floor_max, error_rms, error_max: noise floor and error against gold; None without gold.
        ratio, factor: error over floor (the larger of RMS and maximum), and the limit on it.
        resolution: RMS error, over the RMS of the reference, up to which the bound that decided lets a tensor pass.
            That is ``factor`` floors, or jumps, or the tolerance at an element of that RMS. 1 means that zeros would
            pass too. None where bits decided, and of a reference that is all zeros.
        atol, rtol: tolerances that ``mismatched`` counts by.
        worst: the worst elements, worst first (not a column).
        histogram: errors counted by size, where asked for (not a column; :mod:`stages.numerics.histogram`).
        reference_rms: RMS of the reference's finite elements.
        draw: which draw of the inputs it is of; of a later one ``path`` ends in ``(draw 2)``.
        again: whether that draw was called once more (not a column).
        run: which run of the test side it is of (not a column; see :meth:`in_run`).
        reason: which look at the tensor gave the verdict (not a column, see ``kerneldiff/reviews.csv``).
        metrics: further figures by name (:mod:`stages.numerics.metrics`), each a column behind the others.
    """

    kind: str
    path: str
    shape: list[int] | None = None
    dtype: str = ""
    verdict: str = "not_established"
    bound: str = ""
    message: str = ""
    elements: int = 0
    mismatched: int | None = None
    mismatched_share: float | None = None
    max_abs: float | int | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    rmse: float | None = None
    max_ulp: int | None = None
    cosine: float | None = None
    snr_db: float | None = None
    zero_reference: int | None = None
    nan_reference: int | None = None
    nan_test: int | None = None
    inf_reference: int | None = None
    inf_test: int | None = None
    worst_index: list[int] | None = None
    worst_reference: Number | None = None
    worst_test: Number | None = None
    floor_rms: float | None = None
    floor_max: float | None = None
    error_rms: float | None = None
    error_max: float | None = None
    ratio: float | None = None
    factor: float | None = None
    resolution: float | None = None
    atol: float | None = None
    rtol: float | None = None
    worst: WorstFirst = field(default=NONE, repr=False)
    histogram: list[int] | None = field(default=None, repr=False)
    reference_rms: float | None = None
    draw: int = field(default=1, repr=False)
    run: int = field(default=1, repr=False)
    again: bool = field(default=False, repr=False)
    reason: Reason = field(default=Reason.FIGURES, repr=False)
    metrics: dict[str, float | int | None] = field(default_factory=dict, repr=False)

    @property
    def judgement(self) -> Judgement:
        """The verdict as it stands, with what decided it."""
        return Judgement(**{name: getattr(self, name) for name in _JUDGED})

    def decide(self, judgement: Judgement) -> None:
        """Make ``judgement`` the verdict."""
        vars(self).update(vars(judgement))

    def in_draw(self, number: int, *, again: bool = False) -> "TensorComparison":
        """Name the draw of the inputs that the row is of, or that the test side was called on it once more."""
        self.draw, self.again = number, again
        if number > 1 or again:
            self.path = f"{self.path} (draw {number}{' again' * again})"
        return self

    @property
    def place(self) -> str:
        """The path without the run: what sides that ran once have the tensor under."""
        return self.path.removesuffix(_suffix(self.run))

    def in_run(self, number: int) -> None:
        """Name a later run of the test side, whose leaf has :attr:`path` then."""
        self.path, self.run = f"{self.place}{_suffix(number)}", number

    @property
    def failed(self) -> bool:
        """True for a defect and for a comparison that could not be made."""
        return self.verdict in ("defect", "not_established")

    def resolution_of_floor(self, rms: float) -> float | None:
        """The resolution where ``factor`` times this RMS, of the noise or of the jumps, passes."""
        return self.factor * rms / self.reference_rms if self.factor and self.reference_rms else None

    def resolution_of_tolerance(self, limit: float | None = None) -> float | None:
        """The resolution of an absolute limit; default: the tolerance at an element of the RMS's size."""
        rms = self.reference_rms
        limit = (self.atol or 0.0) + (self.rtol or 0.0) * (rms or 0.0) if limit is None else limit
        return limit / rms if rms else None

    def row(self) -> dict[str, Any]:
        """The columns of ``outputs.csv``, in order."""
        return {name: value for name, value in asdict(self).items() if name in COLUMNS} | self.metrics


def raised(kind: str, path: str, who: str, error: dict[str, str]) -> TensorComparison:
    """The row of what was not compared because a side raised.

    Args:
        kind, path: of the row.
        who: the side, as a message names it.
        error: type and message, see :func:`stages.sides.running.describe`.
    """
    first = next(iter(error["message"].splitlines()), "no message")
    return TensorComparison(kind, path, bound="value", message=f"{who} raised {error['type']}: {first}")


_JUDGED = tuple(item.name for item in fields(Judgement))

_NO_COLUMN = ("worst", "histogram", "run", "again", "reason", "metrics")
COLUMNS = [name for name in TensorComparison.__dataclass_fields__ if name not in _NO_COLUMN]
"""Those of ``outputs.csv``, in order; the metrics' follow."""

SHOWN = ("kind", "path", "shape", "dtype", "verdict", "max_abs", "rmse", "max_ulp", "mismatched", "ratio", "message")
MOST_SHOWN = 20


def text_table(rows: Sequence[TensorComparison]) -> str:
    """The rows as a table for a terminal, the failed ones first; at most :data:`MOST_SHOWN`."""
    if not rows:
        return "nothing was compared"
    ranked = sorted(rows, key=lambda row: not row.failed)
    cells = [SHOWN, *(tuple(_cell(getattr(row, name)) for name in SHOWN) for row in ranked[:MOST_SHOWN])]
    widths = [max(len(line[column]) for line in cells) for column in range(len(SHOWN))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    more = [f"and {len(rows) - MOST_SHOWN} more"] if len(rows) > MOST_SHOWN else []
    return "\n".join([*lines, *more])


def _suffix(run: int) -> str:
    return f" (run {run})" if run > 1 else ""


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
