"""Which tensors of a graph a rule looks at, each once."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.rule_kinds import TENSOR_ROLES
from inductor_debug.stages.graphs.operation_names import Operation, matches
from inductor_debug.stages.graphs.records import (
    DISCRETE,
    GETITEM,
    GraphRecord,
    NodeRecord,
    TensorRecord,
)
from inductor_debug.stages.rules.judged import Judgement, Subject
from inductor_debug.stages.rules.violation import Violation, row

SHARED_ROLES = ("parameter", "buffer", "input", "saved", "constant")
"""Placeholders of a backward graph that its forward graph has shown already."""

MARK = "torch._dynamo.mark_dynamic(x, DIMENSION, min={}, max={})"
"""How a size gets a range; torch takes both ends or neither."""

BOUND = (
    f"bound each symbolic size, before the first call: {MARK.format(1, 'N')}; where sizes do not vary, compile with "
    "dynamic=False; or see by hand"
)
"""What to do where a symbolic size leaves a limit open."""


@dataclass(frozen=True)
class CheckedTensor:
    """One tensor under a rule, in its place.

    Attributes:
        graph, node: where it is. For an operand of a contraction, the node that reads it.
        tensor: its metadata.
        operand: ``output``, ``output[i]``, a placeholder's role, or ``args[i]``.
        role: activation, parameter or index, as ``alignment_roles`` names them. Buffers count as parameters.
        made: which tensor it is, the same at every node that reads it.
        contracted, groups: as of :class:`~stages.rules.judged.Subject`.
    """

    graph: GraphRecord
    node: NodeRecord
    tensor: TensorRecord
    operand: str
    role: str
    made: str
    contracted: int | None = None
    groups: int = 1

    @property
    def subject(self) -> Subject:
        """What a rule judges it by."""
        return Subject(self.tensor, self.graph.symbols, self.operand, self.node.aliases, self.contracted, self.groups)

    def row(self, rule: Rule, judgement: Judgement) -> Violation:
        """A judgement as a row about this tensor; severity ``error`` until the profile's strictness is known."""
        return row(self.graph, self.node, rule, operand=self.operand, measured=judgement.measured,
                   limit=judgement.limit, message=judgement.message, suggestion=judgement.suggestion,
                   undecided=judgement.undecided, cost=judgement.cost, share=judgement.share,
                   piece=f"{self.made}:{judgement.part}" if self.made else "")  # fmt: skip


def tensors(graph: GraphRecord, *, forward_checked: bool) -> Iterator[CheckedTensor]:
    """Every tensor of the graph once, as the output of the node that makes it; several of a multi-output node.

    Args:
        graph: the graph.
        forward_checked: True where this backward graph's forward is checked too, so that the placeholders
            it shares with it (parameters, inputs, saved tensors) are left out.
    """
    for node in graph.nodes:
        if node.op == "output" or _repeats_output(node, graph):
            continue
        if node.op in ("placeholder", "get_attr") and forward_checked and node.role in SHARED_ROLES:
            continue
        for index in range(len(node.outputs)):
            yield made_at(graph, node, index)


def made_at(graph: GraphRecord, node: NodeRecord, index: int) -> CheckedTensor:
    """An output of a node, where it is made.

    Args:
        graph: the node's.
        node: the node.
        index: of the output.
    """
    tensor = node.outputs[index]
    made = identity(graph, node, index)
    return CheckedTensor(graph, node, tensor, _operand(node, index), role_of(node, tensor), made)


def read_at(graph: GraphRecord, node: NodeRecord, operand: str, producer: NodeRecord, index: int = 0) -> CheckedTensor:
    """An output of a node, where another node reads it.

    Args:
        graph: as for :func:`made_at`.
        node: the node that reads it.
        operand: the place among its arguments, e.g. ``args[0]``.
        producer, index: the node that makes it, and which of its outputs.
    """
    tensor = producer.outputs[index]
    made = identity(graph, producer, index)
    return CheckedTensor(graph, node, tensor, operand, role_of(producer, tensor), made)


def identity(graph: GraphRecord, node: NodeRecord, index: int) -> str:
    """One name for a tensor: that of the node which makes it, not of a ``getitem`` or an alias that shows it again.

    What a backward graph gets of its forward graph (parameters, inputs, saved tensors) has the forward's name.

    Args:
        graph, node, index: as for :func:`made_at`.
    """
    while _repeats_output(node, graph):
        producer = graph.by_name[node.inputs[0]]
        position = node.argument(1) if node.target == GETITEM else 0
        if not (isinstance(position, int) and 0 <= position < len(producer.outputs)):
            break
        if node.target == GETITEM and producer.outputs[position] != node.outputs[0]:
            break
        node, index = producer, position
    shared = graph.kind == "backward" and node.op in ("placeholder", "get_attr") and node.role in SHARED_ROLES
    place = f"{graph.number}.forward" if shared else graph.id
    return f"{place}/{node.name}[{index}]"


def operands_of(node: NodeRecord) -> Iterator[tuple[str, str]]:
    """Every node that the arguments refer to, with its place: ``args[0]``, ``args[0][1]``, ``args[weight]``."""
    for key, value in [*enumerate(node.args), *node.kwargs.items()]:
        yield from _references(f"args[{key}]", value)


def _references(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(f"{place}[{index}]", item)
    elif isinstance(value, dict) and set(value) == {"node"}:
        yield place, value["node"]


def chosen(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[CheckedTensor]:
    """The tensors that ``rule`` looks at: each once where it is made, or what ``rule.operations`` read and make.

    Left out are those of other roles than ``rule.roles``.
    """
    for checked in _of_operations(graph, rule) if rule.operations else tensors(graph, forward_checked=forward_checked):
        if rule.roles is None or checked.role in rule.roles or not set(rule.roles) & set(TENSOR_ROLES):
            yield checked


def _of_operations(graph: GraphRecord, rule: Rule) -> Iterator[CheckedTensor]:
    for node in graph.nodes:
        if not node.is_operation or not selects(rule.operations or (), node):
            continue
        seen: set[str] = set()
        for operand, name in operands_of(node):
            producer = graph.by_name[name]
            for index in range(len(producer.outputs)) if name not in seen else ():
                yield read_at(graph, node, operand, producer, index)
            seen.add(name)
        for index in range(len(node.outputs)):
            yield made_at(graph, node, index)


def selects(patterns: Sequence[str], node: NodeRecord) -> bool:
    """Whether one of ``patterns`` names the node and none that begins with ``!`` does; those alone mean all others."""
    return _selects(tuple(patterns), Operation.of(node))


@functools.lru_cache(maxsize=16384)  # a graph repeats few operations often
def _selects(patterns: tuple[str, ...], operation: Operation) -> bool:
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(matches(pattern, operation) for pattern in refused):
        return False
    return not wanted or any(matches(pattern, operation) for pattern in wanted)


def role_of(node: NodeRecord, tensor: TensorRecord) -> str:
    """activation, parameter or index."""
    if tensor.dtype in DISCRETE:
        return "index"
    return "parameter" if node.role in ("parameter", "buffer") else "activation"


def _operand(node: NodeRecord, index: int) -> str:
    if node.op in ("placeholder", "get_attr"):
        return node.role or "input"
    return f"output[{index}]" if len(node.outputs) > 1 else "output"


def _repeats_output(node: NodeRecord, graph: GraphRecord) -> bool:
    """True where the node's tensor was seen at the node it reads: ``getitem`` of a multi-output node, or an alias
    (``detach``) with the very same metadata. Outputs that a node leaves out are not recorded, so that ``getitem``'s
    index need not be the record's.
    """
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return False
    taken = node.target.rsplit(".", 1)[-1] == "getitem"
    producer = graph.by_name.get(node.inputs[0]) if taken or node.aliases else None
    if producer is None or not _is_among(node.outputs[0], producer.outputs, node.argument(1) if taken else 0):
        return False
    if not taken:
        return len(producer.outputs) == 1
    return graph.kind != "dynamo" or len(producer.outputs) > 1  # on one tensor, x[0] is an operation of its own


def _is_among(tensor: TensorRecord, outputs: Sequence[TensorRecord], position: object) -> bool:
    """Whether a tensor is one of a node's outputs: of thousands the one at ``position`` is tried first."""
    first = outputs[position] if isinstance(position, int) and 0 <= position < len(outputs) else None
    return tensor == first or tensor in outputs
