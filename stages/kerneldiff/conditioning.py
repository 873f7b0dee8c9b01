"""Is a tensor too ill-conditioned for its noise floor? Asked only of what would otherwise be called a defect.

One eager run is one draw of the rounding noise. Where the model branches on a value (a ReLU's mask, a max-pool's
choice) a value within rounding of the branch can fall on either side, and everything behind it, most of all the
gradients, jumps by far more than rounding. A floor from one draw that did not jump knows nothing of that: clean
Inductor in ResNet-18's training was measured at 28,500 times such a floor, from one ReLU.

So the reference is run again with its parameters and inputs perturbed by up to AMPLITUDE units of roundoff. A smooth
tensor answers with less than AMPLITUDE floors (measured on ResNet-18: 10 for 64, because a run rounds at every
operation and the perturbation acts once). Only a tensor that answers with more has a jump within reach of rounding; its
floor is raised to the error that the perturbed reference showed. All others keep their floor and their verdict: a
wrong scale, say, shows in outputs and in gradients behind no branch, which nothing excuses.
"""

import logging
from collections.abc import Iterator

import torch

from models.case import Case
from stages.kerneldiff import formats, sides
from stages.kerneldiff.compare import TensorComparison
from stages.kerneldiff.verdict import over

log = logging.getLogger(__name__)

AMPLITUDE = 64.0
"""Size of the perturbation, in units of roundoff: some three times the noise of a deep model's own rounding."""

PATIENCE = 8
"""Perturbed references without a single jump after which the model is taken to be smooth."""

BOUNDS = ("floor_rms", "floor_max")


def reconsider(rows: list[TensorComparison], base: Case, gold: sides.Leaves, *, draws: int) -> int:
    """Judge rows that the floor called a defect once more, against perturbed references.

    Args:
        rows: all rows; those that a jump explains are changed in place to ``within_floor`` with the bound
            ``conditioning``, their floor raised.
        base: the reference's case; left bit for bit as found.
        gold: the gold's results.
        draws: perturbed references at most; 0 turns this off.

    Returns:
        Number of perturbed references that were run.
    """
    suspects = [row for row in rows if row.verdict == "defect" and row.bound in BOUNDS]
    jumped = False
    for draw in range(draws):
        if not suspects or (draw == PATIENCE and not jumped):
            return draw
        leaves = _perturbed(base, draw)
        if leaves is None:
            return draw
        jumps = [_raise_floor(row, leaves[row.kind].get(row.path), gold[row.kind][row.path]) for row in suspects]
        jumped = jumped or any(jumps)
        suspects = [row for row in suspects if row.verdict == "defect"]
    return draws


def accept_statistics(rows: list[TensorComparison]) -> None:
    """Judge buffers that exceed the floor by tolerance instead.

    Buffers are mostly statistics: sums of thousands of terms that cancel. Eager on the CPU adds them up in float64, so
    that its floor is the float32 result's last bit, which no backend that adds in float32 can meet (clean Inductor was
    measured at 43 floors in ResNet-18's ``running_mean``). ``assert_close``'s tolerance of the dtype decides.
    """
    for row in rows:
        if row.kind == "buffer" and row.verdict == "defect" and row.bound in BOUNDS and row.mismatched == 0:
            row.verdict, row.bound = "within_tolerance", "tolerance"
            row.message = (
                f"{row.message}; all elements within atol={row.atol:g}, rtol={row.rtol:g}: a statistic that eager "
                "accumulates in a wider format"
            )


def _perturbed(base: Case, draw: int) -> sides.Leaves | None:
    """Results of the reference from parameters and inputs perturbed by up to AMPLITUDE units of roundoff."""
    unit = AMPLITUDE * formats.unit_roundoff(base.dtype)
    with base.preserved(), torch.no_grad():
        generator = torch.Generator().manual_seed(base.seed + draw)
        for tensor in _floating(base):
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float32).mul_(2 * unit).sub_(unit)
            tensor.mul_(noise.add_(1).to(tensor.device))
        with torch.enable_grad():
            side = sides.run_side("perturbed reference", base, lambda: base.module)
    return None if side.error else side.leaves


def _floating(case: Case) -> Iterator[torch.Tensor]:
    """Parameters and inputs that hold floating-point numbers, each once."""
    seen: set[int] = set()
    for tensor in [*case.module.parameters(), *case.named_inputs().values()]:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield tensor


def _raise_floor(row: TensorComparison, perturbed: object, gold: object) -> bool:
    """Where the perturbed reference jumped, raise the row's floor if that explains its error. True for a jump."""
    if not isinstance(perturbed, torch.Tensor) or not isinstance(gold, torch.Tensor) or perturbed.shape != gold.shape:
        return False
    assert row.floor_rms is not None and row.floor_max is not None and row.factor is not None
    assert row.error_rms is not None and row.error_max is not None
    difference = (perturbed.double() - gold.double()).abs()
    rms, maximum = difference.square().mean().sqrt().item(), difference.max().item()
    jump = max(over(rms, row.floor_rms), over(maximum, row.floor_max))
    if jump <= AMPLITUDE:
        return False
    rms, maximum = max(rms, row.floor_rms), max(maximum, row.floor_max)
    ratio = max(over(row.error_rms, rms), over(row.error_max, maximum))
    if ratio <= row.factor:
        row.message = (
            f"error against gold is {row.ratio:.3g} times one eager run's noise, but eager itself moved by {jump:.3g} "
            f"times when weights and inputs changed by {AMPLITUDE:g} units of roundoff: a branch lies within rounding"
        )
        row.floor_rms, row.floor_max = rms, maximum
        row.verdict, row.bound, row.ratio = "within_floor", "conditioning", ratio
    return True
