"""Part of a graph as a program: what it is given, what it calls. From records, free of torch."""

import keyword
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inductor_debug.stages.graphs.records import ITEM_BYTES, GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.graphs.symbolic_sizes import case_value, shape_in_case
from inductor_debug.stages.repro.expressions import NotReproducible, call, expression
from inductor_debug.stages.repro.values import ANY_INTEGER, Range, index_ranges

__all__ = ["GraphIndex", "MadeTensor", "NotReproducible", "Operand", "Program"]

RESERVED = ("torch", "operator", "math", "builtins", "values", "called", "device", "sys", "True", "False", "None")
INDEXING = ("_operator.getitem", "_operator.setitem")


@dataclass(frozen=True)
class MadeTensor:
    """A tensor to be made: concrete sizes, strides and offset in elements; integers are drawn from ``span``."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    offset: int
    span: Range

    @classmethod
    def of(cls, tensor: TensorRecord, graph: GraphRecord, span: Range) -> "MadeTensor":
        """The tensor as the case had it; NotReproducible where a size has no value, or there are no strides."""
        sizes = shape_in_case(tensor, graph.symbols)
        strides = [case_value(item, None, graph.symbols) for item in tensor.stride]
        offset = case_value(tensor.storage_offset, None, graph.symbols)
        shape, stride = [s for s in sizes if s is not None], [s for s in strides if s is not None]
        if len(shape) != len(sizes) or len(stride) != len(strides) or offset is None:
            raise NotReproducible(f"a tensor of shape {tensor.shape} and strides {tensor.stride}, some of which have "
                                  "no value in this case")  # fmt: skip
        if len(shape) != len(stride):
            raise NotReproducible(f"a tensor of shape {tensor.shape} without strides")
        if tensor.dtype not in ITEM_BYTES:
            raise NotReproducible(f"a tensor of dtype {tensor.dtype}, which can't be filled")
        return cls(tuple(shape), tuple(stride), tensor.dtype, tensor.device, offset, span)

    @property
    def nbytes(self) -> int:
        """Bytes of the storage that it lies in."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return (self.offset + last + 1) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Operand:
    """What a program is given: one tensor, or the tuple that a multi-output node outside the program made."""

    name: str
    tensors: tuple[MadeTensor, ...]
    tuple: bool = False


class GraphIndex:
    """A graph's nodes by name and by what reads them, made once for many programs.

    Attributes:
        graph: the graph.
        nodes: name → node. positions: name → place in the graph. readers: name → calls that read it, in order.
    """

    def __init__(self, graph: GraphRecord) -> None:
        self.graph = graph
        self.nodes = graph.by_name
        self.positions = {node.name: position for position, node in enumerate(graph.nodes)}
        self.readers: dict[str, list[str]] = {}
        for node in graph.nodes:
            for name in node.inputs if node.is_call else ():
                self.readers.setdefault(name, []).append(node.name)


@dataclass(frozen=True)
class Program:
    """Nodes of one graph, in its order, as straight-line Python.

    Attributes:
        graph: the graph's id.
        operands: what is made, in order of first use.
        calls: (variable, source of the call) of each node.
        names: node's name → variable.
        targets: the nodes' targets.
        symbols: symbolic sizes that were given their value in this case.
        nbytes: of the operands and, as far as they are known, of what is computed.
    """

    graph: str
    operands: tuple[Operand, ...]
    calls: tuple[tuple[str, str], ...]
    names: dict[str, str]
    targets: tuple[str, ...]
    symbols: dict[str, int]
    nbytes: int

    @classmethod
    def of(cls, graph: GraphRecord | GraphIndex, names: Iterable[str], *, given: Iterable[str] = (),
           anonymous: bool = False) -> "Program":  # fmt: skip
        """The program of some of a graph's nodes.

        Args:
            graph: the graph, or its index where many programs are made of it.
            names: calls to make, each a node of the graph; what they read of each other is passed on, anything else
                becomes an operand.
            given: nodes that are operands even if none of the calls reads them.
            anonymous: True names variables by position, so that equal programs of different nodes are equal.

        Raises:
            NotReproducible: a value was not recorded, or a target is not torch's.
        """
        index = graph if isinstance(graph, GraphIndex) else GraphIndex(graph)
        return _Builder(index, set(names), anonymous).build(list(given))

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal for programs that do the same with the same shapes, dtypes and strides (of ``anonymous`` ones)."""
        return (self.operands, self.calls)


class _Builder:
    def __init__(self, index: GraphIndex, wanted: set[str], anonymous: bool) -> None:
        self.index, self.wanted, self.anonymous = index, wanted, anonymous
        self.graph, self.nodes = index.graph, index.nodes
        self.variables: dict[str, str] = {}
        self.operands: dict[str, NodeRecord] = {}
        self.symbols: dict[str, int] = {}

    def build(self, given: list[str]) -> Program:
        for name in given:
            self._source(name)
        calls, spans = [], dict[str, Range]()
        chosen = [self.nodes[name] for name in sorted(self.wanted, key=self.index.positions.__getitem__)]
        for node in chosen:
            for name, (low, high) in index_ranges(node, self._shape).items():
                known = spans.get(name, (low, high))  # what every reader accepts
                spans[name] = (max(low, known[0]), min(high, known[1]))
            source = self._call(node)
            self.variables[node.name] = self._variable(node.name)
            calls.append((self.variables[node.name], source))
        operands = tuple(self._operand(node, spans) for node in self.operands.values())
        made = sum(tensor.nbytes for operand in operands for tensor in operand.tensors)
        computed = sum(tensor.nbytes or 0 for node in chosen for tensor in node.outputs if not node.aliases)
        return Program(self.graph.id, operands, tuple(calls), dict(self.variables),
                       tuple(node.target for node in chosen), dict(self.symbols), made + computed)  # fmt: skip

    def _call(self, node: NodeRecord) -> str:
        for value in (node.args, node.kwargs):
            self._note_symbols(value)
        indexing = node.target in INDEXING
        arguments = [
            expression(value, self._source, self.graph.symbols, as_tuple=indexing and position == 1)
            for position, value in enumerate(node.args)
        ]
        keywords = {key: expression(value, self._source, self.graph.symbols) for key, value in node.kwargs.items()}
        return call(node, self.graph.kind, arguments, keywords)

    def _source(self, name: str) -> str:
        """The source of a node's value: a variable, or a number written out."""
        if name in self.variables:
            return self.variables[name]
        node = self.nodes.get(name)
        if node is None:
            raise NotReproducible(f"the node {name}, which the graph's record does not have")
        if not node.outputs:
            return self._number(node)
        self.operands[name] = node
        for tensor in node.outputs:
            self._note_symbols([*tensor.shape, *tensor.stride, tensor.storage_offset])
        self.variables[name] = self._variable(name)
        return self.variables[name]

    def _number(self, node: NodeRecord) -> str:
        value = node.value if node.value is not None else node.target if node.target in self.graph.symbols else None
        known = None if value is None else case_value(value, None, self.graph.symbols)
        if known is None:
            raise NotReproducible(f"the value of {node.name} ({node.target}), which is no tensor, was not recorded")
        self._note_symbols([value])
        return repr(known)

    def _variable(self, name: str) -> str:
        if self.anonymous:
            return f"v{len(self.variables)}"
        identifier = "".join(character if character.isalnum() or character == "_" else "_" for character in name)
        taken = identifier in RESERVED or keyword.iskeyword(identifier) or not identifier.isidentifier()
        while taken or identifier in self.variables.values():
            identifier, taken = f"{identifier}_" if identifier.isidentifier() else f"_{identifier}", False
        return identifier

    def _operand(self, node: NodeRecord, spans: dict[str, Range]) -> Operand:
        span = spans.get(node.name, ANY_INTEGER)
        made = tuple(MadeTensor.of(tensor, self.graph, span) for tensor in node.outputs)
        return Operand(self.variables[node.name], made, tuple=len(made) > 1)

    def _shape(self, name: str) -> list[int] | None:
        node = self.nodes.get(name)
        if node is None or not node.outputs:
            return None
        sizes = shape_in_case(node.outputs[0], self.graph.symbols)
        return None if None in sizes else [size for size in sizes if size is not None]

    def _note_symbols(self, value: Any) -> None:
        """Remember which symbols a value holds, so that the script can say which sizes it fixed."""
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for item in value:
                self._note_symbols(item)
        elif isinstance(value, str):
            for symbol, facts in self.graph.symbols.items():
                hint = facts.get("hint")
                if hint is not None and symbol in value.replace("*", " ").replace("(", " ").replace(")", " ").split():
                    self.symbols[symbol] = hint
