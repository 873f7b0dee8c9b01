"""Is a tensor a defect, or was its noise floor unlucky? Asked only of what would otherwise be called a defect.

One eager run is one draw of the rounding noise, and it misleads in two ways.

*Luck.* Of a tensor of few elements (a mean, a score) the one draw may come out near zero: clean Inductor in float32 was
called a defect for 17 of 200 seeds of a scalar mean. So the reference and its gold are run again with parameters and
inputs perturbed by some units of roundoff, both by the same; each such pair is another draw of the same noise, and the
floor becomes the RMS, and the maximum, over all draws, where that is much more.

*Another algorithm.* Eager adds some sums up in a wider format, so that its floor is the result's last bit, which code
that adds in the dtype itself can't meet. Each perturbed reference is therefore run a second time, decomposed and with
plain sums (:mod:`stages.kerneldiff.decomposed`). Where that is noisier the floor follows it, up to :data:`LEEWAY`; and
without that limit where gold is zero but for float64's own rounding: the gradient of a bias before a normalization.

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

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from models.case import Case
from models.errors import UserError
from stages.kerneldiff import sides
from stages.kerneldiff.comparison import TensorComparison
from stages.kerneldiff.decomposed import Decomposed
from stages.kerneldiff.verdict import FLOORS, over, over_floors

log = logging.getLogger(__name__)

MOST_UNITS, MOST_RELATIVE = 64.0, 0.01
"""The perturbation: so many units of roundoff (some three times the noise of a deep model's own rounding), but no
larger a share of a value than this, so that a narrow format's perturbation stays a small one."""

LUCK = 1.5
"""A first draw of the noise is taken for a lucky one where all draws together have so many times its floor."""

PATIENCE = 6
"""Perturbed references without a single jump after which the model is taken to be smooth."""

LEEWAY = 1.5
"""Up to so many times eager's own noise the decomposed reference's noise counts: no more, since with ``factor`` 4 an
error of 8 times eager's floor must be a defect."""

NOTHING = 2.0**-20
"""Gold below this share of the noise is rounding of float64 (2**-53) where the noise is at least float32's (2**-24)."""

LATER = " (run "
"""In the path of a row about a later run of the test side, before the run's number."""

UNEXPLAINED = 0.01
"""Of the sum of squared errors, so much may lie beyond what the jumps and the noise allow at each element."""


Runner = Callable[[str, Case], sides.Side]


@dataclass
class Draw:
    """One perturbation: the reference's results, and gold's at the same and at the opposite perturbation; and the
    reference's decomposed, without leaves where that could not be run."""

    reference: sides.Leaves
    above: sides.Leaves
    below: sides.Leaves
    decomposed: sides.Leaves


@dataclass
class Suspect:
    """A row under review: its noise over the draws so far, that of the decomposed reference, the largest jump, the
    largest at each element, and the most that noise or a jump has along gold."""

    row: TensorComparison
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

    @property
    def rms(self) -> float:
        return math.sqrt(self.squares / self.draws)

    def floors(self) -> tuple[float, float]:
        """RMS and maximum of the noise that is granted."""
        assert self.row.floor_rms is not None and self.row.floor_max is not None
        other_rms = math.sqrt(self.other_squares / self.others) if self.others else 0.0
        pairs = (self.row.floor_rms, self.rms, other_rms), (self.row.floor_max, self.maximum, self.other_maximum)
        leeway = math.inf if self.gold_rms <= other_rms * NOTHING else LEEWAY
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


def one_step(name: str, case: Case) -> sides.Side:
    """What a perturbed case is run for, where nobody says otherwise."""
    return sides.run_side(name, case, lambda: case.module)


def reconsider(
    rows: list[TensorComparison],
    base: Case,
    gold: sides.Leaves,
    test: sides.Leaves,
    *,
    draws: int,
    run: Runner = one_step,
) -> int:
    """Judge rows that the floor called a defect once more, against perturbed references.

    Args:
        rows: all rows; those that the noise of all draws explains, or a jump, become ``within_floor`` in place.
        base: the reference's case; left bit for bit as found.
        gold, test: the results of gold and of the test side.
        draws: perturbed references at most; 0 turns this off.
        run: what gives the leaves that the rows are of, from a case as it stands; leaves it as found.

    Returns:
        Number of perturbed references that were run.
    """
    suspects = [
        Suspect(row, row.floor_rms**2, row.floor_max)
        for row in rows
        if row.verdict == "defect" and row.bound in FLOORS and row.floor_rms is not None and row.floor_max is not None
    ]
    golden = base.to_gold() if suspects and draws else base
    jumped = False
    for index in range(draws):
        if not suspects or (index == PATIENCE and not jumped):
            return index
        draw = _draw(base, golden, index, run)
        if draw is None:
            return index
        for suspect in suspects:
            kind, path = suspect.row.kind, suspect.row.path
            drawn = path.partition(LATER)[0]
            sources = (draw.reference, draw.above, draw.below, gold)
            tensors = [leaves.get(kind, {}).get(drawn) for leaves in sources]
            _add_other(suspect, draw.decomposed.get(kind, {}).get(drawn), tensors[1])
            jumped |= _review(suspect, [*tensors, test.get(kind, {}).get(path)])
        suspects = [suspect for suspect in suspects if suspect.row.verdict == "defect"]
    return draws


def amplitude(roundoff: float) -> float:
    """Largest relative change of a perturbed value."""
    return min(MOST_UNITS * roundoff, MOST_RELATIVE)


def _draw(base: Case, golden: Case, index: int, run: Runner) -> Draw | None:
    """The reference at perturbed parameters and inputs, gold at the same values, and gold at the mirrored ones.

    Whole numbers stay: a mask's 1 or an index is exact, and what compares it would jump for no rounding of a backend's.

    None where a side raised, or where gold drew other random numbers than the reference. ``golden`` is left at the
    mirrored values.
    """
    most = amplitude(base.unit_roundoff)
    generator = torch.Generator().manual_seed(base.seed + index)
    with base.preserved():
        with torch.no_grad():
            for mine, exact in zip(_floating(base), _floating(golden), strict=True):
                noise = torch.rand(mine.shape, generator=generator, dtype=torch.float32).mul_(2 * most).sub_(most)
                noise = noise.add_(1).to(mine.device)
                mine.copy_(torch.where(mine == mine.round(), mine, mine * noise))
                exact.copy_(mine)
        reference = run("perturbed reference", base)
        decomposed = _decomposed(base, run)
    above = run("perturbed gold", golden)
    with torch.no_grad():
        for mine, exact in zip(_floating(base), _floating(golden), strict=True):
            exact.neg_().add_(mine.to(exact.dtype), alpha=2)
    below = run("mirrored gold", golden)
    if reference.error or above.error or below.error:
        return None
    if reference.drew and {reference.generator} != {above.generator, below.generator}:
        return None
    alike = not decomposed.error and decomposed.generator == reference.generator
    return Draw(reference.leaves, above.leaves, below.leaves, decomposed.leaves if alike else {})


def _decomposed(base: Case, run: Runner) -> sides.Side:
    """The reference as a compiler may compute it; an exception there is no finding about the model."""
    try:
        with Decomposed():
            return run("decomposed reference", base)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        log.exception("kerneldiff: the decomposed reference raised")
        return sides.Side(error=sides.describe(error))


def _floating(case: Case) -> Iterator[torch.Tensor]:
    """Parameters and inputs that hold floating-point numbers, each once."""
    seen: set[int] = set()
    for tensor in [*case.module.parameters(), *case.named_inputs().values()]:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _add_other(suspect: Suspect, decomposed: object, above: object) -> None:
    """Add the noise of a draw's decomposed reference against its gold."""
    if not isinstance(decomposed, torch.Tensor) or not isinstance(above, torch.Tensor):
        return
    if decomposed.shape != above.shape:
        return
    exact = _widen(above).to(decomposed.device)
    noise = (_widen(decomposed) - exact).abs()
    suspect.gold_rms = max(suspect.gold_rms, exact.abs().square().mean().sqrt().item())
    if bool(noise.isfinite().all()):
        suspect.other_squares += noise.square().mean().item()
        suspect.other_maximum = max(suspect.other_maximum, noise.max().item())
        suspect.others += 1


def _review(suspect: Suspect, tensors: list[object]) -> bool:
    """Add a draw's reference, above and below to what is known of a row, gold and test; judge it. True for a jump."""
    values = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if len(values) < 5 or len({tensor.shape for tensor in values}) > 1:
        return False
    reference, above, below, gold, test = (_widen(tensor).to(values[-1].device) for tensor in values)
    noise, second = reference - above, above + below - 2 * gold
    suspect.gain = max(suspect.gain, _gain(noise, gold), _gain(second, gold))
    noise, second = noise.abs(), second.abs()
    if not bool(noise.isfinite().all() & second.isfinite().all()):
        return False
    suspect.squares += noise.square().mean().item()
    suspect.maximum = max(suspect.maximum, noise.max().item())
    suspect.draws += 1
    rms, maximum = second.square().mean().sqrt().item(), second.max().item()
    suspect.jump_rms, suspect.jump_max = max(suspect.jump_rms, rms), max(suspect.jump_max, maximum)
    suspect.jumps = second if suspect.jumps is None else torch.maximum(suspect.jumps, second)
    _judge(suspect, test - gold, gold)
    return suspect.jumped


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _gain(difference: torch.Tensor, gold: torch.Tensor) -> float:
    """How much of ``difference`` is ``gold`` over again: |<difference, gold>| / <gold, gold>; not finite becomes 0."""
    found = (difference.flatten() @ gold.flatten().conj()).abs() / gold.abs().square().sum()
    return float(found.nan_to_num(nan=0.0, posinf=0.0))


def _judge(suspect: Suspect, error: torch.Tensor, gold: torch.Tensor) -> None:
    row = suspect.row
    assert row.factor is not None and row.error_rms is not None and row.error_max is not None
    rms, maximum = suspect.floors()
    ratio, bound = over_floors(row.error_rms, row.error_max, rms, maximum)
    if ratio <= row.factor:
        row.message = (
            f"error against gold is {row.ratio:.3g} times one eager run's noise, {ratio:.3g} times "
            f"that of {suspect.draws} runs at weights and inputs some units of roundoff apart, plain sums included"
        )
        row.verdict, row.bound, row.ratio = "within_floor", bound, ratio
        row.floor_rms, row.floor_max = rms, maximum
        row.resolve(rms)
        return
    if not suspect.jumped or suspect.jumps is None:
        return
    allowed = (suspect.jumps + maximum).mul_(row.factor)
    beyond = (error.abs() - allowed).clamp_(min=0).square().sum() > UNEXPLAINED * error.abs().square().sum()
    if bool(beyond) or _gain(error, gold) > row.factor * suspect.gain:
        return
    beside, _ = over_floors(row.error_rms, row.error_max, max(rms, suspect.jump_rms), max(maximum, suspect.jump_max))
    if beside <= row.factor:
        row.message = (
            f"error against gold is {row.ratio:.3g} times the noise, but float64 itself jumps there where weights and "
            f"inputs move by rounding (a branch, or 0 / 0), and the error is {beside:.3g} times the jump"
        )
        row.verdict, row.bound = "within_floor", "conditioning"
        row.resolve(max(rms, suspect.jump_rms))
