"""Is a wide noise floor noise at all? Asked of outputs and losses that a floor of most of the digits let pass.

Rounding noise is another one where the same is rounded otherwise. A difference by dtype is not: ``if x.dtype ==
torch.float16: x = x.clamp(...)``, or a constant that the format can't hold. Float64 takes the other way and is no
standard for it: its distance from the reference would let zeros pass. So the reference is run again with other rounding
(:mod:`stages.sides.rounded`). Where its difference from gold stays the same in every run, the floor does not decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.kerneldiff.random_draws import without_floor
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement, Reason, over
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.mirrored import one_step
from inductor_debug.stages.sides.rounded import rounded_reference

WIDE = 0.25
"""A floor above this power of the unit roundoff, as a share of the reference (both RMS), is asked about. That is 25 %
in bfloat16, four of which are the tensor itself, 15 % in float16, 1.6 % in float32."""

DRAWS = 3
"""References in all of which the difference must stay: of a scalar, one draw in 25 is as near by luck."""

STAYS = 0.1
"""Share of the difference, by RMS, by which it may change and still be the same one."""


class BiasedFloor:
    """Withdraws the floor's verdicts where a wide floor is the same with other rounding."""

    name = "systematic floor"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        base = evidence.eager
        if base is None:
            return Found()
        return Found(withdrawn(rows, base, evidence.reference.leaves, evidence.gold.leaves, evidence.roundoff))


@dataclass
class _Wide:
    row: TensorComparison
    reference: torch.Tensor
    noise: torch.Tensor
    """Reference less gold, in float64."""


def withdrawn(
    rows: Sequence[TensorComparison], base: Case, reference: sides.Leaves, gold: sides.Leaves, roundoff: float
) -> dict[int, Judgement]:
    """Judgements of the rows whose floor is no noise, by the index of their row.

    Args:
        base: the reference's case, which runs in eager; left bit for bit as found.
        reference, gold: their results.
        roundoff: of the format that the case computes in.
    """
    wide = {
        index: _Wide(row, leaf, noise)
        for index, row in enumerate(rows)
        if row.kind in ("output", "loss") and row.verdict == "within_floor" and row.bound in (*FLOORS, "conditioning")
        for leaf, noise in [_noise(row, reference, gold)]
        if leaf is not None and noise is not None and _rms(noise) > roundoff**WIDE * _rms(leaf)
    }
    for number in range(DRAWS):
        if not wide:
            return {}
        other = rounded_reference(base, number, one_step)
        if other.error:
            return {}
        wide = {index: item for index, item in wide.items() if _stays(item, other.leaves)}
    found = {}
    for index, item in wide.items():
        share = over(_rms(item.noise), _rms(item.reference))
        judgement = without_floor(
            item.row,
            f"float64 differs from the reference by {100 * share:.3g} % (RMS), and by the same with other rounding: "
            "no noise, but another computation (code that asks for its dtype) or what this dtype always rounds alike",
            Reason.BIAS,
            draws_differ=True,
        )
        if judgement is not None:
            found[index] = judgement
    return found


def _stays(item: _Wide, other: sides.Leaves) -> bool:
    leaf = other.get(item.row.kind, {}).get(item.row.place)
    if not isinstance(leaf, torch.Tensor) or leaf.shape != item.reference.shape or torch.equal(leaf, item.reference):
        return False  # equal bits: nothing was rounded
    return _rms(leaf.double() - item.reference.double()) <= STAYS * _rms(item.noise)


def _noise(
    row: TensorComparison, reference: sides.Leaves, gold: sides.Leaves
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The reference's tensor and its distance from gold; None where there is none of one shape."""
    mine, exact = (leaves.get(row.kind, {}).get(row.place) for leaves in (reference, gold))
    if not isinstance(mine, torch.Tensor) or not isinstance(exact, torch.Tensor) or mine.shape != exact.shape:
        return None, None
    if not mine.is_floating_point() or mine.layout != torch.strided or exact.layout != torch.strided:
        return None, None
    return mine, mine.double() - exact.to(mine.device, torch.float64)


def _rms(tensor: torch.Tensor) -> float:
    """Over its finite elements."""
    finite = tensor[tensor.isfinite()].double()
    return finite.square().mean().sqrt().item() if finite.numel() else 0.0
