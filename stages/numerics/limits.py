"""What the comparison's numeric arguments may be, in the library."""

import dataclasses
import functools
from dataclasses import dataclass

from inductor_debug.models.errors import shown
from inductor_debug.models.options import Range, range_of, real, whole


@dataclass
class ComparisonLimits:
    """What a comparison of two tensors takes.

    Attributes:
        factor: error over floor above which a tensor is a defect.
        atol, rtol: tolerances; when set they decide instead of the floor.
        worst: how many worst elements are kept for a tensor.
    """

    factor: float = real(4.0, above=0)
    atol: float | None = real(None, example="1e-5")
    rtol: float | None = real(None, example="1e-5")
    worst: int = whole(8)


LIMITS: dict[str, Range] = {
    item.name: found for item in dataclasses.fields(ComparisonLimits) if (found := range_of(item))
}
LIMITS["roundoff"] = LIMITS["atol"]


def check_values(**values: object) -> None:
    """Raise ValueError for the first of the ``values`` that is outside its argument's range. None is in every one."""
    for name, value in values.items():
        if value is not None and not _holds(name, value):
            raise ValueError(f"{name}: got {shown(value)}; valid: {LIMITS[name].valid(value)}")


def _holds(name: str, value: object) -> bool:
    """Of the types that most values are, what was found is kept: to look takes longer than to compare small tensors."""
    if isinstance(value, (int, float)):
        return _known(name, type(value).__name__, value)
    return LIMITS[name].holds(value)


@functools.lru_cache(maxsize=256)
def _known(name: str, kind: str, value: float) -> bool:
    """``kind``: the value's type, since 1 and 1.0, and True, are equal."""
    return LIMITS[name].holds(value)
