"""The reference, and gold, at parameters and inputs that are perturbed by some units of roundoff."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import InternalError, UserError
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.decomposed import Decomposed

log = logging.getLogger(__name__)

MOST_UNITS, MOST_RELATIVE = 64.0, 0.01
"""The perturbation: so many units of roundoff, some three times the noise of a deep model's own rounding. It is no
larger a share of a value than this, so that a narrow format's perturbation stays a small one."""

Runner = Callable[[str, Case], sides.Side]
"""Gives one side of a comparison: from its name, and the case to run as it stands."""


@dataclass
class Draw:
    """One perturbation: the reference's results, and gold's at the same and at the opposite perturbation; and the
    reference's decomposed, without leaves where that could not be run."""

    reference: sides.Leaves
    above: sides.Leaves
    below: sides.Leaves
    decomposed: sides.Leaves


def one_step(name: str, case: Case) -> sides.Side:
    """What a perturbed case is run for, where nobody says otherwise."""
    return sides.run_side(name, case, lambda: case.module)


def amplitude(roundoff: float) -> float:
    """Largest relative change of a perturbed value."""
    return min(MOST_UNITS * roundoff, MOST_RELATIVE)


def draw(base: Case, ideal: Case, index: int, run: Runner) -> Draw | None:
    """The reference at perturbed parameters and inputs, gold at the same values, and gold at the mirrored ones.

    Whole numbers stay: a mask's 1 or an index is exact, and what compares it would jump for no rounding of a backend's.

    None where a side raised, or where gold drew other random numbers than the reference.

    Args:
        base: the reference's case; left as found.
        ideal: gold's, in float64; left at the mirrored values.
        index: number of the draw, added to the case's seed.
        run: gives one side.
    """
    most = amplitude(base.unit_roundoff)
    generator = torch.Generator().manual_seed(base.seed + index)
    with base.preserved():
        with torch.no_grad():
            for mine, exact in zip(_floating(base), _floating(ideal), strict=True):
                noise = torch.rand(mine.shape, generator=generator, dtype=torch.float32).mul_(2 * most).sub_(most)
                noise = noise.add_(1).to(mine.device)
                mine.copy_(torch.where(mine == mine.round(), mine, mine * noise))
                exact.copy_(mine)
        reference = run("perturbed reference", base)
        decomposed = _decomposed(base, run)
    above = run("perturbed gold", ideal)
    with torch.no_grad():
        for mine, exact in zip(_floating(base), _floating(ideal), strict=True):
            exact.neg_().add_(mine.to(exact.dtype), alpha=2)
    below = run("mirrored gold", ideal)
    if reference.error or above.error or below.error:
        return None
    if reference.drew and {reference.generator} != {above.generator, below.generator}:
        return None
    comparable = not decomposed.error and decomposed.generator == reference.generator
    return Draw(reference.leaves, above.leaves, below.leaves, decomposed.leaves if comparable else {})


def _decomposed(base: Case, run: Runner) -> sides.Side:
    """The reference as a compiler may compute it; an exception there is no finding about the model."""
    try:
        with Decomposed():
            return run("decomposed reference", base)
    except (UserError, InternalError, MemoryError, torch.OutOfMemoryError):
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
