"""Runs that round otherwise, made once for many test sides of one case."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff import bias, other_rounding


class _Everything(tuple[tuple[str, str], ...]):
    """All leaves: what another question wants of the same run is not known yet."""

    def __contains__(self, _: object) -> bool:
        return True


@contextmanager
def kept_draws(case: Case) -> Iterator[None]:
    """Inside, each reference of the case that rounds otherwise is run once, and so is each pair of moved golds.

    The verdicts are those without it: the runs depend on the case and on their number alone.

    Args:
        case: whose weights and inputs are the same whenever something is judged.
    """
    originals = other_rounding.rounded_reference, other_rounding.mirrored_gold
    kept: dict[tuple[str, int], Any] = {}

    def once(key: tuple[str, int], base: Case, make: Callable[[], Any]) -> Any:
        assert base is case
        if key not in kept:
            kept[key] = make()
        return kept[key]

    def reference(base: Case, number: int, run: Any) -> Any:
        return once(("rounded", number), base, lambda: originals[0](base, number, run))

    def moved(base: Case, ideal: Case, number: int, _: Any, run: Any) -> Any:
        return once(("moved", number), base, lambda: originals[1](base, ideal, number, _Everything(), run))

    other_rounding.rounded_reference = bias.rounded_reference = reference
    other_rounding.mirrored_gold = moved
    try:
        yield
    finally:
        other_rounding.rounded_reference = bias.rounded_reference = originals[0]
        other_rounding.mirrored_gold = originals[1]
