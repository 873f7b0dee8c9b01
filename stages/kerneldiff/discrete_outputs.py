"""Outputs of integers and bools that the model makes of floating-point numbers: tokens, masks, indices, levels.

They have no rounding of their own, but a value within rounding of a tie (two largest scores, a threshold, half a
level) may fall on either side. How often it does is measured as the noise of other tensors is: references that round
otherwise differ from gold by so many elements and by so much.
"""

from dataclasses import dataclass, replace
from typing import TypeGuard

import torch

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
    """

    kind: str
    place: str
    gold: torch.Tensor
    factor: float
    draws: int = 0
    differing: int = 0
    squares: float = 0.0
    maximum: float = 0.0

    def add(self, reference: object) -> None:
        """Count a reference against gold."""
        if not is_whole(reference) or reference.shape != self.gold.shape:
            return
        count, squares, maximum = _apart(reference, self.gold)
        self.draws += 1
        self.differing += count
        self.squares += squares
        self.maximum = max(self.maximum, maximum)

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
        if not self.draws or not is_whole(test) or test.shape != self.gold.shape:
            return row.judgement
        elements = max(test.numel(), 1)
        count, squares, maximum = _apart(test, self.gold)
        levels = (self.squares / self.draws / elements) ** 0.5, self.maximum
        errors = (squares / elements) ** 0.5, maximum
        by_size, bound = over_floors(*errors, *levels)
        usual = self.differing / self.draws
        ratio = max(over(count, usual), by_size)
        found = (
            f"{count} of {elements} elements differ from gold's, and {usual:.3g} on average in {self.draws} runs of "
            f"the reference that round otherwise; by number and size that is {ratio:.3g} times their noise"
        )
        if ratio > self.factor:
            message = f"{row.mismatched} of {row.elements} elements differ from the reference; {found}"
            return replace(row.judgement, message=message, reason=Reason.TIE)
        return Judgement(
            "within_floor", bound, f"values within rounding of a tie: {found}", *levels, *errors, ratio, self.factor,
            self.factor * usual / elements,  # the share of the elements that may be wrong
            Reason.TIE,
        )  # fmt: skip


def is_whole(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor of integers or bools."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _apart(left: torch.Tensor, right: torch.Tensor) -> tuple[int, float, float]:
    """In how many elements two tensors differ, the sum of the squares of their differences, and the largest."""
    left = left.to(right.device)
    difference = (widen(left) - widen(right)).abs()
    largest = difference.max().item() if difference.numel() else 0.0
    return int((left != right).sum()), difference.square().sum().item(), largest
