"""Outputs of integers and bools that the model makes of floating-point numbers: tokens, masks, indices, levels.

They have no rounding of their own, but a value within rounding of a tie (two largest scores, a threshold, half a
level) may fall on either side. How often it does is measured as the noise of other tensors is. Perturbed references
differ from gold, at the same perturbed values, by so many elements and by so much.
"""

from dataclasses import dataclass, replace

import torch

from inductor_debug.stages.numerics.formats import widen
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement, Reason, over, over_floors


@dataclass
class DiscreteOutput:
    """A row under review, and how references differ from their gold: in how many elements, and by how much.

    Attributes:
        factor: error over floor above which the tensor is a defect.
    """

    row: TensorComparison
    judgement: Judgement
    factor: float
    draws: int = 0
    differing: int = 0
    squares: float = 0.0
    maximum: float = 0.0

    @staticmethod
    def may_be(row: TensorComparison, gold: object, test: object) -> bool:
        """Whether a row is of such an output, and gold has it."""
        if row.kind != "output" or row.verdict != "defect" or row.bound != "tolerance":
            return False
        return _whole(gold) and _whole(test) and gold.shape == test.shape  # type: ignore[attr-defined]

    def add_decomposed(self, decomposed: object, above: object) -> None:
        """Count a draw's decomposed reference against its gold."""
        if _whole(decomposed) and _whole(above) and decomposed.shape == above.shape:  # type: ignore[attr-defined]
            self._add(decomposed, above)  # type: ignore[arg-type]

    def take_in(self, tensors: list[object]) -> bool:
        """Take in a draw's reference, above and below, then gold and test, and judge the row. False: nothing jumps."""
        if not all(map(_whole, tensors)) or len({tensor.shape for tensor in tensors}) > 1:  # type: ignore[attr-defined]
            return False
        reference, above, _, gold, test = tensors
        self._add(reference, above)  # type: ignore[arg-type]
        self._judge(gold, test)  # type: ignore[arg-type]
        return False

    def _add(self, reference: torch.Tensor, gold: torch.Tensor) -> None:
        count, squares, maximum = _apart(reference, gold)
        self.draws += 1
        self.differing += count
        self.squares += squares
        self.maximum = max(self.maximum, maximum)

    def _judge(self, gold: torch.Tensor, test: torch.Tensor) -> None:
        row, elements = self.row, max(test.numel(), 1)
        count, squares, maximum = _apart(test, gold)
        levels = (self.squares / self.draws / elements) ** 0.5, self.maximum
        errors = (squares / elements) ** 0.5, maximum
        by_size, bound = over_floors(*errors, *levels)
        usual = self.differing / self.draws
        ratio = max(over(count, usual), by_size)
        found = (
            f"{count} of {elements} elements differ from gold's, and {usual:.3g} on average in {self.draws} runs of "
            "the reference at weights and inputs some units of roundoff apart; by number and size that is "
            f"{ratio:.3g} times their noise"
        )
        if ratio > self.factor:
            message = f"{row.mismatched} of {row.elements} elements differ from the reference; {found}"
            self.judgement = replace(row.judgement, message=message, reason=Reason.TIE)
            return
        self.judgement = Judgement(
            "within_floor", bound, f"values within rounding of a tie: {found}", *levels, *errors, ratio, self.factor,
            self.factor * usual / elements,  # the share of the elements that may be wrong
            Reason.TIE,
        )  # fmt: skip


def _whole(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _apart(left: torch.Tensor, right: torch.Tensor) -> tuple[int, float, float]:
    """In how many elements two tensors differ, the sum of the squares of their differences, and the largest."""
    left = left.to(right.device)
    difference = (widen(left) - widen(right)).abs()
    largest = difference.max().item() if difference.numel() else 0.0
    return int((left != right).sum()), difference.square().sum().item(), largest
