"""One tensor, or one nested structure, against another."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any

import torch

from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.accumulator import Figures, Number
from inductor_debug.stages.numerics.comparable import CannotCompare, comparable
from inductor_debug.stages.numerics.limits import check_values
from inductor_debug.stages.numerics.metrics import Value, metrics, value_of
from inductor_debug.stages.numerics.one_pass import begin, chunks
from inductor_debug.stages.numerics.readers import Side, unravel
from inductor_debug.stages.numerics.records import TensorComparison, text_table
from inductor_debug.stages.numerics.structure import container_kind, containers, equal_leaves, flatten
from inductor_debug.stages.numerics.verdict import FAILING, FLOORS, Judgement, judge, overall

_NUMBERS = (bool, int, float, complex)

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
            it is no more precise than the reference (of a coarser dtype, or of its dtype and equal bit for bit).
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

    Raises:
        ValueError: ``factor`` is no finite number above 0; ``atol``, ``rtol`` or ``roundoff`` none from 0; ``worst`` no
            whole number from 0.
    """
    check_values(factor=factor, atol=atol, rtol=rtol, roundoff=roundoff, worst=worst)
    return begin_comparison(
        reference, test, gold=gold, atol=atol, rtol=rtol, path=path, factor=factor, kind=kind, roundoff=roundoff,
        worst=worst, histogram=histogram, alone=True,
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
    noise: float | None = None,
    alone: bool = False,
) -> Callable[[], TensorComparison]:
    """:func:`compare_tensors` in two steps: what this returns gives the record when it is called.

    On a CUDA device the work is queued here, so that many tensors are compared back to back.

    Args:
        noise: RMS of the noise, where it is known otherwise than by the reference's one draw.
        alone: see :func:`~stages.numerics.one_pass.begin`.
    """
    try:
        left, right = _side(reference), _side(test)
        third = None if gold is None else _side(gold)
    except (CannotCompare, OverflowError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        return partial(_itself, TensorComparison(kind, path, bound="value", message=f"not compared: {why}"))
    if left.shape != right.shape:
        record = TensorComparison(kind, path, list(left.shape), _name(left.dtype))
        shapes = f"{list(left.shape)} in the reference, {list(right.shape)} in the test"
        record.verdict, record.bound, record.message = "defect", "shape", f"shape is {shapes}"
        return lambda: record
    usable = None if third is None else _usable_gold(left, third)
    share, least, smallest, tolerance = _terms(left.dtype, right.dtype, rtol, atol, roundoff)
    measured = begin(left, right, usable, rtol=share, atol=least, worst=worst, histogram=histogram, alone=alone)

    def finish() -> TensorComparison:
        record = TensorComparison(kind, path, list(left.shape), _name(left.dtype), rtol=share, atol=least)
        figures = measured()
        _fill(record, figures)
        record.metrics = _measured(figures, [left, right] if usable is None else [left, right, usable])
        if left.dtype != right.dtype:
            record.dtype = f"{_name(left.dtype)} vs {_name(right.dtype)}"
            dtypes = f"{_name(left.dtype)} in the reference, {_name(right.dtype)} in the test"
            record.verdict, record.bound, record.message = "defect", "dtype", f"dtype is {dtypes}"
            return record
        use_floor = usable is not None and figures.gold_elements > 0 and atol is rtol is None
        judgement = judge(
            figures, factor=factor, roundoff=smallest, use_floor=use_floor, noise=noise, tolerance=tolerance
        )
        _decide(record, judgement, factor if use_floor else None)
        record.message = record.message or _both_sides(record)
        return record

    return finish


def _side(value: torch.Tensor | Number) -> Side:
    """What is compared; a Python number is a 0-dim tensor."""
    if isinstance(value, torch.Tensor):
        return comparable(value)
    dtype = {float: torch.float64, complex: torch.complex128}.get(type(value))
    return torch.tensor(value, dtype=dtype, device="cpu")


@cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache(typed=True)
def _terms(
    reference: torch.dtype, test: torch.dtype, rtol: float | None, atol: float | None, roundoff: float | None
) -> tuple[float, float, float, str]:
    """The tolerance (rtol, atol) that counts, the unit roundoff, and the tolerance in words."""
    share, least = formats.default_tolerances(reference, test)
    if atol is not None or rtol is not None:
        share, least = rtol or 0.0, atol or 0.0
    own = formats.unit_roundoff(reference)
    return share, least, max(own, roundoff or 0.0) if own else 0.0, f"atol={least:g}, rtol={share:g}"


def _usable_gold(reference: Side, gold: Side) -> Side | None:
    """Gold where it can serve as a floor: of an inexact reference, in its shape, and more precise than it."""
    if gold.shape != reference.shape or not formats.is_inexact(reference.dtype):
        return None
    if formats.is_inexact(gold.dtype) and formats.unit_roundoff(gold.dtype) > formats.unit_roundoff(reference.dtype):
        return None
    if gold.dtype == reference.dtype:
        return None if all(_same_values(*pieces) for _, pieces in chunks([reference, gold])) else gold
    return gold


def _same_values(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Every element equal, or of the same bits (a NaN)."""
    left, right = (side.to(left.device).resolve_conj().resolve_neg() for side in (left, right))
    return bool((formats.same_bits(left, right) | (left == right)).all())


def _both_sides(record: TensorComparison) -> str:
    """What "exact" does not say: that elements count as equal which are no numbers."""
    if not record.nan_reference and not record.inf_reference:
        return ""
    counts = [(record.nan_reference, "NaN"), (record.inf_reference, "infinite")]
    told = [f"{count} of {record.elements} elements are {what} on both sides" for count, what in counts if count]
    return "; ".join(told)


_SHARED = (
    "elements", "mismatched", "max_abs", "mean_abs", "max_rel", "mean_rel", "rmse", "max_ulp", "cosine", "snr_db",
    "zero_reference", "nan_reference", "nan_test", "inf_reference", "inf_test", "worst", "reference_rms", "histogram",
)  # fmt: skip
"""Figures that a record has under the same name."""


_shared = attrgetter(*_SHARED)


def _fill(record: TensorComparison, figures: Figures) -> None:
    vars(record).update(zip(_SHARED, _shared(figures), strict=True))
    record.mismatched_share = figures.mismatched / figures.elements if figures.elements else 0.0
    first = figures.worst.first
    if first is not None:
        _, flat, record.worst_reference, record.worst_test = first
        record.worst_index = unravel(flat, record.shape or [])


def _measured(figures: Figures, sides: list[Side]) -> dict[str, Value]:
    """Every metric of one tensor; the elements are walked once more for one that asks for them."""

    def pieces() -> Iterator[list[torch.Tensor]]:
        for _, found in chunks(sides):
            yield [formats.widen(piece.to(sides[0].device).resolve_conj().resolve_neg()) for piece in found]

    return {metric.name: value_of(metric, figures, pieces) for metric in metrics()}


def _decide(record: TensorComparison, judgement: Judgement, factor: float | None) -> None:
    record.decide(judgement)
    record.factor = factor
    if record.bound in FLOORS and record.floor_rms is not None:
        record.resolution = record.resolution_of_floor(record.floor_rms)
    elif record.bound == "tolerance":
        record.resolution = record.resolution_of_tolerance()


class KernelDiff:
    """Compares nested structures of tensors; collects the rows and the verdict.

    Args:
        atol, rtol, factor, roundoff, worst, histogram: as for :func:`compare_tensors`, errors included.

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
        check_values(factor=factor, atol=atol, rtol=rtol, roundoff=roundoff, worst=worst)
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
        rows = self.compare_leaves(
            flatten(reference, root), flatten(test, root), {} if gold is None else flatten(gold, root), kind=kind
        )
        left, right = containers(reference, root), containers(test, root)
        for place in sorted(left.keys() & right.keys()):
            if left[place] is not right[place]:
                names = f"{left[place].__name__} in the reference, {right[place].__name__} in the test"
                row = TensorComparison(kind, place, verdict="defect", bound="structure", message=names)
                rows.append(row)
                self.rows.append(row)
        return rows

    def compare_leaves(
        self,
        reference: Mapping[str, Any],
        test: Mapping[str, Any],
        gold: Mapping[str, Any],
        *,
        kind: str,
        noise: float | None = None,
    ) -> list[TensorComparison]:
        """Compare leaves.

        Args:
            reference, test, gold: by path, see :func:`stages.numerics.structure.flatten`.
            kind: of all of them, see :func:`compare_tensors`.
            noise: of all of them, see :func:`begin_comparison`.
        """
        rows: list[TensorComparison] = []
        begun: deque[Callable[[], TensorComparison]] = deque()
        for path in [*reference, *(path for path in test if path not in reference)]:
            if path in reference and path in test:
                begun.append(self._leaf(reference[path], test[path], gold.get(path), kind, path, noise))
            else:
                side, other = ("reference", "test") if path in reference else ("test", "reference")
                message = f"{container_kind((reference if path in reference else test)[path])} in the {side} alone"
                row = TensorComparison(
                    kind, path, verdict="defect", bound="structure", message=f"{message}, nothing in the {other}"
                )
                begun.append(partial(_itself, row))
            if len(begun) > AHEAD:
                rows.append(begun.popleft()())
        rows += [finish() for finish in begun]
        self.rows += rows
        return rows

    def _leaf(
        self, reference: Any, test: Any, gold: Any, kind: str, path: str, noise: float | None
    ) -> Callable[[], TensorComparison]:
        same = type(reference) is type(test)
        tensors = isinstance(reference, torch.Tensor) and isinstance(test, torch.Tensor)
        if tensors or (same and isinstance(reference, _NUMBERS) and _fits(reference, test)):
            usable = gold if isinstance(gold, (torch.Tensor, *_NUMBERS)) else None
            return begin_comparison(reference, test, gold=usable, path=path, kind=kind, noise=noise, **self.options)
        kinds = container_kind(reference), container_kind(test)
        row = TensorComparison(kind, path, dtype=kinds[0], bound="value")
        same_value = equal_leaves(reference, test) if same else None
        if kinds[0] != kinds[1] or not same:
            row.verdict, row.bound = "defect", "structure"
            row.message = f"{type(reference).__name__} in the reference, {type(test).__name__} in the test"
        elif same_value is None:
            row.message = f"objects of type {type(reference).__name__} can't be compared"
        elif same_value:
            row.verdict = "exact"
        else:
            row.verdict, row.message = "defect", f"{_shown(reference)} in the reference, {_shown(test)} in the test"
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

    def __str__(self) -> str:
        return text_table(self.rows)


def _itself(row: TensorComparison) -> TensorComparison:
    return row


def _shown(value: Any) -> str:
    """A leaf that is no tensor, in words; a generator by the start of its state's digest."""
    if isinstance(value, torch.Generator):
        state = hashlib.sha256(value.get_state().numpy().tobytes()).hexdigest()[:8]
        return f"a generator of {value.device} in state {state}"
    return repr(value)


def _fits(*values: object) -> bool:
    """False for an integer that no tensor can hold."""
    return not any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values)


def compare(reference: Any, test: Any, gold: Any = None, **options: Any) -> KernelDiff:
    """Compare two nested structures once.

    Args:
        reference, test, gold: see :meth:`KernelDiff.compare`.
        options: of :class:`KernelDiff`.

    Returns:
        The comparison: its ``verdict``, its ``rows``, and ``str()`` of it, a table.
    """
    difference = KernelDiff(**options)
    difference.compare(reference, test, gold)
    return difference


def assert_matches(reference: Any, test: Any, gold: Any = None, **options: Any) -> KernelDiff:
    """:func:`compare`, for a test: raises where the verdict is ``defect`` or ``not_established``.

    Raises:
        AssertionError: with the table of what failed.
    """
    difference = compare(reference, test, gold, **options)
    if difference.failed or difference.verdict in FAILING:
        nothing = "" if any(row.elements for row in difference.rows) else ": no element of any tensor was compared"
        raise AssertionError(f"the results are not alike: {difference.verdict}{nothing}\n{difference}")
    return difference
