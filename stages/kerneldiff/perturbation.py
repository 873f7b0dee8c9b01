"""Is a tensor a defect, or was its noise floor unlucky? Asked only of what would otherwise be called a defect.

One eager run is one draw of the rounding noise, and it misleads in three ways.

*Luck.* Of a tensor of few elements (a mean, a score) the one draw may come out near zero. Clean Inductor in float32 was
called a defect for 17 of 200 seeds of a scalar mean. So the reference and its gold are run again with parameters and
inputs perturbed by some units of roundoff, both by the same. Each such pair is another draw of the same noise. The
floor becomes the RMS, and the maximum, over all draws, where that is much more.

*Another algorithm.* Eager adds some sums up in a wider format, so that its floor is the result's last bit, which code
that adds in the dtype itself can't meet. Each perturbed reference is therefore run a second time, decomposed and with
sequential sums (:mod:`stages.sides.decomposed`). Where that is noisier the floor follows it: of a loss or a gradient
wholly, of an output up to a limit (:data:`~stages.kerneldiff.perturbation_floor.LEEWAY`). There is no limit where gold
is zero but for float64's own rounding.

*Branches.* Where the model branches on a value (a ReLU's mask, a max-pool's choice) a value within rounding of the
branch may fall on either side. Everything behind it, most of all the gradients, then jumps by far more than rounding.
Clean Inductor in ResNet-18's training was measured at 28,500 floors, from one ReLU. A jump shows without any rounding.
Take gold at weights and inputs moved by +d and by -d, less twice gold itself. That is zero up to second order where the
model is smooth, and the jump where a branch lies between. Where that is more than ``factor`` floors, an error of up to
``factor`` times the largest such jump is not called a defect. The row says so (bound ``conditioning``), and its floor
and ratio stay what they were. That holds element by element: an error where nothing jumps (a lost update) is not a
branch's, however large the jumps elsewhere. And it holds for the error's part along gold itself, which is large for a
wrong scale and small for a branch.
"""

from collections.abc import Sequence

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.discrete_outputs import DiscreteOutput
from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.kerneldiff.perturbation_floor import PerturbedFloor
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement
from inductor_debug.stages.sides import perturbed
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.perturbed import Runner, one_step

PATIENCE = 6
"""Perturbed references without a single jump after which the model is taken to be smooth."""


class Perturbation:
    """Judges what a floor called a defect, and discrete outputs, by perturbed references."""

    name = "perturbed references"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        options = evidence.options
        factor = options.factor if evidence.floor_decides else None
        asked = any(
            row.verdict == "defect" and (row.bound in FLOORS or (factor and row.kind == "output" and row.mismatched))
            for row in rows
        )
        if not evidence.gold.leaves or not asked or not options.perturbations:
            return Found()
        base, note = evidence.perturbable
        if base is None:
            return Found({}, note)
        evidence.context.progress("perturbing the reference, to tell a defect from a branch within rounding")
        leaves = evidence.gold.leaves, evidence.test.leaves
        return Found(judged(rows, base, *leaves, draws=options.perturbations, factor=factor), note)


def judged(
    rows: Sequence[TensorComparison],
    base: Case,
    gold: sides.Leaves,
    test: sides.Leaves,
    *,
    draws: int,
    run: Runner = one_step,
    factor: float | None = None,
) -> dict[int, Judgement]:
    """Judge rows that the floor called a defect once more, against perturbed references.

    Args:
        rows: all rows.
        base: the reference's case; left bit for bit as found.
        gold, test: the results of gold and of the test side.
        draws: perturbed references at most; 0 turns this off.
        run: what gives the leaves that the rows are of, from a case as it stands; leaves it as found.
        factor: given, outputs of integers and bools are judged too, by this limit of error over floor.

    Returns:
        Judgements by the index of their row: ``within_floor`` of those that the noise of all draws explains, or a jump.
    """
    asked: dict[int, PerturbedFloor | DiscreteOutput] = {}
    for index, row in enumerate(rows):
        known = row.floor_rms is not None and row.floor_max is not None
        mine, theirs = gold.get(row.kind, {}).get(row.place), test.get(row.kind, {}).get(row.path)
        if row.verdict == "defect" and row.bound in FLOORS and known:
            asked[index] = PerturbedFloor.of(row)
        elif factor is not None and DiscreteOutput.may_be(row, mine, theirs):
            asked[index] = DiscreteOutput(row, row.judgement, factor)
    ideal = base.to_gold() if asked and draws else base
    open_still, jumped = dict(asked), False
    for number in range(draws):
        if not open_still or (number == PATIENCE and not jumped):
            break
        draw = perturbed.draw(base, ideal, number, run)
        if draw is None:
            break
        for item in open_still.values():
            kind, place = item.row.kind, item.row.place
            sources = (draw.reference, draw.above, draw.below, gold)
            tensors = [leaves.get(kind, {}).get(place) for leaves in sources]
            item.add_decomposed(draw.decomposed.get(kind, {}).get(place), tensors[1])
            jumped |= item.take_in([*tensors, test.get(kind, {}).get(item.row.path)])
        open_still = {index: item for index, item in open_still.items() if item.judgement.verdict == "defect"}
    return {index: item.judgement for index, item in asked.items()}
