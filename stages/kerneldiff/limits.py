"""What the comparison's numeric options may be, in the library and as ``stages.kerneldiff.NAME``. Free of torch."""

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

from models.errors import ConfigurationError
from stages.kerneldiff.config import KernelDiffConfig


class Limit(NamedTuple):
    """What an option may be: in words, as a test, and one such value. None is always valid."""

    valid: str
    holds: Callable[[Any], bool]
    example: str


def _whole(least: int, example: str) -> Limit:
    return Limit(
        f"a whole number from {least}", lambda value: isinstance(value, Integral) and int(value) >= least, example
    )


_ABOVE_ZERO = ("a finite number above 0", lambda value: 0 < value < math.inf)
_FROM_ZERO = ("a finite number from 0", lambda value: 0 <= value < math.inf)

LIMITS = {
    "factor": Limit(*_ABOVE_ZERO, "4"),
    "atol": Limit(*_FROM_ZERO, "1e-5"),
    "rtol": Limit(*_FROM_ZERO, "1e-5"),
    "roundoff": Limit(*_FROM_ZERO, "2**-8"),
    "worst": _whole(0, "8"),
    "perturbations": _whole(0, "12"),
    "repeats": _whole(1, "5"),
    "steps": _whole(0, "3"),
    "learning_rate": Limit(*_ABOVE_ZERO, "0.01"),
}


def check_values(**values: Any) -> None:
    """Raise ValueError for the first of the ``values`` that is outside its option's limit."""
    for name, value in values.items():
        if value is not None and not LIMITS[name].holds(value):
            raise ValueError(f"{name}: got {value!r}; valid: {LIMITS[name].valid}")


def check_options(config: KernelDiffConfig) -> None:
    """Raise ConfigurationError for the first numeric option of the stage that is outside its limit."""
    for name in (name for name in LIMITS if hasattr(config, name)):
        try:
            check_values(**{name: getattr(config, name)})
        except ValueError as error:
            key = f"stages.kerneldiff.{name}"
            raise ConfigurationError(f"stages.kerneldiff.{error}.\nTry: {key}={LIMITS[name].example}") from error
