"""The worst elements of a tensor, kept as plain numbers until somebody looks at them."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, overload

from inductor_debug.stages.artifacts.comparison import Worst
from inductor_debug.stages.numerics.readers import unravel

Candidate = tuple[float, int, Any, Any]
"""One of the worst elements: the error's negative (so that the worst sorts first), its flat index, and both values."""


class WorstFirst(Sequence[Worst]):
    """The worst elements, worst first; most are never looked at, so that each is made when it is asked for.

    Args:
        shape: of the tensor.
        candidates: in order.
    """

    __slots__ = ("_numbers", "_shape")

    def __init__(self, shape: Sequence[int] = (), candidates: Sequence[Candidate] = ()) -> None:
        self._shape, self._numbers = shape, tuple(chain.from_iterable(candidates))  # one object for the collector

    @property
    def first(self) -> Candidate | None:
        """The worst of all, as the number that it is, where there is one."""
        return self._numbers[:4] if self._numbers else None

    def __len__(self) -> int:
        return len(self._numbers) // 4

    @overload
    def __getitem__(self, place: int) -> Worst: ...

    @overload
    def __getitem__(self, place: slice) -> list[Worst]: ...

    def __getitem__(self, place: int | slice) -> Worst | list[Worst]:
        if isinstance(place, slice):
            return list(self)[place]
        error, flat, reference, test = self._numbers[4 * range(len(self))[place] :][:4]
        return Worst(unravel(flat, self._shape), reference, test, -error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        return repr(list(self))


NONE = WorstFirst()
