"""Outputs of integers and bools that the model makes of floating-point numbers: tokens, masks, indices, levels.

They have no rounding of their own, but a value within rounding of a tie (two largest scores, a threshold, half a
level) may fall on either side. How often it does is measured as the noise of other tensors is: references that round
otherwise differ from gold by so many elements and by so much. What counts is the run that differs most, not their
average: a value near a tie crosses it in one run of several, and an average below one element would call that one a
defect.
"""

from dataclasses import dataclass, field, replace
from typing import TypeGuard

import torch

from inductor_debug.stages.formatting import times
from inductor_debug.stages.numerics.formats import widen
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement, Reason, over, over_floors


@dataclass
class DiscreteOutput:
    """How references differ from gold: in how many elements, and by how much.

    Attributes:
        kind, place: of the tensor.
        gold: integers or bools.
        factor: error over floor above which the tensor is a defect.
        noise: of each reference, the elements that differ from gold's, and RMS and maximum of its distance.
    """

    kind: str
    place: str
    gold: torch.Tensor
    factor: float
    noise: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, reference: object) -> None:
        """Count a reference against gold."""
        if is_whole(reference) and reference.shape == self.gold.shape:
            self.noise.append(_apart(reference, self.gold))

    def add_jump(self, above: object, below: object) -> bool:
        """Nothing jumps here but what a reference shows."""
        return False

    @property
    def jumped(self) -> bool:
        """See :meth:`add_jump`."""
        return False

    def judged(self, row: TensorComparison, test: object) -> Judgement:
        """The verdict on a row of this tensor whose elements differ from the reference's.

        Args:
            row: of a comparison with the same reference and gold.
            test: its tensor on the test side.
        """
        if not self.noise or not is_whole(test) or test.shape != self.gold.shape:
            return row.judgement
        elements = max(test.numel(), 1)
        count, rms, maximum = _apart(test, self.gold)
        most, floor_rms, floor_max = (max(column) for column in zip(*self.noise, strict=True))
        by_size, bound = over_floors(rms, maximum, floor_rms, floor_max)
        ratio = max(over(count, most), by_size)
        found = (
            f"{count} of {elements} elements differ from gold's, and up to {most} in {len(self.noise)} runs of the "
            f"reference that round otherwise; by number and size that is {times(ratio)} times their noise"
        )
        if ratio > self.factor:
            message = f"{row.mismatched} of {row.elements} elements differ from the reference; {found}"
            return replace(row.judgement, message=message, reason=Reason.TIE)
        return Judgement(
            "within_floor", bound, f"values within rounding of a tie: {found}", floor_rms, floor_max, rms, maximum,
            ratio, self.factor, self.factor * most / elements,  # the share of the elements that may be wrong
            Reason.TIE,
        )  # fmt: skip


def is_whole(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor of integers or bools."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _apart(left: torch.Tensor, right: torch.Tensor) -> tuple[int, float, float]:
    """In how many elements two tensors differ, and RMS and maximum of their differences."""
    left = left.to(right.device)
    difference = (widen(left) - widen(right)).abs()
    largest = difference.max().item() if difference.numel() else 0.0
    rms = (difference.square().sum().item() / max(difference.numel(), 1)) ** 0.5
    return int((left != right).sum()), rms, largest
