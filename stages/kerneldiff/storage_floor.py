"""What storing numbers in an accelerator's formats costs by itself is no defect of what runs on it.

An adapter that emulates storage formats (``AcceleratorAdapter.storage_rounding``) gives another one that does this and
nothing else wrong. One step of that one is run; where its deviation from gold is larger than the reference's, it is
the tensor's floor. So a fault on top (a sum in too narrow a format, a wrong kernel) still has to stay within
``factor`` times what the formats themselves cost. Integers, such as the indices of a sort among values that rounding
made equal, have no floor: they must be those that this step gives.
"""

from dataclasses import dataclass

from torch import Tensor

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.numerics.comparison import TensorComparison, compare_tensors
from inductor_debug.stages.numerics.verdict import FLOORS, over_floors
from inductor_debug.stages.sides import running as sides

INTEGERS = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
"""Dtypes of which nothing but the very value is right."""


@dataclass(frozen=True)
class Raised:
    """Words for the stage's message, and the coarsest format's unit roundoff; empty and 0 where none is emulated."""

    note: str = ""
    roundoff: float = 0.0


def raise_floors(
    context: StageContext,
    adapter: AcceleratorAdapter,
    case: Case,
    rows: list[TensorComparison],
    leaves: tuple[sides.Leaves, sides.Leaves],
) -> Raised:
    """Judge the rows that a floor decided again, in place, where storage rounding alone gives a higher floor.

    Args:
        adapter: the test side's.
        case: the test side's; left as found.
        rows: all rows.
        leaves: of the test side and of gold.
    """
    test, gold = leaves
    judged = [row for row in rows if row.bound in FLOORS]
    integers = [row for row in rows if row.verdict == "defect" and row.bound == "tolerance" and row.dtype in INTEGERS]
    rounding = adapter.storage_rounding() if gold and (judged or integers) else None
    if rounding is None:
        return Raised()
    context.progress("storage rounding alone, for the floor")
    from inductor_debug.stages.backends.compiled import compile_case

    side = sides.run_side("storage rounding", case, lambda: compile_case(case, rounding))
    if side.error:
        return Raised(f"; the floor is not raised by storage rounding: running it alone raised {side.error['type']}")
    raised = sum(_raise(row, side.leaves, test, gold) for row in judged)
    note = f"; storage rounding alone raised the floor of {raised} of {len(rows)} results" if raised else ""
    given = sum(_gives(row, side.leaves, test) for row in integers)
    note += f"; storage rounding alone gives the integers of {given} of {len(rows)} results" if given else ""
    return Raised(note, rounding.roundoff)


def _gives(row: TensorComparison, rounding: sides.Leaves, test: sides.Leaves) -> bool:
    """Whether storage rounding alone gives a row's very integers; they are no defect then."""
    alone, found = rounding.get(row.kind, {}).get(row.place), test.get(row.kind, {}).get(row.path)
    if not (
        isinstance(alone, Tensor) and isinstance(found, Tensor) and compare_tensors(alone, found).verdict == "exact"
    ):
        return False
    row.message = f"{row.message}, but all are those that storage rounding alone gives"
    row.verdict, row.bound = "within_floor", "bits"
    return True


def _raise(row: TensorComparison, rounding: sides.Leaves, test: sides.Leaves, gold: sides.Leaves) -> bool:
    """Whether the row's floor is a higher one now."""
    sources = (rounding, row.place), (test, row.path), (gold, row.place)
    tensors = [found.get(row.kind, {}).get(path) for found, path in sources]
    if any(tensor is None for tensor in tensors) or row.factor is None:
        return False
    alone = compare_tensors(tensors[0], tensors[1], gold=tensors[2], factor=row.factor, worst=0)  # type: ignore[arg-type]
    known = (row.floor_rms, row.floor_max, row.error_rms, row.error_max, alone.floor_rms, alone.floor_max)
    if None in known:
        return False
    floor_rms, floor_max, error_rms, error_max, alone_rms, alone_max = (float(item or 0.0) for item in known)
    if alone_rms <= floor_rms and alone_max <= floor_max:
        return False
    row.floor_rms, row.floor_max = max(floor_rms, alone_rms), max(floor_max, alone_max)
    row.ratio, row.bound = over_floors(error_rms, error_max, row.floor_rms, row.floor_max)
    row.verdict = "defect" if row.ratio > row.factor else "within_floor"
    row.resolve(row.floor_rms)
    row.message = (
        f"error against gold is {row.ratio:.3g} times the noise floor, which storage rounding alone raised from "
        f"{floor_rms:.3g} to {row.floor_rms:.3g} (RMS); the limit is {row.factor:g}"
    )
    return True
