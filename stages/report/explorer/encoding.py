"""Layers and marks as the page's script reads them: numbers in columns, each text once."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from inductor_debug.stages.formatting import place, times
from inductor_debug.stages.graph_pictures.flow import Flow
from inductor_debug.stages.graph_pictures.labels import fitted, rank, short_target, tensor_words
from inductor_debug.stages.graphs.records import NodeRecord
from inductor_debug.stages.report.explorer.folding import Group, folded
from inductor_debug.stages.report.explorer.layers import KERNELS, Layer
from inductor_debug.stages.report.explorer.marks import Finding, Marks, Place
from inductor_debug.stages.report.html import anchor, shortened

LIBRARIES = ("torch.ops.", "extern_kernels.")
"""What generated code calls a library's functions by."""
LONGEST = 30
"""Characters in a box."""
FINDINGS = 6
"""Findings that the page tells of one node."""
TENSORS = 6
"""Tensors that it names of what a node makes."""

Value = TypeVar("Value")


def encoded(shown: Sequence[Layer], marks: Marks) -> dict[str, Any]:
    """What the script draws, JSON-able.

    ``texts`` and ``lines`` (the user's: text, the id of its row on the page, code) are referred to by number; -1 is
    none. ``graphs`` has for each layer ``id, title, level, of`` (the captured graph's id) and columns with an entry an
    operation: ``names, labels, targets, modules, made, reads, lines``, and ``up``, pairs of graph and operation one
    after the other. Its ``values`` are parameters, inputs and the like: name, text, operations that read them. Its
    ``tree`` has operations by number, groups as ``[title, parts]``; its ``kernels`` are ids of sources on the page.
    ``findings, errors, flops, times`` are rows that begin with graph and operation.
    """
    return _Encoder(shown).encoded(marks)


class _Index:
    """Values, each once; ``of`` gives a value's number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[Any, int] = {}

    def of(self, value: Hashable) -> int:
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return self._known[value]


class _Drawn:
    """A layer's operations as they are drawn: what takes one of several results is in the box of its maker.

    Attributes:
        numbers: of the operations, as of ``flow``.
        at: name → place among ``numbers``.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer, self.flow = layer, Flow(layer.record)
        count = len(self.flow.operations)
        self.numbers = [number for number in range(count) if not self.flow.is_item(number)]
        place_of = {number: index for index, number in enumerate(self.numbers)}
        self.at = {self.flow.operations[number].name: place_of[self._maker(number)] for number in range(count)}

    def _maker(self, number: int) -> int:
        while self.flow.is_item(number):
            number = self.flow.reads[number][0]
        return number

    def reads(self, number: int) -> list[int]:
        """Places of what an operation reads."""
        found = [self.at[self.flow.operations[read].name] for read in self.flow.reads[number]]
        return list(dict.fromkeys(found))

    def label(self, number: int) -> str:
        target = self.flow.operations[number].target
        for library in LIBRARIES:
            target = target.removeprefix(library)
        return fitted(short_target(target), LONGEST)


def boxes(layer: Layer) -> int:
    """How many operations of a layer are drawn."""
    return len(_Drawn(layer).numbers)


class _Encoder:
    def __init__(self, shown: Sequence[Layer]) -> None:
        self.drawn = [_Drawn(layer) for layer in shown]
        self.graph_of = {layer.id: index for index, layer in enumerate(shown)}
        self.texts, self.lines = _Index(), _Index()
        self.codes: dict[str, str] = {}

    def encoded(self, marks: Marks) -> dict[str, Any]:
        graphs = [self._graph(drawn) for drawn in self.drawn]
        rows = {
            "findings": [[*where, *self._findings(items)] for where, items in self._placed(marks.findings)],
            "errors": [
                [*where, self.texts.of(error.state), _finite(error.ratio), self._times(error.ratio), error.culprit]
                for where, error in self._placed(marks.errors)
            ],
            "flops": [[*where, flops] for where, flops in self._placed(marks.flops)],
            "times": [[*where, *time] for where, time in self._placed(marks.times)],
        }
        lines = [[shortened(place(line)), anchor(line), self.codes.get(line, "")] for line in self.lines.values]
        return {"texts": self.texts.values, "lines": lines, "graphs": graphs, **rows}

    def _graph(self, drawn: _Drawn) -> dict[str, Any]:
        layer, flow = drawn.layer, drawn.flow
        nodes = [flow.operations[number] for number in drawn.numbers]
        found = {
            "id": layer.id,
            "title": layer.title,
            "level": layer.level,
            "of": layer.graph,
            "names": [node.name for node in nodes],
            "labels": [self.texts.of(drawn.label(number)) for number in drawn.numbers],
            "targets": [self.texts.of(node.target) for node in nodes],
            "modules": [self.texts.of(node.module) for node in nodes],
            "made": [self.texts.of(_made(node)) for node in nodes],
            "reads": [drawn.reads(number) for number in drawn.numbers],
            "values": self._values(drawn),
            "lines": [self._line(layer, node) for node in nodes],
            "up": [[value for pair in self._up(layer, node) for value in pair] for node in nodes],
            "tree": _tree(folded(flow, drawn.label), {number: index for index, number in enumerate(drawn.numbers)}),
        }
        if layer.level == KERNELS:
            found["kernels"] = [anchor(f"kernel {layer.graph} {node.target}") for node in nodes]
        return found

    def _values(self, drawn: _Drawn) -> list[list[Any]]:
        readers: dict[str, list[int]] = defaultdict(list)
        for index, number in enumerate(drawn.numbers):
            for node in drawn.flow.inputs[number]:
                readers[node.name].append(index)
        by_name = drawn.layer.record.by_name
        return [[name, self.texts.of(_outside(by_name[name])), found] for name, found in readers.items()]

    def _line(self, layer: Layer, node: NodeRecord) -> int:
        line = layer.lines.get(node.name)
        if node.source:
            self.codes[str(node.source)] = node.source.code
        return self.lines.of(line) if line else -1

    def _up(self, layer: Layer, node: NodeRecord) -> list[tuple[int, int]]:
        found = [self._place(where) for where in layer.up.get(node.name, [])]
        return list(dict.fromkeys(where for where in found if where is not None))

    def _place(self, where: Place) -> tuple[int, int] | None:
        """A node's graph and operation by number; None for one that is not drawn."""
        id, name = where
        graph = self.graph_of.get(id)
        operation = None if graph is None else self.drawn[graph].at.get(name)
        return None if graph is None or operation is None else (graph, operation)

    def _placed(self, known: Mapping[Place, Value]) -> Iterator[tuple[tuple[int, int], Value]]:
        for where, value in known.items():
            found = self._place(where)
            if found is not None:
                yield found, value

    def _findings(self, items: Sequence[Finding]) -> tuple[list[list[int]], int]:
        """The worst findings, and how many there are."""
        worst = sorted(items, key=lambda item: rank(item.effect))[:FINDINGS]
        told = [[self.texts.of(text) for text in (item.effect, item.rule, shortened(item.message))] for item in worst]
        return told, len(items)

    def _times(self, ratio: float | None) -> int:
        return self.texts.of("" if ratio is None else times(ratio))


def _made(node: NodeRecord) -> str:
    """What an operation makes, as far as there is room."""
    words = [tensor_words(tensor) for tensor in node.outputs] or ([str(node.value)] if node.value is not None else [])
    return ", ".join([*words[:TENSORS], *([f"and {len(words) - TENSORS} more"] if len(words) > TENSORS else [])])


def _outside(node: NodeRecord) -> str:
    """A parameter, an input or the like."""
    return f"{node.role or 'value'} {node.target or node.name}, {_made(node) or 'no tensor'}"


def _tree(parts: Sequence[int | Group], index: Mapping[int, int]) -> list[Any]:
    return [index[part] if isinstance(part, int) else [part.title, _tree(part.parts, index)] for part in parts]


def _finite(value: float | None) -> float | None:
    """A figure that JSON can hold; of an infinite one the largest."""
    return None if value is None or math.isnan(value) else min(value, 1e300)
