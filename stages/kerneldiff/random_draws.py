"""What random draws do to verdicts: sides that drew other numbers can't be compared by a noise floor.

Nor can sides that began in another state: what a step changes in the model is put back, but not what it changes in
globals, closures or a library's own objects. A reference that gives other numbers when it is run again shows either.
"""

import math
from collections.abc import Callable

import torch

from inductor_debug.stages.numerics.comparison import TensorComparison, compare_tensors
from inductor_debug.stages.numerics.verdict import FLOORS
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.matched_draws import OTHERS, Draws

REPEATABLE = 16
"""Units of roundoff, of an output's RMS, that two runs of the reference may lie apart: operations that add up in no
fixed order on a device differ by some."""


def review_repeat(
    reference: sides.Side, run: Callable[[], sides.Side], roundoff: float, rows: list[TensorComparison]
) -> str:
    """Withdraw the floor's verdicts where the reference gives other outputs when it is run again; what was found.

    Args:
        run: runs the reference again. Called only where a floor decided anything, or a tolerance something bad.
    """
    decided = (row.bound in (*FLOORS, "conditioning") or (row.bound == "tolerance" and row.failed) for row in rows)
    if not any(decided):
        return ""
    why = "it changes state that is not put back (globals, closures), or is not deterministic"
    return _withdraw(reference, run(), roundoff, rows, "the reference gives other numbers when it is run again", why)


def review_copy(
    reference: sides.Side, run: Callable[[], sides.Side], roundoff: float, rows: list[TensorComparison]
) -> str:
    """Withdraw the floor's verdicts where a copy of the model gives other outputs than the model; what was found.

    Gold is such a copy, in float64: where the copy computes something else, so does gold, and its distance from the
    reference is no rounding. Code may also ask whether a mode is on, as gold's are, and take another path. Then the
    floor is wide, more than half the digits; nothing else is looked at.

    Args:
        run: runs a copy that is made as gold's is and in gold's modes, in the reference's own dtypes.
    """
    wide = math.sqrt(roundoff)
    if not any(row.bound in (*FLOORS, "conditioning") and _relative_floor(row) > wide for row in rows):
        return ""
    why = (
        "it has state, or shares memory, in a way that no copy has, or takes another path where a torch function mode "
        "is on, as for gold (torch.overrides.has_torch_function); so float64 is no standard for it"
    )
    said = "a copy of the model, run as gold is, gives other numbers than the model"
    return _withdraw(reference, run(), roundoff, rows, said, why)


def _withdraw(
    reference: sides.Side, again: sides.Side, roundoff: float, rows: list[TensorComparison], said: str, why: str
) -> str:
    """Withdraw the floor's verdicts, with ``said`` and ``why``, where ``again`` has other outputs."""
    if again.error:
        found = f"{said}: it raised {again.error['type']}"
    else:
        apart = [
            f"{kind} {path} by {row.rmse:.3g} (RMS)" if row.rmse is not None else f"{kind} {path} in {row.bound}"
            for kind in ("output", "loss")
            for path, leaf in reference.leaves.get(kind, {}).items()
            if isinstance(leaf, torch.Tensor)
            for row in [_repeated(leaf, again.leaves.get(kind, {}).get(path))]
            if row.rmse is None or not row.rmse <= REPEATABLE * roundoff * (row.reference_rms or 0.0)
        ]
        if not apart:
            return ""
        found = f"{said}, {apart[0]}: {why}"
    for row in rows:
        judge_without_floor(row, found, draws_differ=True)
    return found


def _repeated(leaf: torch.Tensor, again: object) -> TensorComparison:
    if not isinstance(again, torch.Tensor):
        return TensorComparison("output", "", bound="structure")
    return compare_tensors(leaf, again, atol=0.0, rtol=0.0)


def review(
    reference: sides.Side,
    gold: sides.Side,
    test: sides.Side,
    roundoff: float,
    rows: list[TensorComparison],
    draws: Draws,
) -> str:
    """Withdraw verdicts that random draws make meaningless; returns what was found, in words.

    Where the test side's draws differ from the reference's, a difference says nothing about the backend: what fails is
    ``not_established``, the structure too, for another layer may have been dropped. What passes stands: no floor is so
    wide that other numbers would be within it. Where gold's draws differ, the floor measures dropout masks, not
    rounding. They do where gold left a generator in another state; equal states are not proof of equal draws, so a
    floor above the square root of the unit roundoff (half the digits) in an output says the same of gold. Then only
    bits and the tolerance count: a row that keeps neither is ``not_established``.

    Args:
        draws: what is known of the test side's.
    """
    if not reference.drew:
        return "the test side alone drew random numbers, or seeded" if test.drew else "no random numbers were drawn"
    found = draws.found or "all sides drew the same random numbers"
    if draws.differ:
        found = draws.found or OTHERS
        failed = [row for row in rows if row.failed]
        for row in failed:
            row.verdict, row.bound, row.message = "not_established", "random", found
        if not failed:
            found += ", but nothing that it gave is beyond its bound"
    wide = [row for row in rows if row.kind in ("output", "loss") and _relative_floor(row) > math.sqrt(roundoff)]
    if gold.leaves and (gold.generator != reference.generator or wide):
        found = "reference and gold drew different random numbers, so there is no noise floor"
        for row in rows:
            judge_without_floor(row, found, draws_differ=draws.differ)
    return found


def judge_without_floor(row: TensorComparison, found: str, *, draws_differ: bool) -> None:
    by_floor = row.bound in (*FLOORS, "conditioning")
    if not draws_differ and row.failed:
        return  # what exceeds even a floor of other draws is wrong
    if not by_floor and not (row.bound == "tolerance" and row.failed):
        return
    if row.mismatched == 0:
        row.verdict, row.bound = "within_tolerance", "tolerance"
        row.resolve_tolerance()
        row.message = f"all elements within atol={row.atol:g}, rtol={row.rtol:g}; the floor is not used: {found}"
    else:
        row.verdict, row.bound, row.message = "not_established", "random", found


def _relative_floor(row: TensorComparison) -> float:
    """Floor RMS over the reference's RMS, from the row's own columns; 0 of whole numbers, whose floor counts ties."""
    if row.floor_rms is None or not row.elements or row.dtype.startswith(("int", "uint", "bool")):
        return 0.0
    return row.floor_rms / row.reference_rms if row.reference_rms else 0.0
