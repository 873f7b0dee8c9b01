"""What storing numbers in an accelerator's formats costs by itself is no defect of what runs on it.

An adapter that emulates storage formats (``AcceleratorAdapter.storage_rounding``) gives another one that does this and
nothing else wrong. One step of that one is run; where its deviation from gold is larger than the reference's, it is
the tensor's floor. So a fault on top (a sum in too narrow a format, a wrong kernel) still has to stay within
``factor`` times what the formats themselves cost. Integers, such as the indices of a sort among values that rounding
made equal, have no floor: they must be those that this step gives.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from inductor_debug.stages.formatting import times
from inductor_debug.stages.graphs.records import DISCRETE
from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.numerics.comparison import TensorComparison, compare_tensors
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement, Reason, over_floors
from inductor_debug.stages.sides.running import Leaves


class StorageRounding:
    """Judges what a floor decided, and integers, by a step with the adapter's storage formats alone."""

    name = "storage rounding"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        judged = {index: row for index, row in enumerate(rows) if row.bound in FLOORS}
        integers = {
            index: row
            for index, row in enumerate(rows)
            if row.verdict == "defect" and row.bound == "tolerance" and row.dtype in DISCRETE
        }
        side = evidence.rounded_alone if evidence.gold.leaves and (judged or integers) else None
        if side is None:
            return Found()
        if side.error:
            return Found(
                {}, f"the floor is not raised by storage rounding: running it alone raised {side.error['type']}"
            )
        test, gold = evidence.test.leaves, evidence.gold.leaves
        raised = {index: _raised(row, side.leaves, test, gold) for index, row in judged.items()}
        given = {index: _given(row, side.leaves, test) for index, row in integers.items()}
        found = {index: judgement for index, judgement in (raised | given).items() if judgement is not None}
        counts = [sum(judgement is not None for judgement in part.values()) for part in (raised, given)]
        notes = [f"storage rounding alone raised the floor of {counts[0]} of {len(rows)} results"] * bool(counts[0])
        notes += [f"storage rounding alone gives the integers of {counts[1]} of {len(rows)} results"] * bool(counts[1])
        return Found(found, "; ".join(notes))


def _given(row: TensorComparison, rounding: Leaves, test: Leaves) -> Judgement | None:
    """No defect, where storage rounding alone gives a row's very integers."""
    alone, found = rounding.get(row.kind, {}).get(row.place), test.get(row.kind, {}).get(row.path)
    if not (
        isinstance(alone, Tensor) and isinstance(found, Tensor) and compare_tensors(alone, found).verdict == "exact"
    ):
        return None
    message = f"{row.message}, but all are those that storage rounding alone gives"
    return replace(row.judgement, verdict="within_floor", bound="bits", message=message, reason=Reason.STORAGE_ROUNDING)


def _raised(row: TensorComparison, rounding: Leaves, test: Leaves, gold: Leaves) -> Judgement | None:
    """By the higher floor, where storage rounding alone gives one."""
    sources = (rounding, row.place), (test, row.path), (gold, row.place)
    tensors = [found.get(row.kind, {}).get(path) for found, path in sources]
    if any(tensor is None for tensor in tensors) or row.factor is None:
        return None
    alone = compare_tensors(tensors[0], tensors[1], gold=tensors[2], factor=row.factor, worst=0)  # type: ignore[arg-type]
    known = (row.floor_rms, row.floor_max, row.error_rms, row.error_max, alone.floor_rms, alone.floor_max)
    if None in known:
        return None
    floor_rms, floor_max, error_rms, error_max, alone_rms, alone_max = (float(item or 0.0) for item in known)
    if alone_rms <= floor_rms and alone_max <= floor_max:
        return None
    higher = max(floor_rms, alone_rms), max(floor_max, alone_max)
    ratio, bound = over_floors(error_rms, error_max, *higher)
    message = (
        f"the error is {times(ratio)} times the noise floor (limit {row.factor:g}), which storage rounding alone "
        f"raised from {floor_rms:.3g} to {higher[0]:.3g} (RMS)"
    )
    return replace(
        row.judgement,
        verdict="defect" if ratio > row.factor else "within_floor",
        bound=bound,
        message=message,
        floor_rms=higher[0],
        floor_max=higher[1],
        ratio=ratio,
        resolution=row.resolution_of_floor(higher[0]),
        reason=Reason.STORAGE_ROUNDING,
    )
