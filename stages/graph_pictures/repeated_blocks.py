"""Which parts of a graph have the same structure."""

from collections.abc import Sequence
from typing import Any

from inductor_debug.stages.graph_pictures.flow import Flow


class Likeness:
    """Compares parts of one graph. Each part is a list of operation numbers in execution order."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._known: dict[tuple[tuple[int, ...], int], tuple[Any, ...]] = {}

    def same(self, numbers: Sequence[int], depth: int) -> tuple[Any, ...]:
        """What is equal for parts with the same operations, arguments, shapes and wiring; hashable.

        Args:
            numbers: the part.
            depth: parts of the path that are the part's own name, e.g. 3 for ``encoder.layer.0``.
        """
        key = (tuple(numbers), depth)
        if key not in self._known:
            self._known[key] = self._signature(numbers, depth)
        return self._known[key]

    def kind(self, numbers: Sequence[int], depth: int) -> tuple[Any, ...]:
        """What is equal for parts with the same operations in the same modules, whatever the sizes; hashable."""
        return tuple(line[:2] for line in self.same(numbers, depth))

    def _signature(self, numbers: Sequence[int], depth: int) -> tuple[Any, ...]:
        inner = {self.flow.operations[number].name: position for position, number in enumerate(numbers)}
        outer: dict[str, int] = {}
        known = {node.name: node for number in numbers for node in self.flow.inputs[number]}
        operations = self.flow.operations

        def reference(name: str) -> Any:
            if name in inner:
                return ("inner", inner[name])
            node = known.get(name)
            if node is None and name in self.flow.number:
                node = operations[self.flow.number[name]]
            place = outer.setdefault(name, len(outer))
            return ("outer", place, _tensors(node) if node is not None else ())

        def hashable(value: Any) -> Any:
            if isinstance(value, dict):
                if len(value) == 1 and isinstance(value.get("node"), str):
                    return reference(value["node"])
                return tuple((key, hashable(item)) for key, item in value.items())
            return tuple(hashable(item) for item in value) if isinstance(value, list) else (type(value).__name__, value)

        lines = []
        for number in numbers:
            node = operations[number]
            arguments = (hashable(node.args), hashable(node.kwargs), tuple(reference(name) for name in node.inputs))
            lines.append((node.target, self.flow.paths[number][depth:], arguments, _tensors(node)))
        return tuple(lines)


def _tensors(node: Any) -> tuple[Any, ...]:
    return tuple((tuple(tensor.shape), tensor.dtype, tuple(tensor.stride)) for tensor in node.outputs)
