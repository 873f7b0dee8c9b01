"""A step of a case in eager with one fault planted: one tensor multiplied by 1 + the error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.sensitivity.sites import Found, Operations, Site, operation_name, scaled
from inductor_debug.stages.sides import running as sides

NAME = "planted fault"


def observed(case: Case) -> tuple[sides.Side, Found]:
    """One step without a fault, and its operations."""
    found = Found(case)
    mode = Operations(case.module, found.note)
    with mode:
        return sides.run_side(NAME, case, lambda: mode.forward), found


def planted(case: Case, site: Site, error: float) -> sides.Side | None:
    """One step with a fault; the case is left bit for bit as found. None where the step has no such place.

    Args:
        case: run in eager, as it stands.
        site: of this case, or of one whose copy it is.
        error: by how much of itself the tensor is too large.
    """
    if site.fault == "weight":
        with _wrong_weight(case, site.place, error):
            return sides.run_side(NAME, case, lambda: case.module)
    met: list[int] = []

    def wrong(direction: str, index: int, func: Any, result: Any) -> Any:
        if (direction, index, operation_name(func)) != (site.fault, site.index, site.operation):
            return result
        met.append(index)
        return scaled(result, 1 + error)

    mode = Operations(case.module, wrong)
    with mode:
        side = sides.run_side(NAME, case, lambda: mode.forward)
    return side if met else None


@contextmanager
def _wrong_weight(case: Case, name: str, error: float) -> Iterator[None]:
    """One parameter is multiplied inside, rounded once to its dtype."""
    parameter = case.module.get_parameter(name)
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.copy_(kept.to(torch.promote_types(kept.dtype, torch.float32)) * (1 + error))
    try:
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(kept)


class InFloat64:
    """The case in float64, in which an effect that rounding would hide is seen.

    Args:
        case: made into gold when it is first asked for.
    """

    SEEN = 1e-6
    """Relative change of a tensor by a fault of the largest size above which the fault has an effect: more than
    float64's rounding leaves of what cancels, less than any dtype's noise that hid it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._gold: Case | None = None
        self._right: sides.Leaves = {}

    def shows(self, site: Site, error: float) -> bool | None:
        """Whether a fault changes anything in float64; None where that can't be told."""
        if self._gold is None:
            self._gold = self._case.to_gold()
            self._right = observed(self._gold)[0].leaves
        wrong = planted(self._gold, site, error)
        if not self._right or wrong is None or wrong.error:
            return None
        return any(_changes(right, wrong.leaves.get(kind, {})) for kind, right in self._right.items())


def _changes(right: dict[str, Any], wrong: dict[str, Any]) -> bool:
    """Whether a tensor of one kind changes. One that is zero beside the others is what cancellation leaves of them."""
    pairs = [
        (leaf.double(), wrong[path].double())
        for path, leaf in right.items()
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() and path in wrong
    ]
    sizes = [_rms(leaf) for leaf, _ in pairs]
    least = max(sizes, default=0.0) * 2.0**-30
    changes = zip(pairs, sizes, strict=True)
    return any(_rms(other - leaf) > InFloat64.SEEN * max(size, least) for (leaf, other), size in changes)


def _rms(tensor: torch.Tensor) -> float:
    return tensor.square().mean().sqrt().item()
