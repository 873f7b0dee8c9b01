"""Some operations of a graph as a program of their own, and what it is given."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import fx

from inductor_debug.stages.repro import NotReproducible

ALIGNMENT = 64
"""Bytes: torch's allocators align memory to at least as many, so that an offset counts modulo this."""


@dataclass(frozen=True)
class Normal:
    """Normal numbers of a mean and a standard deviation."""

    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True)
class Whole:
    """Whole numbers from ``low`` up to, not including, ``high``."""

    low: int
    high: int


@dataclass(frozen=True)
class Stored:
    """The numbers that the graph had, under a name in a file of tensors."""

    name: str


SIZES = {operator.getitem, *(value for value in vars(operator).values() if callable(value)), math.ceil, math.floor}
"""Functions in AOTAutograd's graphs that compute no tensor's numbers."""

Values = Normal | Whole | Stored


@dataclass(frozen=True)
class TensorGiven:
    """A tensor that a program is given.

    Attributes:
        name: of the placeholder.
        shape, stride, offset: in elements, of a storage of its own.
        dtype, device: of it.
        values: what it holds.
        drawn: what stands for these numbers where they are not stored: as many, as large.
        symbolic: dimensions whose sizes are symbols to the compiler, in a program that has some.
        requires_grad: whether a gradient is taken with respect to it.
    """

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    offset: int
    values: Values
    drawn: Normal | Whole
    symbolic: tuple[int, ...] = ()
    requires_grad: bool = False

    @property
    def length(self) -> int:
        """Elements of its storage, from the first one on that it looks at."""
        return span(self.shape, self.stride)


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of memory from a tensor's first to its last."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


@dataclass(frozen=True)
class NumberGiven:
    """A number that a program is given, as a symbolic size is."""

    name: str
    number: int | float | bool


Given = TensorGiven | NumberGiven


@dataclass(frozen=True)
class Candidate:
    """A program.

    Attributes:
        graph: placeholders, calls, and an output that is a tuple of nodes. No two candidates share one.
        given: what the placeholders are given, in their order.
        dynamic: whether sizes are symbols to the compiler.
        times: how often it is called, on the same inputs.
    """

    graph: fx.Graph
    given: tuple[Given, ...]
    dynamic: bool = False
    times: int = 1

    @property
    def training(self) -> bool:
        """Whether gradients are taken too."""
        return any(isinstance(item, TensorGiven) and item.requires_grad for item in self.given)

    @property
    def calls(self) -> list[fx.Node]:
        """The operations, in order."""
        return [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]

    @property
    def last(self) -> fx.Node:
        """Its last operation."""
        return next(filter(_is_operation, reversed(self.calls)), self.calls[-1])

    @property
    def operations(self) -> int:
        """How many operations it has; what takes apart several results of one, or computes sizes, is none."""
        return sum(map(_is_operation, self.calls))

    def giving(self, values: Mapping[str, Given]) -> "Candidate":
        """The program given something else, by name."""
        return replace(self, given=tuple(values.get(item.name, item) for item in self.given))


class Recorded(Protocol):
    """A run of a graph with every value: what it was given and what each node gave."""

    @property
    def graph(self) -> fx.Graph: ...

    @property
    def owner(self) -> torch.nn.Module: ...

    @property
    def inputs(self) -> Mapping[str, Any]: ...

    @property
    def values(self) -> Mapping[str, Any]: ...


class Operations:
    """A graph's operations as units that a search leaves out or keeps.

    Any of them make a program: what they take of others is given, as it was when the graph ran.

    Args:
        run: of the graph, with what each node gave.
        keep: stores a tensor under a name, for programs that are given its numbers.
        training: whether programs take gradients, with respect to what is given that asked for one.

    Attributes:
        units: each a call and what takes its several results apart, in the graph's order.
    """

    def __init__(self, run: Recorded, keep: "Keep", *, training: bool = False) -> None:
        self.run, self._keep, self._training = run, keep, training
        self._given: dict[str, Given] = {}
        self.units: list[list[fx.Node]] = []
        unit_of: dict[fx.Node, list[fx.Node]] = {}
        for node in run.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            if _takes_apart(node) and node.args[0] in unit_of:
                unit_of[node] = unit_of[node.args[0]]
                unit_of[node].append(node)
            else:
                unit_of[node] = [node]
                self.units.append(unit_of[node])
        (self._output,) = (node for node in run.graph.nodes if node.op == "output")
        self.dynamic = any(_is_symbolic(node.meta.get("val")) for node in run.graph.nodes)

    @property
    def count(self) -> int:
        """How many operations there are, of those that :attr:`Candidate.operations` counts."""
        return sum(_is_operation(unit[0]) for unit in self.units)

    def index(self, names: Iterable[str]) -> list[int]:
        """The units that have one of the nodes."""
        wanted = set(names)
        return [place for place, unit in enumerate(self.units) if any(node.name in wanted for node in unit)]

    def candidate(self, kept: Sequence[int]) -> Candidate:
        """The program of some units.

        Raises:
            NotReproducible: what it would be given was not kept.
        """
        inside = [node for place in sorted(kept) for node in self.units[place]]
        members, graph = set(inside), fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        taken = dict.fromkeys(source for node in inside for source in node.all_input_nodes if source not in members)
        items = {source: self._what_is_given(source) for source in taken}
        sizes = {source: _size_of(source, items) for source in taken}
        given = {source: item for source, item in items.items() if sizes[source] is None}
        for source, item in given.items():
            copies[source] = graph.placeholder(item.name)
            copies[source].meta = dict(source.meta)
        for source, size in sizes.items():
            if size is not None:
                copies[source] = graph.call_method("size", (copies[size[0]], size[1]))
                copies[source].meta = dict(source.meta)
        for node in inside:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        results = [node for node in inside if not members.intersection(node.users) or self._output in node.users]
        graph.output(tuple(copies[node] for node in results if _gives_numbers(node)))
        return Candidate(graph, tuple(given.values()), self.dynamic)

    def _what_is_given(self, node: fx.Node) -> Given:
        if node.name not in self._given:
            self._given[node.name] = self._recorded(node)
        return self._given[node.name]

    def _recorded(self, node: fx.Node) -> Given:
        found = self.run.inputs if node.op == "placeholder" else self.run.values
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(self.run.owner)
        elif node.name in found:
            value = found[node.name]
        else:
            raise NotReproducible(f"what {node.name} gave was not kept")
        if isinstance(value, (bool, int, float)):
            return NumberGiven(node.name, value)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            raise NotReproducible(f"{node.name} is no strided tensor")
        like = node.meta.get("val")
        offset = like.storage_offset() if isinstance(like, torch.Tensor) else 0
        offset = offset % (ALIGNMENT // value.element_size()) if type(offset) is int else 0
        drawn = drawn_like(value)
        sizes = like.shape if isinstance(like, torch.Tensor) else ()
        symbolic = tuple(place for place, size in enumerate(sizes) if isinstance(size, torch.SymInt))
        self._keep(node.name, value)
        return TensorGiven(node.name, tuple(value.shape), value.stride(), value.dtype, str(value.device), offset,
                           Stored(node.name), drawn, symbolic, self._training and value.requires_grad)  # fmt: skip


class Keep(Protocol):
    """Stores a tensor under a name."""

    def __call__(self, name: str, value: torch.Tensor) -> None: ...


def drawn_like(value: torch.Tensor) -> Normal | Whole:
    """What stands for a tensor's numbers: whole ones of the same range, or normal ones of the same two moments."""
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        least, most = (int(value.min()), int(value.max())) if value.numel() else (0, 1)
        return Whole(least, most + 1)
    if not value.numel():
        return Normal()
    wide = torch.view_as_real(value) if value.is_complex() else value.detach()
    finite = wide.double()[wide.isfinite()]
    if finite.numel() < 2:
        return Normal(float(finite.sum()), 0.0)
    return Normal(_short(float(finite.mean())), _short(float(finite.std())))


def _short(number: float) -> float:
    return float(f"{number:.2g}")


def _size_of(node: fx.Node, items: Mapping[fx.Node, Given]) -> tuple[fx.Node, int] | None:
    """Of which given tensor, and in which dimension, a symbolic number is the size."""
    number = node.meta.get("val")
    if isinstance(number, torch.SymInt):
        for source, item in items.items():
            like = source.meta.get("val")
            if isinstance(item, TensorGiven) and isinstance(like, torch.Tensor):
                for dimension, size in enumerate(like.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == number.node.expr:
                        return source, dimension
    return None


def _takes_apart(node: fx.Node) -> bool:
    """Whether it is one of several results of an operation; a part of a tensor is an operation of its own."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and not isinstance(source.meta.get("val"), torch.Tensor)


def _is_operation(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return not _takes_apart(node)
    if node.op == "call_method":
        return node.target != "size"
    of_tensors = node.target not in SIZES or isinstance(node.meta.get("val"), torch.Tensor)  # or arithmetic of sizes
    return node.op == "call_function" and of_tensors


def _gives_numbers(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return value is None or isinstance(value, torch.Tensor)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
