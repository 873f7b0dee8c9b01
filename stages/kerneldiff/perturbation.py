"""Is a tensor a defect, or was its noise floor unlucky? Asked only of what would otherwise be called a defect.

One eager run is one draw of the rounding noise, and it misleads in three ways.

*Luck.* Of a tensor of few elements (a mean, a score) the one draw may come out near zero: clean Inductor in float32 was
called a defect for 17 of 200 seeds of a scalar mean. So the reference and its gold are run again with parameters and
inputs perturbed by some units of roundoff, both by the same; each such pair is another draw of the same noise, and the
floor becomes the RMS, and the maximum, over all draws, where that is much more.

*Another algorithm.* Eager adds some sums up in a wider format, so that its floor is the result's last bit, which code
that adds in the dtype itself can't meet. Each perturbed reference is therefore run a second time, decomposed and with
plain sums (:mod:`stages.sides.decomposed`). Where that is noisier the floor follows it: of a loss or a gradient
wholly, of an output up to a limit (:data:`~stages.kerneldiff.perturbation_floor.LEEWAY`), or without it where gold is
zero but for float64's own rounding.

*Branches.* Where the model branches on a value (a ReLU's mask, a max-pool's choice) a value within rounding of the
branch may fall on either side, and everything behind it, most of all the gradients, jumps by far more than rounding:
clean Inductor in ResNet-18's training was measured at 28,500 floors, from one ReLU. A jump shows without any rounding:
gold at weights and inputs moved by +d and by -d, less twice gold itself, is zero up to second order where the model is
smooth, and the jump where a branch lies between. Where that is more than ``factor`` floors, an error of up to
``factor`` times the largest such jump is not called a defect; the row says so (bound ``conditioning``), and its floor
and ratio stay what they were. That holds element by element: an error where nothing jumps (a lost update) is not a
branch's, however large the jumps elsewhere. And it holds for the error's part along gold itself, which is large for a
wrong scale and small for a branch.
"""

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.discrete_outputs import WholeNumbers
from inductor_debug.stages.kerneldiff.perturbation_floor import Suspect
from inductor_debug.stages.numerics.record import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS
from inductor_debug.stages.sides import perturbed
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.perturbed import Runner, one_step

PATIENCE = 6
"""Perturbed references without a single jump after which the model is taken to be smooth."""


def reconsider(
    rows: list[TensorComparison],
    base: Case,
    gold: sides.Leaves,
    test: sides.Leaves,
    *,
    draws: int,
    run: Runner = one_step,
    factor: float | None = None,
) -> int:
    """Judge rows that the floor called a defect once more, against perturbed references.

    Args:
        rows: all rows; those that the noise of all draws explains, or a jump, become ``within_floor`` in place.
        base: the reference's case; left bit for bit as found.
        gold, test: the results of gold and of the test side.
        draws: perturbed references at most; 0 turns this off.
        run: what gives the leaves that the rows are of, from a case as it stands; leaves it as found.
        factor: given, outputs of integers and bools are judged too, by this limit of error over floor.

    Returns:
        Number of perturbed references that were run.
    """
    suspects: list[Suspect | WholeNumbers] = [
        Suspect(row, row.floor_rms**2, row.floor_max)
        for row in rows
        if row.verdict == "defect" and row.bound in FLOORS and row.floor_rms is not None and row.floor_max is not None
    ]
    if factor is not None:
        found = [(row, gold.get(row.kind, {}).get(row.place), test.get(row.kind, {}).get(row.path)) for row in rows]
        suspects += [WholeNumbers(row, factor) for row, *sides in found if WholeNumbers.may_be(row, *sides)]
    golden = base.to_gold() if suspects and draws else base
    jumped = False
    for index in range(draws):
        if not suspects or (index == PATIENCE and not jumped):
            return index
        draw = perturbed.draw(base, golden, index, run)
        if draw is None:
            return index
        for suspect in suspects:
            kind, place = suspect.row.kind, suspect.row.place
            sources = (draw.reference, draw.above, draw.below, gold)
            tensors = [leaves.get(kind, {}).get(place) for leaves in sources]
            suspect.add_decomposed(draw.decomposed.get(kind, {}).get(place), tensors[1])
            jumped |= suspect.review([*tensors, test.get(kind, {}).get(suspect.row.path)])
        suspects = [suspect for suspect in suspects if suspect.row.verdict == "defect"]
    return draws
