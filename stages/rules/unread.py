"""Nodes of which a graph does not tell what a rule has to know: undecided, whatever the rule's limit is."""

from collections.abc import Iterator
from dataclasses import dataclass

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.operation_names import Operation, matches, settled
from inductor_debug.stages.graphs.records import HIGHER_ORDER, GraphRecord, NodeRecord
from inductor_debug.stages.rules.violation import Violation, row


@dataclass(frozen=True)
class Unread:
    """A node, or an operand of it, that a rule can't judge.

    Attributes:
        graph, node: where it is.
        message, suggestion, operand, measured: as of :class:`~stages.rules.violation.Violation`; the message without
            the node's name.
        limit: the same; None: the rule's value.
    """

    graph: GraphRecord
    node: NodeRecord
    message: str
    suggestion: str
    operand: str = ""
    measured: str = ""
    limit: str | None = None

    def row(self, rule: Rule) -> Violation:
        """The undecided row."""
        return row(self.graph, self.node, rule, operand=self.operand, measured=self.measured,
                   limit=rule.value if self.limit is None else self.limit, undecided=True, message=self.message,
                   suggestion=self.suggestion)  # fmt: skip


def unclear(graph: GraphRecord, rule: Rule) -> Iterator[Unread]:
    """Each node of a graph before decomposition that may become one of ``rule.operations``.

    One that is known to call such an operation is one too: what the operation is given the Python call does not show.
    """
    for node in graph.nodes:
        if not node.is_call:
            continue
        named = next((item for item in rule.operations or () if _may_become(item, node, graph)), None)
        if named is not None:
            message = (
                f"{node.target} may become {named.removeprefix('!')}, which the rule {rule.rule} looks at: "
                "only the aten graph can tell"
            )
            suggestion = "check the aten graph (backend=aot_mock)"
            yield Unread(graph, node, message, suggestion, measured=node.target, limit=named)


def _may_become(pattern: str, node: NodeRecord, graph: GraphRecord) -> bool:
    """Whether a node may come to what ``pattern`` names, and its own name does not say so."""
    pattern = pattern.removeprefix("!")
    if matches(pattern, Operation.of(node)):
        return False
    return matches(pattern, Operation.dispatched(node)) is not False or not settled(node, graph)


def unseen(graph: GraphRecord, rule: Rule) -> Iterator[Unread]:
    """Each node that runs operations which the graph does not hold, so that no rule sees them."""
    for node in graph.nodes:
        if node.op != "call_module" and not node.target.startswith(HIGHER_ORDER):
            continue
        if rule.rule == "operation" and node.dispatched is not None:
            continue  # it tells what its body calls
        if node.op == "call_module":
            message = f"module {node.target} was not traced into: what it calls is not known"
            suggestion = "let Dynamo inline the module"
        elif has_body(graph, node):
            message = f"the body of {node.target} was not looked at: its operations are not in this graph"
            suggestion = (
                "check the aten graph (backend=aot_mock), where it may be inlined"
                if graph.kind == "dynamo"
                else "check what it calls as a model of its own, or write it without the higher-order operator"
            )
        else:
            continue
        yield Unread(graph, node, message, suggestion, measured=node.target, limit="")


def has_body(graph: GraphRecord, node: NodeRecord) -> bool:
    """Whether a node is a higher-order operator that is given graphs to run."""
    if not node.target.startswith(HIGHER_ORDER):
        return False
    given = (graph.by_name.get(name) for name in node.inputs)
    return any(other is not None and other.op == "get_attr" and not other.outputs for other in given)
