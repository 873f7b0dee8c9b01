"""Is a tensor a defect, or does eager round luckily there? Asked only of what would otherwise be called a defect.

One eager run is one draw of the rounding noise, by one choice of kernels. It misleads in three ways.

*Luck.* Of a tensor of few elements (a mean, a score) the one draw may come out near zero.

*Better kernels.* Eager adds some sums up in a wider format, or in blocks, so that its noise is the result's last bit.
Code that adds one term after another in float32 can't meet that, and is right.

Both are the same question: how far from gold are right computations? So the reference is run again with each operation
in float64 and rounded at random to its dtype (:mod:`stages.sides.rounded`), sums as plain loops would round them. Each
such run is another draw of the noise, and the floor becomes the RMS, and the maximum, over eager's draw and theirs.

*Branches.* Where the model branches on a value (a ReLU's mask, a max-pool's choice) a value within rounding of the
branch may fall on either side. Everything behind it, most of all the gradients, then jumps by far more than rounding.
Clean Inductor in ResNet-18's training was measured at 28,500 floors, from one ReLU. A run that took another branch is
no draw of the noise, and does not raise the floor. A jump shows without any rounding: take gold at weights and inputs
moved by +d and by -d, less twice gold itself (:mod:`stages.sides.mirrored`). That is zero up to second order where
the model is smooth, and the jump where a branch lies between. Where that is more than ``factor`` floors, an error of
up to ``factor`` times the largest such jump is not called a defect. The row says so (bound ``conditioning``), and its
floor and ratio stay what they were. That holds element by element: an error where nothing jumps (a lost update) is
not a branch's, however large the jumps elsewhere. And it holds for the error's part along gold itself, which is large
for a wrong scale and small for a branch.
"""

from collections.abc import Callable, Sequence

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.free_memory import give_back_memory
from inductor_debug.stages.kerneldiff.discrete_outputs import DiscreteOutput, is_whole
from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.kerneldiff.rounding_floor import RoundingFloor
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.mirrored import Runner, mirrored_gold, one_step
from inductor_debug.stages.sides.rounded import rounded_reference

PATIENCE = 6
"""Pairs of moved golds without a single jump after which the model is taken to be smooth."""


class OtherRounding:
    """Judges what a floor called a defect, and discrete outputs, by references that round otherwise."""

    name = "other rounding"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        options = evidence.options
        factor = options.factor if evidence.floor_decides else None
        asked = any(
            row.verdict == "defect" and (row.bound in FLOORS or (factor and row.kind == "output" and row.mismatched))
            for row in rows
        )
        if not evidence.gold.leaves or not asked or not options.perturbations:
            return Found()
        if evidence.noise is not None:
            return Found(evidence.noise.judged(rows, evidence.test.leaves), evidence.noise.note)
        base, note = evidence.perturbable
        if base is None:
            return Found({}, note)
        leaves = evidence.gold.leaves, evidence.test.leaves
        return Found(
            judged(rows, base, *leaves, evidence.context.progress, draws=options.perturbations, factor=factor), note
        )


def judged(
    rows: Sequence[TensorComparison],
    base: Case,
    gold: sides.Leaves,
    test: sides.Leaves,
    progress: Callable[[str], None] = lambda text: None,
    *,
    draws: int,
    run: Runner = one_step,
    factor: float | None = None,
) -> dict[int, Judgement]:
    """Judge rows that the floor called a defect once more, by references that round otherwise.

    Args:
        rows: all rows.
        base: the reference's case; left bit for bit as found.
        gold, test: the results of gold and of the test side.
        progress: told of each run of the reference, and of each pair of moved golds.
        draws: references at most, and pairs of moved golds; 0 turns this off.
        run: what gives the leaves that the rows are of, from a case as it stands; leaves it as found.
        factor: given, outputs of integers and bools are judged too, by this limit of error over floor.

    Returns:
        Judgements by the index of their row: ``within_floor`` of those that the noise of all draws explains, or a jump.
    """
    asked = {index: found for index, row in enumerate(rows) if (found := noise_of(row, gold, factor)) is not None}
    judgements = {index: row.judgement for index, row in enumerate(rows) if index in asked}
    ideal = base
    if asked and draws:
        give_back_memory()
        ideal = base.to_gold()
    open_still, jumped = dict(asked), False

    def judge() -> dict[int, RoundingFloor | DiscreteOutput]:
        for index, item in open_still.items():
            row = rows[index]
            judgements[index] = item.judged(row, test.get(row.kind, {}).get(row.path))
        return {index: item for index, item in open_still.items() if judgements[index].verdict == "defect"}

    for number in range(draws):
        if not open_still or (number == PATIENCE and not jumped):
            break
        progress(f"rounding the reference otherwise (run {number + 1}), to see whether rounding explains the error")
        reference = rounded_reference(base, number, run)
        if reference.error:
            break
        for item in open_still.values():
            item.add(reference.leaves.get(item.kind, {}).get(item.place))
        del reference
        give_back_memory()  # the moved golds want it in other pieces
        open_still = judge()
        if not open_still:
            break
        wanted = {(item.kind, item.place) for item in open_still.values()}
        progress(f"moving float64's weights up and down (pair {number + 1}), to see whether a branch explains it")
        moved = mirrored_gold(base, ideal, number, wanted, run)
        if moved is None:
            continue
        for item in open_still.values():
            jumped |= item.add_jump(*(leaves.get(item.kind, {}).get(item.place) for leaves in moved))
        open_still = judge()
    return judgements


def noise_of(row: TensorComparison, gold: sides.Leaves, factor: float | None) -> RoundingFloor | DiscreteOutput | None:
    """What gathers the noise of a row that its floor or its bits made a defect; None for any other.

    Args:
        row: of the comparison.
        gold: its results.
        factor: see :func:`judged`.
    """
    ideal = gold.get(row.kind, {}).get(row.place)
    if row.verdict != "defect" or not isinstance(ideal, torch.Tensor):
        return None
    if row.bound in FLOORS and row.floor_rms is not None and row.floor_max is not None:
        return RoundingFloor.of(row, ideal)
    if factor is not None and row.kind == "output" and row.bound == "tolerance" and is_whole(ideal):
        return DiscreteOutput(row.kind, row.place, ideal, factor)
    return None
