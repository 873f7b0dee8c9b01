"""What random draws do to verdicts: sides that drew other numbers can't be compared by a noise floor.

Nor can sides that began in another state. What a step changes in the model is put back, but not what it changes in
globals, closures or a library's own objects. A reference that gives other numbers when it is run again shows either.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from inductor_debug.stages.kerneldiff.evidence import ANSWERS, Evidence
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.numerics.comparison import TensorComparison, compare_tensors
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement, Reason
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.matched_draws import OTHERS, Draws

REPEATABLE = 16
"""Units of roundoff, of an output's RMS, by which two runs of the reference may differ. On a device some operations add
up in no fixed order."""


class RandomDraws:
    """Withdraws verdicts that random draws make meaningless; see :func:`of_draws`."""

    name = "random draws"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        ran = evidence.reference, evidence.gold, evidence.test
        return of_draws(*ran, evidence.roundoff, rows, evidence.draws)


class RepeatedReference:
    """Withdraws the floor's verdicts where the reference gives other outputs when it is run again.

    It is run again only where a floor decided anything, or a tolerance something bad.
    """

    name = "repeated reference"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        decided = (row.bound in (*FLOORS, "conditioning") or (row.bound == "tolerance" and row.failed) for row in rows)
        if evidence.eager is None or not any(decided):
            return Found()
        found = _apart(evidence.reference, evidence.repeated, evidence.roundoff)
        if not found:
            return Found()
        note = f"the reference gives other numbers when it is run again{found}"
        if not evidence.repeated.error:
            note += ": it changes state that is not put back (globals, closures), or is not deterministic"
        return Found(_withdrawn(rows, note, Reason.NOT_REPEATED), note)


class CopiedReference:
    """Withdraws the floor's verdicts where a copy of the model gives other outputs than the model.

    Gold is such a copy, in float64: where the copy computes something else, so does gold, and its distance from the
    reference is no rounding. Code may also ask whether a mode is on, as gold's are, and take another path. Then the
    floor is wide, more than half the digits; nothing else is looked at.
    """

    name = "copied reference"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        wide = math.sqrt(evidence.roundoff)
        floors = (row for row in rows if row.bound in (*FLOORS, "conditioning"))
        if evidence.eager is None or not any(_relative_floor(row) > wide for row in floors):
            return Found()
        found = _apart(evidence.reference, evidence.copied, evidence.roundoff)
        if not found:
            return Found()
        note = f"a copy of the model, run as gold is, gives other numbers than the model{found}"
        if not evidence.copied.error:
            note += (
                ": it has state, or shares memory, in a way that no copy has, or takes another path where a torch "
                "function mode is on, as for gold (torch.overrides.has_torch_function); so float64 is no standard "
                "for it"
            )
        return Found(_withdrawn(rows, note, Reason.NOT_COPIED))


def _apart(reference: sides.Side, again: sides.Side, roundoff: float) -> str:
    """Where outputs of two runs of one model differ, in words; empty where they don't."""
    if again.error:
        return f": it raised {again.error['type']}"
    for kind in ANSWERS:
        for path, leaf in reference.leaves.get(kind, {}).items():
            if not isinstance(leaf, torch.Tensor):
                continue
            row = _repeated(leaf, again.leaves.get(kind, {}).get(path))
            if row.rmse is None:
                return f", {kind} {path} in {row.bound}"
            if not row.rmse <= REPEATABLE * roundoff * (row.reference_rms or 0.0):
                return f", {kind} {path} by {row.rmse:.3g} (RMS)"
    return ""


def _repeated(leaf: torch.Tensor, again: object) -> TensorComparison:
    if not isinstance(again, torch.Tensor):
        return TensorComparison("output", "", bound="structure")
    return compare_tensors(leaf, again, atol=0.0, rtol=0.0)


def _withdrawn(rows: Sequence[TensorComparison], note: str, reason: Reason) -> dict[int, Judgement]:
    judged = {index: without_floor(row, note, reason, draws_differ=True) for index, row in enumerate(rows)}
    return {index: judgement for index, judgement in judged.items() if judgement is not None}


def of_draws(
    reference: sides.Side,
    gold: sides.Side,
    test: sides.Side,
    roundoff: float,
    rows: Sequence[TensorComparison],
    draws: Draws,
) -> Found:
    """Judgements of what random draws make meaningless; the note is what was found, in words.

    Where the test side's draws differ from the reference's, a difference says nothing about the backend. What fails is
    ``not_established``; so is the structure, for another layer may have been dropped. What passes stands: no floor is
    so wide that other numbers would be within it. Where gold's draws differ, the floor measures dropout masks, not
    rounding. They do where gold left a generator in another state. Equal states are no proof of equal draws. So where
    gold did not repeat the reference's one by one, a floor above the square root of the unit roundoff (half the digits)
    in an output says the same of gold. Then only bits and the tolerance count: a row that keeps neither is
    ``not_established``.

    Args:
        reference, gold, test: the sides as they ran.
        roundoff: unit roundoff of the format that the case computes in.
        rows: the compared tensors.
        draws: what is known of the test side's.
    """
    if not reference.drew:
        alone = "the test side alone drew random numbers, or seeded"
        return Found({}, alone if test.drew else "no random numbers were drawn")
    note, found = draws.found or "all sides drew the same random numbers", dict[int, Judgement]()
    if draws.differ:
        note = draws.found or OTHERS
        found = {index: _unknown(row, note, Reason.OTHER_DRAWS) for index, row in enumerate(rows) if row.failed}
        if not found:
            note += ", but nothing that it gave is beyond its bound"
    outputs = [row for row in rows if row.kind in ("output", "loss")]
    wide = not gold.redrew and any(_relative_floor(row) > math.sqrt(roundoff) for row in outputs)
    if gold.leaves and (gold.generator != reference.generator or wide):
        note = "reference and gold drew different random numbers, so there is no noise floor"
        for index, row in enumerate(rows):
            judgement = None
            if index not in found:
                judgement = without_floor(row, note, Reason.OTHER_DRAWS, draws_differ=draws.differ)
            if judgement is not None:
                found[index] = judgement
    return Found(found, note)


def without_floor(row: TensorComparison, note: str, reason: Reason, *, draws_differ: bool) -> Judgement | None:
    """The verdict by tolerance, of a row that a floor decided; ``not_established`` where the tolerance is not kept.

    Args:
        row: the compared tensor.
        note: why the floor is not used; becomes part of the message.
        reason: the judgement's.
        draws_differ: whether gold drew other random numbers; False lets a row fail that exceeds even the floor.

    Returns:
        None where the row's verdict stands.
    """
    by_floor = row.bound in (*FLOORS, "conditioning")
    if not draws_differ and row.failed:
        return None  # what exceeds even a floor of other draws is wrong
    if not by_floor and not (row.bound == "tolerance" and row.failed):
        return None
    if row.mismatched != 0:
        return _unknown(row, note, reason)
    return replace(
        row.judgement,
        verdict="within_tolerance",
        bound="tolerance",
        message=f"all elements within atol={row.atol:g}, rtol={row.rtol:g}; the floor is not used: {note}",
        resolution=row.resolution_of_tolerance(),
        reason=reason,
    )


def _unknown(row: TensorComparison, note: str, reason: Reason) -> Judgement:
    return replace(row.judgement, verdict="not_established", bound="random", message=note, reason=reason)


def _relative_floor(row: TensorComparison) -> float:
    """Floor RMS over the reference's RMS, from the row's own columns; 0 of whole numbers, whose floor counts ties."""
    if row.floor_rms is None or not row.elements or row.dtype.startswith(("int", "uint", "bool")):
        return 0.0
    return row.floor_rms / row.reference_rms if row.reference_rms else 0.0
