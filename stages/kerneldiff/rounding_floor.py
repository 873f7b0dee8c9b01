"""What references that round otherwise tell about a tensor that the noise floor called a defect."""

import math
from dataclasses import dataclass, field, replace

import torch

from inductor_debug.stages.formatting import times
from inductor_debug.stages.numerics.formats import widen
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement, Reason, over, over_floors

FEW = 16
"""Elements below which the RMS of one run's noise says little: of fewer, one run may have a tenth of another's."""

UNEXPLAINED = 0.01
"""Of the sum of squared errors, so much may lie beyond what the jumps and the noise allow at each element."""


@dataclass
class RoundingFloor:
    """What references that round otherwise, and moved golds, showed of one tensor so far.

    Attributes:
        kind, place: of the tensor.
        gold: float64.
        factor: the limit on error over floor.
        noise: RMS and maximum of each run's distance from gold, eager's own first.
        jump_rms, jump_max: of the largest jump of gold.
        jumps: the largest at each element, of gold and of the runs.
        gain: the most that noise or a jump has along gold.
    """

    kind: str
    place: str
    gold: torch.Tensor
    factor: float
    noise: list[tuple[float, float]]
    jump_rms: float = 0.0
    jump_max: float = 0.0
    jumps: torch.Tensor | None = field(default=None, repr=False)
    gain: float = 0.0

    @classmethod
    def of(cls, row: TensorComparison, gold: torch.Tensor) -> "RoundingFloor":
        """Begun with the noise of the one run that gave the row its floor."""
        assert row.floor_rms is not None and row.floor_max is not None and row.factor is not None
        return cls(row.kind, row.place, widen(gold), row.factor, [(row.floor_rms, row.floor_max)])

    def floors(self) -> tuple[float, float]:
        """RMS and maximum over the runs that took no other branch: those within ``factor`` times the quietest."""
        least = min(rms for rms, _ in self.noise)
        few = self.gold.numel() < FEW
        quiet = [both for both in self.noise if few or both[0] <= self.factor * least]
        return math.sqrt(sum(rms**2 for rms, _ in quiet) / len(quiet)), max(maximum for _, maximum in quiet)

    def add(self, reference: object) -> None:
        """Add a reference's distance from gold."""
        noise = self._apart(reference)
        if noise is None:
            return
        self._take_in(noise)
        self.noise.append((noise.square().mean().sqrt().item(), noise.abs().max().item()))

    def add_jump(self, above: object, below: object) -> bool:
        """Add gold at weights moved up and down. True where float64 jumps."""
        up, down = self._apart(above), self._apart(below)
        if up is not None and down is not None:
            second = up + down
            self._take_in(second)
            rms, maximum = second.square().mean().sqrt().item(), second.abs().max().item()
            self.jump_rms, self.jump_max = max(self.jump_rms, rms), max(self.jump_max, maximum)
        return self.jumped

    @property
    def jumped(self) -> bool:
        """Whether gold jumped by more than the curvature of a smooth model gives."""
        rms, maximum = self.floors()
        return max(over(self.jump_rms, rms), over(self.jump_max, maximum)) > self.factor

    @property
    def branches(self) -> bool:
        """Whether gold jumped, or a run took another branch than the rest."""
        least = min(rms for rms, _ in self.noise)
        return self.jumped or any(rms > self.factor * least for rms, _ in self.noise)

    def explains(self, row: TensorComparison) -> bool:
        """Whether the noise alone is as large as a row's error."""
        return self._ratio(row)[0] <= self.factor

    def judged(self, row: TensorComparison, test: object) -> Judgement:
        """The verdict on a row of this tensor that its own floor made a defect.

        Args:
            row: of a comparison with the same reference and gold.
            test: its tensor on the test side.
        """
        if len(self.noise) == 1 or row.error_rms is None or row.error_max is None:
            return row.judgement
        rms, maximum = self.floors()
        ratio, bound = self._ratio(row)
        told = f"{times(ratio)} times the noise of {len(self.noise)} runs that round otherwise (limit {self.factor:g})"
        if ratio <= self.factor:
            return replace(
                row.judgement,
                verdict="within_floor",
                bound=bound,
                message=f"the error is {times(row.ratio)} times one eager run's noise, and {told}",
                floor_rms=rms,
                floor_max=maximum,
                ratio=ratio,
                resolution=row.resolution_of_floor(rms),
                reason=Reason.OTHER_ROUNDING,
            )
        excused = self._excused(row, test, rms, maximum)
        return excused or replace(row.judgement, message=f"{row.message}; {told}", reason=Reason.OTHER_ROUNDING)

    def _ratio(self, row: TensorComparison) -> tuple[float, str]:
        """A row's error over the floors, and the bound that it belongs to."""
        if row.error_rms is None or row.error_max is None:
            return math.inf, row.bound
        return over_floors(row.error_rms, row.error_max, *self.floors())

    def _excused(self, row: TensorComparison, test: object, rms: float, maximum: float) -> Judgement | None:
        """The verdict where the error is at most ``factor`` times the largest jump, of gold's or of a run's.

        Args:
            row, test: see :meth:`judged`.
            rms, maximum: the noise of the runs that took no other branch.
        """
        error = self._apart(test)
        if error is None or self.jumps is None or not self.branches:
            return None
        allowed = (self.jumps + maximum).mul_(self.factor)
        beyond = (error.abs() - allowed).clamp_(min=0).square().sum() > UNEXPLAINED * error.abs().square().sum()
        if bool(beyond) or _gain(error, self.gold) > self.factor * self.gain:
            return None
        assert row.error_rms is not None and row.error_max is not None
        levels = [(rms, maximum), (self.jump_rms, self.jump_max), *self.noise]
        most = tuple(max(level) for level in zip(*levels, strict=True))
        ratio, _ = over_floors(row.error_rms, row.error_max, *most)
        if ratio > self.factor:
            return None
        return replace(
            row.judgement,
            verdict="within_floor",
            bound="conditioning",
            message=(
                f"the error is {times(row.ratio)} times the noise, but right computations jump there where values move "
                f"by rounding (a branch, or 0 / 0), and the error is {times(ratio)} times the jump"
            ),
            resolution=row.resolution_of_floor(most[0]),
            reason=Reason.JUMP,
        )

    def _take_in(self, deviation: torch.Tensor) -> None:
        """Note how far a right computation, or gold's jump, goes at each element, and along gold."""
        self.gain = max(self.gain, _gain(deviation, self.gold))
        self.jumps = deviation.abs() if self.jumps is None else torch.maximum(self.jumps, deviation.abs())

    def _apart(self, other: object) -> torch.Tensor | None:
        """A tensor less gold; None where they can't be compared, or the difference is not finite."""
        if not isinstance(other, torch.Tensor) or other.shape != self.gold.shape:
            return None
        difference = widen(other).to(self.gold.device) - self.gold
        return difference if bool(difference.abs().isfinite().all()) else None


def _gain(difference: torch.Tensor, gold: torch.Tensor) -> float:
    """How much of ``difference`` is ``gold`` over again: |<difference, gold>| / <gold, gold>; not finite becomes 0."""
    found = (difference.flatten() @ gold.flatten().conj()).abs() / gold.abs().square().sum()
    return float(found.nan_to_num(nan=0.0, posinf=0.0))
