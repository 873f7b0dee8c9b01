"""Gold at parameters and inputs that are moved by some units of roundoff, and by the opposite."""

from collections.abc import Callable, Collection, Iterator

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.sides import running as sides

MOST_UNITS, MOST_RELATIVE = 64.0, 0.01
"""A value is moved by so many units of roundoff, some three times the noise of a deep model's own rounding. It is no
larger a share of a value than this, so that a narrow format's move stays a small one."""

Runner = Callable[[str, Case], sides.Side]
"""Gives one side of a comparison: from its name, and the case to run as it stands."""


def one_step(name: str, case: Case) -> sides.Side:
    """What a case is run for, where nobody says otherwise."""
    return sides.run_side(name, case, lambda: case.module)


def amplitude(roundoff: float) -> float:
    """Largest relative change of a moved value."""
    return min(MOST_UNITS * roundoff, MOST_RELATIVE)


def mirrored_gold(
    base: Case, ideal: Case, index: int, wanted: Collection[tuple[str, str]], run: Runner = one_step
) -> tuple[sides.Leaves, sides.Leaves] | None:
    """Gold's results at moved parameters and inputs, and at the mirrored ones.

    Whole numbers stay: a mask's 1 or an index is exact, and what compares it would jump for no rounding of a backend's.

    None where a side raised, or where both drew other random numbers.

    Args:
        base: the reference's case.
        ideal: gold's, in float64; left at the mirrored values.
        index: number of the draw, added to the case's seed.
        wanted: kind and place of the leaves that are given: in training all of them take as much as gold's weights.
        run: gives one side.
    """
    most = amplitude(base.unit_roundoff)
    generator = torch.Generator().manual_seed(base.seed + index)
    with torch.no_grad():
        for mine, exact in zip(_floating(base), _floating(ideal), strict=True):
            noise = torch.rand(mine.shape, generator=generator, dtype=torch.float64).mul_(2 * most).sub_(most)
            exact.copy_(mine)
            exact.mul_(torch.where(mine == mine.round(), 0, noise.to(mine.device)).add_(1))
    above = run("moved gold", ideal)
    higher = _only(above, wanted)
    with torch.no_grad():
        for mine, exact in zip(_floating(base), _floating(ideal), strict=True):
            exact.neg_().add_(mine.to(exact.dtype), alpha=2)
    below = run("mirrored gold", ideal)
    lower = _only(below, wanted)
    if above.error or below.error or (above.drew and above.generator != below.generator):
        return None
    return higher, lower


def _only(side: sides.Side, wanted: Collection[tuple[str, str]]) -> sides.Leaves:
    """The leaves that are wanted; the side is left without any."""
    leaves = {
        kind: {place: leaf for place, leaf in found.items() if (kind, place) in wanted}
        for kind, found in side.leaves.items()
    }
    side.leaves, side.returned = {}, None
    return leaves


def _floating(case: Case) -> Iterator[torch.Tensor]:
    """Parameters and inputs that hold floating-point numbers, each once."""
    seen: set[int] = set()
    for tensor in [*case.module.parameters(), *case.named_inputs().values()]:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor
