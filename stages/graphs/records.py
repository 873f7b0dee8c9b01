"""Graph records: a captured graph as a plain table, written as JSON and read back without torch.

A node name is only ever used together with its graph's id (``g0.dynamo``, ``g0.forward``, ``g0.backward``,
``g0.joint``, ``g1.dynamo``, …).
"""

import functools
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import STORED
from inductor_debug.models.stored import shaped

SCHEMA = 1

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
}  # fmt: skip

INTEGERS = ("int32", "int64", "int16", "int8", "uint8", "uint32", "uint64", "uint16")
"""Integer dtypes of a byte and more, the usual ones first."""

DISCRETE = (*INTEGERS, "bool")
"""Dtypes of which nothing but the very value is right."""

HIGHER_ORDER = "higher_order."
"""What the target of a higher-order operator begins with."""

GETITEM = "_operator.getitem"
"""Target of a node that takes one of an operation's several results."""

STRIDED, JAGGED, NESTED = "strided", "jagged", "nested"
DENSE = (STRIDED, "_mkldnn")
"""Layouts of tensors that hold each of their elements once."""

Size = int | str
"""A size or a stride: an integer, or a symbolic expression such as ``"s0*64"``."""


@dataclass(frozen=True)
class TensorRecord:
    """One tensor's metadata.

    Attributes:
        shape: sizes in elements; symbolic ones as expressions.
        dtype: without the ``torch.`` prefix, e.g. ``"float32"``.
        stride: strides in elements.
        device: e.g. ``"cpu"`` or ``"cuda:0"``.
        storage_offset: in elements.
        hints: the concrete shape that symbolic sizes had in this case (equal to ``shape`` where it is concrete).
        storage_bytes: of the whole storage that the tensor is in, where they differ from its dense bytes (part of a
            packed tensor, an expanded one). None where they are the same, or not known. Views that the graph itself
            makes have none: their storage is that of what they look at. Equal tensors may differ in it.
        storage_hint: what symbolic ``storage_bytes`` were in this case.
        layout: without the ``torch.`` prefix: ``"strided"``; ``"jagged"`` (a nested tensor: the size that differs by
            row is a symbol without a hint), ``"nested"`` (a strided nested one, whose sizes are not known),
            ``"sparse_coo"``, …. How many elements and bytes any but a strided one holds is not known.
    """

    shape: list[Size]
    dtype: str
    stride: list[Size]
    device: str
    storage_offset: Size = 0
    hints: list[int] | None = None
    storage_bytes: Size | None = field(default=None, compare=False)
    storage_hint: int | None = field(default=None, compare=False)
    layout: str = STRIDED

    @property
    def concrete_shape(self) -> list[int] | None:
        """The shape as integers (hints where symbolic), or None where a size has no hint."""
        sizes = self.shape if self.hints is None else self.hints
        return [size for size in sizes if isinstance(size, int)] if all(isinstance(s, int) for s in sizes) else None

    @property
    def numel(self) -> int | None:
        """Number of elements, or None where a size is unknown."""
        shape = self.concrete_shape
        return None if shape is None else math.prod(shape)

    @property
    def nbytes(self) -> int | None:
        """Dense size in bytes, or None where a size or the dtype's width is unknown."""
        item, numel = ITEM_BYTES.get(self.dtype), self.numel
        if self.layout not in DENSE:
            return None
        return None if item is None or numel is None else item * numel

    @property
    def storage_nbytes(self) -> int | None:
        """Bytes of the storage that the tensor is in and keeps alive, or None where they are unknown."""
        if self.storage_bytes is None:
            return self.nbytes
        return self.storage_bytes if isinstance(self.storage_bytes, int) else self.storage_hint


@dataclass(frozen=True)
class SourceLine:
    """The user's line that a node came from. ``str()`` is ``file:line``."""

    file: str
    line: int
    code: str = ""
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NO_LINE = "a layer of torch's that no line of the model calls"
"""What a message says in the place of a line that is torch's own."""


@functools.cache
def _torch_folder() -> str:
    found = importlib.util.find_spec("torch")
    return f"{Path(found.origin).parent}/" if found is not None and found.origin else "torch/"


def is_torchs(source: str) -> bool:
    """Whether a line, ``file:line``, is torch's own, as of a layer in a model that is an ``nn.Sequential``.

    The model has no line there then. Does not import torch.
    """
    return source.startswith(_torch_folder())


@dataclass(frozen=True)
class NodeRecord:
    """One node of a graph.

    Attributes:
        name: unique within its graph.
        op: FX's kind: placeholder, get_attr, call_function, call_method, call_module, output.
        target: e.g. ``"aten.addmm.default"``, or for Dynamo graphs the Python callable's qualified name
            (``"torch.nn.functional.relu"``, ``"_operator.add"``), a method's or a module's name.
        args, kwargs: JSON values; a reference to another node is ``{"node": name}``.
        inputs: names of the nodes read, in order, without repeats.
        outputs: every tensor the node makes (several for a multi-output node, none for non-tensors).
        role: for placeholders and get_attr: parameter, buffer, input, tangent, saved, constant; else "".
        module: path of the owning module, e.g. ``"encoder.layer.0.attention"``.
        source: the user's line, or None where torch recorded none.
        flops: floating-point operations (a multiply-add is two), or None where no formula is known.
        aliases: True where the output is a view of an input (allocates nothing).
        shares: of a placeholder whose memory another has, the name of the first that has it; else "". It is a
            placeholder of this graph or, of what a forward saved, an input of that forward.
        value: of a node that makes an integer (a symbolic size), what it is; None for every other node.
        dispatched: the aten overloads that the call comes to, for a node whose target does not tell. Of a Dynamo graph
            they were seen when it ran on its example values; of a higher-order operator they are what the graphs inside
            it call. None where that was not looked at, or could not be found out.
        body: of a higher-order operator in a Dynamo graph, the Python callables that its graphs call, in order, those
            of graphs inside them too. What AOTAutograd makes of them no longer has the user's names. Node names are
            those of the graph inside. None for every other node, and where they are not known.
        origins: of an AOT operation, a gradient's too, the calls of the Dynamo graph that it came from, by name;
            empty of Dynamo's own nodes, and where torch lost them.
    """

    name: str
    op: str
    target: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[TensorRecord] = field(default_factory=list, metadata=STORED)
    role: str = ""
    module: str = ""
    source: SourceLine | None = field(default=None, metadata=STORED)
    flops: int | None = None
    aliases: bool = False
    shares: str = ""
    value: Size | None = None
    dispatched: list[str] | None = None
    body: "list[NodeRecord] | None" = None
    origins: list[str] = field(default_factory=list)

    @property
    def is_call(self) -> bool:
        """True for a node that does something: calls of functions, methods and modules."""
        return self.op.startswith("call_")

    @property
    def is_operation(self) -> bool:
        """True for a call that computes: taking an item out of an operation's several results does not."""
        return self.is_call and self.target != GETITEM

    def argument(self, position: int, keyword: str = "") -> Any:
        """An argument's JSON value, given by position or by keyword; None where it is neither."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(keyword)


@dataclass(frozen=True)
class GraphRecord:
    """One captured graph.

    Attributes:
        id: e.g. ``"g0.forward"``.
        kind: dynamo, forward, backward or joint (the part of ``id`` after the dot).
        nodes: in execution order, placeholders first, the output node last.
        symbols: symbolic sizes with their hints and ranges: ``{"s0": {"hint": 8, "min": 2, "max": None}}``.
    """

    id: str
    kind: str
    nodes: list[NodeRecord]
    symbols: dict[str, dict[str, int | None]] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """See :func:`number_of`."""
        return number_of(self.id)

    @functools.cached_property
    def by_name(self) -> Mapping[str, NodeRecord]:
        """Name → node."""
        return {node.name: node for node in self.nodes}

    def node(self, name: str) -> NodeRecord:
        """The node called ``name``; KeyError where there is none."""
        if name not in self.by_name:
            raise KeyError(f"{self.id} has no node {name!r}")
        return self.by_name[name]

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict, in stable order. Each node repeats its first output's metadata at its top level."""
        nodes = [_to_json(node) for node in self.nodes]
        return {"schema": SCHEMA, "id": self.id, "kind": self.kind, "symbols": self.symbols, "nodes": nodes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GraphRecord":
        """The inverse of :meth:`to_json`; DamagedError for data of another shape."""
        return shaped(dict(data), cls, Path("graph"))


def _to_json(node: NodeRecord) -> dict[str, Any]:
    record = vars(node) | {  # not asdict: its deep copies cost most of a capture's writing
        "outputs": [dict(vars(output)) for output in node.outputs],
        "source": dict(vars(node.source)) if node.source else None,
        "body": None if node.body is None else [_to_json(inner) for inner in node.body],
    }
    first = record["outputs"][0] if record["outputs"] else {}
    return record | {key: first.get(key) for key in ("shape", "dtype", "stride", "device")}


def number_of(graph_id: str) -> str:
    """``g0`` of ``g0.forward``: what Dynamo's graph and the AOT graphs that came of it have in common."""
    return graph_id.partition(".")[0]


def kind_of(graph_id: str) -> str:
    """``forward`` of ``g0.forward``."""
    return graph_id.rpartition(".")[2]
