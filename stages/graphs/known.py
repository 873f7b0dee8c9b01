"""Arithmetic of numbers of which one may not be known."""

import math
from collections.abc import Iterable


def known_total(sizes: Iterable[int | None]) -> int | None:
    """The sum of sizes; None where one of them is not known."""
    known = list(sizes)
    return None if None in known else sum(known)  # type: ignore[arg-type]


def known_product(sizes: Iterable[int | None]) -> int | None:
    """The product of sizes; None where one of them is not known."""
    known = list(sizes)
    return None if None in known else math.prod(known)  # type: ignore[arg-type]
