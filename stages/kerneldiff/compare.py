"""One tensor, or one nested structure, against another: the rows of ``kerneldiff/outputs.csv``."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from stages.kerneldiff import formats
from stages.kerneldiff.accumulator import Figures, Number, Worst
from stages.kerneldiff.metrics import begin, chunks
from stages.kerneldiff.structure import container_kind, flatten
from stages.kerneldiff.verdict import Judgement, judge, overall


@dataclass
class TensorComparison:
    """One row: a tensor of the test side against the reference's.

    Attributes:
        kind: output, loss, gradient, parameter, buffer or input.
        path: where in the structure, e.g. ``logits`` or ``hidden_states[3]``.
        shape, dtype: the reference's (``A vs B`` in the dtype where they differ).
        verdict: exact, within_floor, within_tolerance, defect or not_established.
        bound: what decided: bits, floor_rms, floor_max, conditioning, tolerance, nonfinite, shape, dtype,
            structure, value, random.
        message: one line for a person.
        elements: number of elements compared.
        mismatched, mismatched_share: elements beyond atol + rtol·|reference|, and their share.
        max_abs, mean_abs, rmse: of |test - reference|; ``max_abs`` of integers is an exact int.
        max_rel, mean_rel: of |test - reference| / |reference| over elements whose reference is not 0.
        zero_reference: elements left out of the relative errors.
        max_ulp: representable numbers between the two, in the dtype, over elements finite on both sides;
            None for integers, bool and different dtypes.
        cosine: cosine similarity over elements finite on both sides.
        snr_db: 20·log10(norm(reference) / norm(test - reference)).
        nan_reference, nan_test, inf_reference, inf_test: counts.
        worst_index, worst_reference, worst_test: the element of the largest error; None where nothing differs.
        floor_rms, floor_max, error_rms, error_max: noise floor and error against gold; None without gold.
        ratio, factor: error over floor (the larger of RMS and maximum), and the limit on it.
        atol, rtol: tolerances that ``mismatched`` counts by.
        worst: the worst elements, worst first (not a column).
        histogram: errors counted by size, where asked for (not a column; :mod:`stages.kerneldiff.histogram`).
        reference_rms: RMS of the reference's finite elements.
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
    atol: float | None = None
    rtol: float | None = None
    worst: list[Worst] = field(default_factory=list, repr=False)
    histogram: list[int] | None = field(default=None, repr=False)
    reference_rms: float | None = None

    @property
    def failed(self) -> bool:
        """True for a defect and for a comparison that could not be made."""
        return self.verdict in ("defect", "not_established")

    def row(self) -> dict[str, Any]:
        """The columns of ``outputs.csv``, in order."""
        return {name: value for name, value in asdict(self).items() if name in COLUMNS}


COLUMNS = [name for name in TensorComparison.__dataclass_fields__ if name not in ("worst", "histogram")]

AHEAD = 8
"""Comparisons that are begun before the first is finished: enough to keep a device busy, and little memory."""


def compare_tensors(
    reference: torch.Tensor | Number,
    test: torch.Tensor | Number,
    *,
    gold: torch.Tensor | Number | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    path: str = "output",
    factor: float = 4.0,
    kind: str = "output",
    roundoff: float | None = None,
    worst: int = 8,
    histogram: bool = False,
) -> TensorComparison:
    """Compare two tensors of any dtype, rank, stride and device; neither is changed.

    Args:
        reference, test: tensors (or Python numbers, taken as 0-dim tensors).
        gold: the reference in float64; with it the noise floor decides, unless a tolerance is given. Not used where
            it is no more precise than the reference (a float64 reference equal to it bit for bit).
        atol, rtol: tolerances; when either is given (the other is then 0) they decide. With neither, and no usable
            gold, ``torch.testing.assert_close``'s defaults for the dtype decide.
        path: name of the tensor in the record.
        factor: error over floor above which the tensor is a defect.
        kind: output, loss, gradient, parameter, buffer or input.
        roundoff: unit roundoff of the format that the case computes in, where it is coarser than the tensor's dtype
            (a float32 loss of a bfloat16 case). Default: the reference dtype's own.
        worst: how many of the worst elements to keep.
        histogram: count the errors by size too; on a CUDA device that takes about as long as all the rest.

    Returns:
        The record. A shape or dtype mismatch is a result (``defect``), not an exception.
    """
    return begin_comparison(
        reference, test, gold=gold, atol=atol, rtol=rtol, path=path, factor=factor, kind=kind, roundoff=roundoff,
        worst=worst, histogram=histogram,
    )()  # fmt: skip


def begin_comparison(
    reference: torch.Tensor | Number,
    test: torch.Tensor | Number,
    *,
    gold: torch.Tensor | Number | None,
    atol: float | None,
    rtol: float | None,
    path: str,
    factor: float,
    kind: str,
    roundoff: float | None,
    worst: int,
    histogram: bool,
) -> Callable[[], TensorComparison]:
    """:func:`compare_tensors` in two steps: what this returns gives the record when it is called.

    On a CUDA device the work is queued here, so that many tensors are compared back to back.
    """
    reference, test = _tensor(reference), _tensor(test)
    gold = None if gold is None else _tensor(gold)
    record = TensorComparison(kind, path, list(reference.shape), _name(reference.dtype))
    if reference.shape != test.shape:
        shapes = f"{list(reference.shape)} in the reference, {list(test.shape)} in the test"
        record.verdict, record.bound, record.message = "defect", "shape", f"shape is {shapes}"
        return lambda: record
    default_rtol, default_atol = formats.default_tolerances(reference.dtype, test.dtype)
    given = atol is not None or rtol is not None
    record.rtol = (rtol or 0.0) if given else default_rtol
    record.atol = (atol or 0.0) if given else default_atol
    usable = _usable_gold(reference, gold)
    measured = begin(reference, test, usable, rtol=record.rtol, atol=record.atol, worst=worst, histogram=histogram)

    def finish() -> TensorComparison:
        figures = measured()
        _fill(record, figures)
        if reference.dtype != test.dtype:
            record.dtype = f"{_name(reference.dtype)} vs {_name(test.dtype)}"
            dtypes = f"{_name(reference.dtype)} in the reference, {_name(test.dtype)} in the test"
            record.verdict, record.bound, record.message = "defect", "dtype", f"dtype is {dtypes}"
            return record
        use_floor = not given and usable is not None and figures.gold_elements > 0
        own = formats.unit_roundoff(reference.dtype)
        judgement = judge(
            figures,
            factor=factor,
            roundoff=max(own, roundoff or 0.0) if own else 0.0,
            use_floor=use_floor,
            tolerance=f"atol={record.atol:g}, rtol={record.rtol:g}",
        )
        _decide(record, judgement, factor if use_floor else None)
        return record

    return finish


def _tensor(value: torch.Tensor | Number) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        dtype = {float: torch.float64, complex: torch.complex128}.get(type(value))
        return torch.tensor(value, dtype=dtype)
    value = value.detach()
    return value if value.layout == torch.strided else value.to_dense()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _usable_gold(reference: torch.Tensor, gold: torch.Tensor | None) -> torch.Tensor | None:
    """Gold where it can serve as a floor: the reference's shape, and more precise than it."""
    if gold is None or gold.shape != reference.shape:
        return None
    if gold.dtype == reference.dtype and formats.is_inexact(gold.dtype):
        as_precise = all(
            torch.equal(mine.to(piece.device).nan_to_num(), piece.nan_to_num())
            for _, (piece, mine) in chunks([reference, gold])
        )
        return None if as_precise else gold
    return gold


def _fill(record: TensorComparison, figures: Figures) -> None:
    for name in (
        "elements", "mismatched", "max_abs", "mean_abs", "max_rel", "mean_rel", "rmse", "max_ulp", "cosine", "snr_db",
        "zero_reference", "nan_reference", "nan_test", "inf_reference", "inf_test", "worst", "reference_rms",
        "histogram",
    ):  # fmt: skip
        setattr(record, name, getattr(figures, name))
    record.mismatched_share = figures.mismatched / figures.elements if figures.elements else 0.0
    if figures.worst:
        first = figures.worst[0]
        record.worst_index, record.worst_reference, record.worst_test = first.index, first.reference, first.test


def _decide(record: TensorComparison, judgement: Judgement, factor: float | None) -> None:
    for name in (
        "verdict", "bound", "message", "floor_rms", "floor_max", "error_rms", "error_max", "ratio",
    ):  # fmt: skip
        setattr(record, name, getattr(judgement, name))
    record.factor = factor


class KernelDiff:
    """Compares nested structures of tensors; collects the rows and the verdict.

    Attributes:
        rows: one :class:`TensorComparison` a leaf, in order.
    """

    def __init__(
        self,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        factor: float = 4.0,
        roundoff: float | None = None,
        worst: int = 8,
        histogram: bool = False,
    ) -> None:
        """See :func:`compare_tensors` for the arguments."""
        self.options: dict[str, Any] = {
            "atol": atol, "rtol": rtol, "factor": factor, "roundoff": roundoff, "worst": worst, "histogram": histogram,
        }  # fmt: skip
        self.rows: list[TensorComparison] = []

    def compare(
        self, reference: Any, test: Any, gold: Any = None, *, kind: str = "output", path: str | None = None
    ) -> list[TensorComparison]:
        """Compare two nested structures leaf by leaf; a leaf on one side alone is a row with verdict ``defect``.

        Args:
            reference, test, gold: tensors, numbers, strings, None, or dicts, lists, tuples, namedtuples, dataclasses
                and ModelOutputs of them. ``gold`` may lack leaves: those are judged by tolerance.
            kind: kind of the rows.
            path: name of the root; default ``kind``.

        Returns:
            The rows of this call, which are also appended to :attr:`rows`.
        """
        root = path or kind
        return self.compare_leaves(
            flatten(reference, root), flatten(test, root), {} if gold is None else flatten(gold, root), kind=kind
        )

    def compare_leaves(
        self, reference: Mapping[str, Any], test: Mapping[str, Any], gold: Mapping[str, Any], *, kind: str
    ) -> list[TensorComparison]:
        """Compare leaves by path (see :func:`stages.kerneldiff.structure.flatten`)."""
        rows: list[TensorComparison] = []
        begun: list[Callable[[], TensorComparison]] = []
        for path in [*reference, *(path for path in test if path not in reference)]:
            if path in reference and path in test:
                begun.append(self._leaf(reference[path], test[path], gold.get(path), kind, path))
            else:
                side, other = ("reference", "test") if path in reference else ("test", "reference")
                message = f"{container_kind((reference if path in reference else test)[path])} in the {side} alone"
                row = TensorComparison(
                    kind, path, verdict="defect", bound="structure", message=f"{message}, nothing in the {other}"
                )
                begun.append(partial(_itself, row))
            if len(begun) - len(rows) > AHEAD:
                rows.append(begun[len(rows)]())
        rows += [finish() for finish in begun[len(rows) :]]
        self.rows += rows
        return rows

    def _leaf(self, reference: Any, test: Any, gold: Any, kind: str, path: str) -> Callable[[], TensorComparison]:
        numbers = (bool, int, float, complex)
        kinds = container_kind(reference), container_kind(test)
        if kinds == ("tensor", "tensor") or (kinds == ("number", "number") and type(reference) is type(test)):
            usable = gold if isinstance(gold, (torch.Tensor, *numbers)) else None
            return begin_comparison(reference, test, gold=usable, path=path, kind=kind, **self.options)
        row = TensorComparison(kind, path, dtype=kinds[0], bound="value")
        if kinds[0] != kinds[1] or type(reference) is not type(test):
            row.verdict, row.bound = "defect", "structure"
            row.message = f"{type(reference).__name__} in the reference, {type(test).__name__} in the test"
        elif _same_value(reference, test):
            row.verdict = "exact"
        elif isinstance(reference, (str, bytes)):
            row.verdict, row.message = "defect", f"{reference!r} in the reference, {test!r} in the test"
        else:
            row.message = f"objects of type {type(reference).__name__} can't be compared"
        return partial(_itself, row)

    @property
    def verdict(self) -> str:
        """The worst verdict of all rows; ``not_established`` where no element of any tensor was compared."""
        worst = overall(row.verdict for row in self.rows)
        compared = any(row.elements for row in self.rows)
        return worst if compared or worst == "defect" else "not_established"

    @property
    def failed(self) -> list[TensorComparison]:
        """Rows whose verdict is ``defect`` or ``not_established``."""
        return [row for row in self.rows if row.failed]


def _itself(row: TensorComparison) -> TensorComparison:
    return row


def _same_value(reference: Any, test: Any) -> bool:
    """Equality of non-tensor leaves; containers get here only when empty."""
    if isinstance(reference, (str, bytes, list, tuple, dict, type(None))):
        return bool(reference == test)
    return reference is test


def compare_structures(reference: Any, test: Any, gold: Any = None, **options: Any) -> KernelDiff:
    """Compare two nested structures once. Options as of :class:`KernelDiff`."""
    difference = KernelDiff(**options)
    difference.compare(reference, test, gold)
    return difference
