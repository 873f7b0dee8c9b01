"""A tensor that the noise floor called a defect, and what perturbed references tell about it."""

import math
from dataclasses import dataclass, replace

import torch

from inductor_debug.stages.numerics.formats import widen
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement, Reason, over, over_floors

LUCK = 1.5
"""A first draw of the noise is taken for a lucky one where all draws together have so many times its floor."""

LEEWAY = 1.5
"""Of an output or a buffer the decomposed reference's noise counts up to so many times eager's own. With more, and
``factor`` 4, an error of 8 times eager's floor might be no defect."""

SUMS = ("loss", "gradient", "parameter")
"""Kinds of tensors that are sums over all else, or follow from them: there the decomposed reference's noise counts
whole."""

NOTHING = 2.0**-20
"""Gold below this share of the noise is rounding of float64 (2**-53) where the noise is at least float32's (2**-24)."""

UNEXPLAINED = 0.01
"""Of the sum of squared errors, so much may lie beyond what the jumps and the noise allow at each element."""


@dataclass
class PerturbedFloor:
    """A row that the floor called a defect, with what the draws so far showed. That is its noise, that of the
    decomposed reference, the largest jump, the largest at each element, and the most that noise or a jump has along
    gold."""

    row: TensorComparison
    judgement: Judgement
    squares: float
    maximum: float
    draws: int = 1
    other_squares: float = 0.0
    other_maximum: float = 0.0
    others: int = 0
    gold_rms: float = 0.0
    jump_rms: float = 0.0
    jump_max: float = 0.0
    jumps: torch.Tensor | None = None
    gain: float = 0.0

    @classmethod
    def of(cls, row: TensorComparison) -> "PerturbedFloor":
        """Begun with the noise of the one run that gave the row its floor."""
        assert row.floor_rms is not None and row.floor_max is not None
        return cls(row, row.judgement, row.floor_rms**2, row.floor_max)

    @property
    def rms(self) -> float:
        return math.sqrt(self.squares / self.draws)

    def floors(self) -> tuple[float, float]:
        """RMS and maximum of the noise that is granted."""
        assert self.row.floor_rms is not None and self.row.floor_max is not None
        other_rms = math.sqrt(self.other_squares / self.others) if self.others else 0.0
        pairs = (self.row.floor_rms, self.rms, other_rms), (self.row.floor_max, self.maximum, self.other_maximum)
        limited = self.row.kind not in SUMS and self.gold_rms > other_rms * NOTHING
        leeway = LEEWAY if limited else math.inf
        rms, maximum = (
            max(own if own >= LUCK * first else first, min(other, leeway * max(first, own)))
            for first, own, other in pairs
        )
        return rms, maximum

    @property
    def jumped(self) -> bool:
        """Whether float64 jumped by more than the curvature of a smooth model gives."""
        assert self.row.factor is not None
        return max(over(self.jump_rms, self.rms), over(self.jump_max, self.maximum)) > self.row.factor

    def add_decomposed(self, decomposed: object, above: object) -> None:
        """Add the noise of a draw's decomposed reference against its gold."""
        if not isinstance(decomposed, torch.Tensor) or not isinstance(above, torch.Tensor):
            return
        if decomposed.shape != above.shape:
            return
        exact = widen(above).to(decomposed.device)
        noise = (widen(decomposed) - exact).abs()
        self.gold_rms = max(self.gold_rms, exact.abs().square().mean().sqrt().item())
        if bool(noise.isfinite().all()):
            self.other_squares += noise.square().mean().item()
            self.other_maximum = max(self.other_maximum, noise.max().item())
            self.others += 1

    def take_in(self, tensors: list[object]) -> bool:
        """Take in a draw's reference, above and below, then gold and test, and judge the row. True for a jump."""
        values = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        if len(values) < 5 or len({tensor.shape for tensor in values}) > 1:
            return False
        reference, above, below, gold, test = (widen(tensor).to(values[-1].device) for tensor in values)
        noise, second = reference - above, above + below - 2 * gold
        self.gain = max(self.gain, _gain(noise, gold), _gain(second, gold))
        noise, second = noise.abs(), second.abs()
        if not bool(noise.isfinite().all() & second.isfinite().all()):
            return False
        self.squares += noise.square().mean().item()
        self.maximum = max(self.maximum, noise.max().item())
        self.draws += 1
        rms, maximum = second.square().mean().sqrt().item(), second.max().item()
        self.jump_rms, self.jump_max = max(self.jump_rms, rms), max(self.jump_max, maximum)
        self.jumps = second if self.jumps is None else torch.maximum(self.jumps, second)
        self._judge(test - gold, gold)
        return self.jumped

    def _judge(self, error: torch.Tensor, gold: torch.Tensor) -> None:
        row = self.row
        assert row.factor is not None and row.error_rms is not None and row.error_max is not None
        rms, maximum = self.floors()
        ratio, bound = over_floors(row.error_rms, row.error_max, rms, maximum)
        if ratio <= row.factor:
            self.judgement = replace(
                row.judgement,
                verdict="within_floor",
                bound=bound,
                message=(
                    f"error against gold is {row.ratio:.3g} times one eager run's noise, {ratio:.3g} times "
                    f"that of {self.draws} runs at weights and inputs some units of roundoff apart, plain sums included"
                ),
                floor_rms=rms,
                floor_max=maximum,
                ratio=ratio,
                resolution=row.resolution_of_floor(rms),
                reason=Reason.PERTURBED_NOISE,
            )
            return
        self.judgement = replace(
            row.judgement,
            message=(
                f"{row.message}; {ratio:.3g} times that of {self.draws} runs at weights and inputs some units of "
                "roundoff apart, plain sums included"
            ),
            reason=Reason.PERTURBED_NOISE,
        )
        if not self.jumped or self.jumps is None:
            return
        allowed = (self.jumps + maximum).mul_(row.factor)
        beyond = (error.abs() - allowed).clamp_(min=0).square().sum() > UNEXPLAINED * error.abs().square().sum()
        if bool(beyond) or _gain(error, gold) > row.factor * self.gain:
            return
        beside, _ = over_floors(row.error_rms, row.error_max, max(rms, self.jump_rms), max(maximum, self.jump_max))
        if beside <= row.factor:
            self.judgement = replace(
                row.judgement,
                verdict="within_floor",
                bound="conditioning",
                message=(
                    f"error against gold is {row.ratio:.3g} times the noise, but float64 itself jumps there where "
                    f"weights and inputs move by rounding (a branch, or 0 / 0), and the error is {beside:.3g} times "
                    "the jump"
                ),
                resolution=row.resolution_of_floor(max(rms, self.jump_rms)),
                reason=Reason.JUMP,
            )


def _gain(difference: torch.Tensor, gold: torch.Tensor) -> float:
    """How much of ``difference`` is ``gold`` over again: |<difference, gold>| / <gold, gold>; not finite becomes 0."""
    found = (difference.flatten() @ gold.flatten().conj()).abs() / gold.abs().square().sum()
    return float(found.nan_to_num(nan=0.0, posinf=0.0))
