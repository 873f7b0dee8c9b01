"""Values of many regions of one run, in which each operation is computed once.

Regions overlap: each of a hundred gradients that a compiled graph gives comes from nearly all of that graph. What an
operation gives depends on what it receives alone. So regions that receive the same share it, and what nothing takes any
more is let go of.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.judging.evaluation import Evaluate, Unknown, taken_by, value_of
from inductor_debug.stages.localize.runs.regions import Region, Seen

Key = tuple[fx.Node, str | None]
"""A node, and the kernel whose registers it is computed from; None where it comes from what was seen."""


@dataclass(frozen=True)
class Deviation:
    """What an operation does that it should not: an error of its own, whatever it receives.

    Attributes:
        value: as the backend computed it from what it received.
        error: that less float64 of the same; None where the value is not floating.
    """

    value: torch.Tensor
    error: torch.Tensor | None

    def of(self, right: Any) -> Any:
        """What the operation gives where ``right`` is right; of that dtype, but for values that are not floating."""
        if self.error is None or not isinstance(right, torch.Tensor) or not right.is_floating_point():
            return self.value
        error = self.error.reshape(right.shape)
        wrong = torch.where(error.isfinite(), right.double() + error, self.value.reshape(right.shape).double())
        return wrong.to(right.dtype)


Deviations = Mapping[str, Deviation]
"""By name of the node."""

NOTHING: Deviations = {}


class Sweep:
    """Computes the values of regions, each asked for once, in the order in which they are given.

    Args:
        seen: the run.
        regions: of it, whose values are asked for.
        evaluate: of operators.
        deviations: of members.
    """

    def __init__(
        self, seen: Seen, regions: Sequence[Region], evaluate: Evaluate, deviations: Deviations = NOTHING
    ) -> None:
        self._seen, self._evaluate, self._deviations = seen, evaluate, deviations
        self._takes: dict[Key, list[tuple[fx.Node, Key | None]]] = {}
        self._waiting: Counter[Key] = Counter()
        self._regions: Counter[Key] = Counter()  # that are still to come
        self._values: dict[Key, Any] = {}
        for region in regions:
            for key, sources in _keys(region, seen):
                self._regions[key] += 1
                if key not in self._takes:
                    self._takes[key] = sources
                    self._waiting.update(source for _, source in sources if source is not None)
            self._waiting[key] += 1

    def value(self, region: Region) -> Any:
        """The region's value, or :class:`Unknown` where it can't be computed."""
        for key, _ in _keys(region, self._seen):
            self._regions[key] -= 1
            sources = self._takes.pop(key, None)
            if sources is not None:
                self._values[key] = self._computed(key[0], sources)
        result = self._values[key]
        self._let_go(key)
        return result

    def skip(self, region: Region) -> None:
        """Go on without the region's value."""
        for key, _ in _keys(region, self._seen):
            self._regions[key] -= 1
            if not self._regions[key]:
                self._forget(self._takes.pop(key, []))
        self._let_go(key)

    def _computed(self, node: fx.Node, sources: Sequence[tuple[fx.Node, Key | None]]) -> Any:
        values = {source: self._received(source) if key is None else self._values[key] for source, key in sources}
        try:
            result = value_of(node, values, self._seen.owner, self._evaluate, self._seen.drawn)
        except Unknown as error:
            result = error
        else:
            if node.name in self._deviations:
                result = self._deviations[node.name].of(result)
        self._forget(sources)
        return result

    def _received(self, node: fx.Node) -> Any:
        known = self._seen.inputs if node.op == "placeholder" else self._seen.values
        return known[node.name] if node.name in known else Unknown(f"{node.name} was not seen")

    def _forget(self, sources: Sequence[tuple[fx.Node, Key | None]]) -> None:
        """An operation that takes these is computed, or not any more."""
        for _, key in sources:
            if key is not None:
                self._let_go(key)

    def _let_go(self, key: Key) -> None:
        self._waiting[key] -= 1
        if not self._waiting[key]:
            self._values.pop(key, None)


def _keys(region: Region, seen: Seen) -> Iterator[tuple[Key, list[tuple[fx.Node, Key | None]]]]:
    """The members of a region, in order, and where each takes its values from: None where they were received."""
    received = set(region.received)
    keys: dict[fx.Node, Key] = {}
    for node in region.members:
        inside = [source for source in taken_by(node) if source not in received]
        registers = any(source.name in seen.values or keys[source][1] is not None for source in inside)
        keys[node] = node, region.kernel if registers else None
        yield keys[node], [(source, keys.get(source)) for source in taken_by(node)]
