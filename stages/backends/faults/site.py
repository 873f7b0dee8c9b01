"""Where a fault is planted, and what a fault is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from inductor_debug.models.errors import ConfigurationError


@dataclass(frozen=True)
class Site:
    """Where a fault is planted, while it is traced.

    Attributes:
        target: the operation.
        args, kwargs: what it was called with.
        value: what it gave (of several outputs, the chosen one).
        output: which output, None for an operation of one.
        strength: as the fault defines it.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Tensor
    output: int | None
    strength: float

    @property
    def packet(self) -> Any:
        """``aten.sum`` of ``aten.sum.dim_IntList``; None of what is no operator."""
        return getattr(self.target, "overloadpacket", None)

    @property
    def count(self) -> int:
        """The strength of a fault that counts elements."""
        return int(self.strength)

    def again(self, args: Sequence[Any]) -> Tensor:
        """The chosen output of the operation called with other arguments."""
        result = self.target(*args, **self.kwargs)
        return result if self.output is None else result[self.output]


@dataclass(frozen=True)
class Fault:
    """A way to be wrong.

    Attributes:
        meaning: what the node then gives, in one line; ``s`` is the strength.
        apply: from the right value to the wrong one, of the same shape and dtype, in operations that can be traced.
        strength: by default.
        whole: True where the strength is a count, 1 or more.
    """

    meaning: str
    apply: Callable[[Site], Tensor]
    strength: float = 1
    whole: bool = True


def refused(fault: str, site: Site, why: str, valid: str) -> ConfigurationError:
    """That a fault can't be at a node.

    Args:
        fault: its name.
        site: the node.
        why: what the node lacks.
        valid: nodes where it can be.
    """
    return ConfigurationError(
        f"backend.options.fault: got {fault!r} at {site.target}, but {why}; valid: {valid}.\n"
        "Try: backend.options.node=NODE, one of those, or backend.options.fault=scale"
    )


def require_inexact(fault: str, site: Site) -> None:
    if not (site.value.is_floating_point() or site.value.is_complex()):
        raise refused(fault, site, f"its value is {site.value.dtype}", "a node of floating or complex values")


def require_floating(fault: str, site: Site) -> None:
    if not site.value.is_floating_point():
        raise refused(fault, site, f"its value is {site.value.dtype}", "a node of floating-point values")


def valid_strength(name: str, fault: Fault, given: float | None) -> float:
    """The strength that was given, or the fault's own; ConfigurationError for one that it can't have."""
    if given is None:
        return fault.strength
    fine = isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)
    if fine and (not fault.whole or (given >= 1 and given == int(given))):
        return given
    raise ConfigurationError(
        f"backend.options.strength: got {given!r} for {name} ({fault.meaning}); valid: "
        f"{'a whole number, 1 or more' if fault.whole else 'a finite number'}.\n"
        f"Try: backend.options.strength={fault.strength}"
    )
