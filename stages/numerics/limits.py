"""What the comparison's numeric arguments may be, in the library. Free of torch."""

import dataclasses

from inductor_debug.models.errors import shown
from inductor_debug.models.options import Range, range_of
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig

LIMITS: dict[str, Range] = {
    item.name: found for item in dataclasses.fields(KernelDiffConfig) if (found := range_of(item))
}
LIMITS["roundoff"] = LIMITS["atol"]


def check_values(**values: object) -> None:
    """Raise ValueError for the first of the ``values`` that is outside its argument's range. None is in every one."""
    for name, value in values.items():
        if value is not None and not LIMITS[name].holds(value):
            raise ValueError(f"{name}: got {shown(value)}; valid: {LIMITS[name].valid(value)}")
