"""Which tensors of a graph a rule looks at, each once. Free of torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.constrain.config import Rule
from stages.constrain.kinds import TENSOR_ROLES
from stages.constrain.names import Operation, matches, settled
from stages.constrain.sizes import Symbols, bounds, case_value
from stages.constrain.violations import Violation
from stages.graphs import GETITEM, ITEM_BYTES, GraphRecord, NodeRecord, TensorRecord

CALLS = ("call_function", "call_method", "call_module")

SHARED_ROLES = ("parameter", "buffer", "input", "saved", "constant")
"""Placeholders of a backward graph that its forward graph has shown already."""

INDEX_DTYPES = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")


@dataclass(frozen=True)
class Subject:
    """One tensor under a rule.

    Attributes:
        graph, node: where it is. For an operand of a contraction, the node that reads it.
        tensor: its metadata.
        operand: ``output``, ``output[i]``, a placeholder's role, or ``args[i]``.
        role: activation, parameter or index, as ``alignment_roles`` names them. Buffers count as parameters.
    """

    graph: GraphRecord
    node: NodeRecord
    tensor: TensorRecord
    operand: str
    role: str

    @property
    def sizes(self) -> list[int | None]:
        """The shape in this case; None for a size that is not known."""
        return shape_in_case(self.tensor, self.graph.symbols)

    @property
    def bounds(self) -> list[tuple[int | None, int | None]]:
        """Least and largest size of each dimension over the symbols' ranges."""
        return [bounds(size, self.graph.symbols) for size in self.tensor.shape]

    @property
    def where(self) -> str:
        """Operand, shape and dtype in words."""
        return f"{self.operand} {self.tensor.shape} {self.tensor.dtype}"

    @property
    def nbytes(self) -> int | None:
        """Dense bytes in this case, or None where a size or the dtype's width is unknown."""
        item = ITEM_BYTES.get(self.tensor.dtype)
        if item is None:
            return None
        for size in self.sizes:
            if size is None:
                return None
            item *= size
        return item

    def violation(self, rule: Rule, *, measured: object, limit: object, message: str, suggestion: str,
                  undecided: bool = False, cost: int | None = None,
                  share: float | None = None) -> Violation:  # fmt: skip
        """A row about this tensor; severity ``error`` until the profile's strictness is known."""
        node = self.node
        if node.aliases and rule.effect == "pad":  # a view allocates nothing that could be padded
            cost = share = None
        return row(self.graph, node, rule, operand=self.operand, measured=measured, limit=limit, message=message,
                   suggestion=suggestion, undecided=undecided, cost=cost, share=share)  # fmt: skip


def row(graph: GraphRecord, node: NodeRecord, rule: Rule, *, operand: str, measured: object, limit: object,
        message: str, suggestion: str, undecided: bool = False, cost: int | None = None,
        share: float | None = None) -> Violation:  # fmt: skip
    """One violation with the node's place filled in."""
    return Violation(
        graph=graph.id, node=node.name, target=node.target, operand=operand, module=node.module,
        source=str(node.source) if node.source else "", rule=rule.rule, effect=rule.effect or "reject",
        severity="undecided" if undecided else "error", measured=str(measured), limit=str(limit), cost_bytes=cost,
        cost_share=share, message=f"{node.name}: {message}", suggestion=suggestion,
    )  # fmt: skip


def shape_in_case(tensor: TensorRecord, symbols: Symbols) -> list[int | None]:
    """The shape that a tensor had in this case; None for a size that is not known."""
    hints: list[int | None] = list(tensor.hints) if tensor.hints else [None] * len(tensor.shape)
    return [case_value(size, hint, symbols) for size, hint in zip(tensor.shape, hints, strict=True)]


def tensors(graph: GraphRecord, *, forward_checked: bool) -> Iterator[Subject]:
    """Every tensor of the graph once, as the output of the node that makes it; several of a multi-output node.

    Args:
        graph: the graph.
        forward_checked: True where this backward graph's forward is checked too, so that the placeholders
            it shares with it (parameters, inputs, saved tensors) are left out.
    """
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op == "output" or _repeats_output(node, nodes, graph.kind):
            continue
        if node.op in ("placeholder", "get_attr") and forward_checked and node.role in SHARED_ROLES:
            continue
        for index, tensor in enumerate(node.outputs):
            yield Subject(graph, node, tensor, _operand(node, index), role_of(node, tensor))


def chosen(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[Subject]:
    """The tensors that ``rule`` looks at: each once where it is made, or what ``rule.operations`` read and make.

    Left out are those of other roles than ``rule.roles``.
    """
    for subject in _of_operations(graph, rule) if rule.operations else tensors(graph, forward_checked=forward_checked):
        if rule.roles is None or subject.role in rule.roles or not set(rule.roles) & set(TENSOR_ROLES):
            yield subject


def _of_operations(graph: GraphRecord, rule: Rule) -> Iterator[Subject]:
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op not in CALLS or node.target == GETITEM or not concerns(rule.operations or (), node):
            continue
        for position, name in enumerate(node.inputs):
            producer = nodes[name]
            for tensor in producer.outputs[:1]:
                yield Subject(graph, node, tensor, f"args[{position}]", role_of(producer, tensor))
        for index, tensor in enumerate(node.outputs):
            yield Subject(graph, node, tensor, _operand(node, index), role_of(node, tensor))


def unclear(graph: GraphRecord, rule: Rule) -> Iterator[Violation]:
    """An undecided row for each node of a Dynamo graph that may become one of ``rule.operations``, or may not.

    One that is known to call such an operation gets it too: what the operation is given the Python call does not show.
    """
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op not in CALLS:
            continue
        named = next((item for item in rule.operations or () if _may_concern(item, node, nodes)), None)
        if named is not None:
            yield row(
                graph,
                node,
                rule,
                operand="",
                measured=node.target,
                limit=named,
                undecided=True,
                message=f"{node.target} may become {named.removeprefix('!')}, which the rule {rule.rule} looks at: "
                "only the aten graph can tell",
                suggestion="check the aten graph (backend=aot_mock)",
            )


def _may_concern(pattern: str, node: NodeRecord, nodes: dict[str, NodeRecord]) -> bool:
    """Whether a node may come to what ``pattern`` names, and its own name does not say so."""
    pattern = pattern.removeprefix("!")
    if matches(pattern, Operation.of(node)):
        return False
    return matches(pattern, Operation.dispatched(node)) is not False or not settled(node, nodes)


def concerns(patterns: Sequence[str], node: NodeRecord) -> bool:
    """Whether one of ``patterns`` names the node and none that begins with ``!`` does; those alone mean all others."""
    operation = Operation.of(node)
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(matches(pattern, operation) for pattern in refused):
        return False
    return not wanted or any(matches(pattern, operation) for pattern in wanted)


def role_of(node: NodeRecord, tensor: TensorRecord) -> str:
    """activation, parameter or index."""
    if tensor.dtype in INDEX_DTYPES:
        return "index"
    return "parameter" if node.role in ("parameter", "buffer") else "activation"


def _operand(node: NodeRecord, index: int) -> str:
    if node.op in ("placeholder", "get_attr"):
        return node.role or "input"
    return f"output[{index}]" if len(node.outputs) > 1 else "output"


def _repeats_output(node: NodeRecord, nodes: dict[str, NodeRecord], kind: str) -> bool:
    """True where the node's tensor was seen at the node it reads: ``getitem`` of a multi-output node, or an alias
    (``detach``) with the very same metadata. Outputs that a node leaves out are not recorded, so that ``getitem``'s
    index need not be the record's.
    """
    producer = nodes.get(node.inputs[0]) if len(node.inputs) == 1 else None
    if producer is None or len(node.outputs) != 1 or node.outputs[0] not in producer.outputs:
        return False
    if node.target.rsplit(".", 1)[-1] != "getitem":
        return node.aliases and len(producer.outputs) == 1
    return kind != "dynamo" or len(producer.outputs) > 1  # on one tensor, x[0] is an operation of its own
