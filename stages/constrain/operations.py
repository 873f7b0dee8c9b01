"""The operation rule: a deny list, the same for Dynamo's and aten graphs. Free of torch."""

from collections.abc import Iterator, Mapping

from stages.constrain.config import Rule
from stages.constrain.names import Operation, matches
from stages.constrain.subjects import CALLS, row
from stages.constrain.violations import Violation
from stages.graphs import GETITEM, GraphRecord, NodeRecord


def operation(graph: GraphRecord, rule: Rule, *, aten_checked: bool = False) -> Iterator[Violation]:
    """One row for each node that an entry of the deny list names, the first of which is the limit; or that none of an
    allow list does.

    Args:
        graph: a Dynamo or an aten graph.
        rule: ``value`` is the deny list, or ``{allow: list}``.
        aten_checked: True where this Dynamo graph's aten graphs are checked too. What a Python callable can't tell
            (which overload, which decomposition) is then left to them; otherwise it is ``undecided``.
    """
    total = sum(node.flops or 0 for node in graph.nodes)
    verdicts: dict[Operation, tuple[str | None, str | None]] = {}
    for node in graph.nodes:
        if node.op not in CALLS or node.op == "call_module":
            continue
        names = Operation.of(node)
        if isinstance(rule.value, Mapping):
            yield from _unlisted(graph, node, rule, names, total, aten_checked=aten_checked)
            continue
        if names not in verdicts:  # a graph repeats few operations often
            verdicts[names] = _verdict(names, rule)
        denied, unclear = verdicts[names]
        if denied is not None:
            yield _denied(graph, node, rule, denied, total)
        elif unclear is not None and not aten_checked:
            yield row(graph, node, rule, operand="", measured=node.target, limit=unclear, undecided=True,
                      message=f"{node.target} may become {unclear}: only the aten graph can tell",
                      suggestion="check the aten graph")  # fmt: skip


def _unlisted(
    graph: GraphRecord, node: NodeRecord, rule: Rule, names: Operation, total: int, *, aten_checked: bool
) -> Iterator[Violation]:
    """A row where no entry of the allow list names the node. Dynamo's graph is left to its aten graphs."""
    if node.target == GETITEM or (names.python and aten_checked):
        return
    verdicts = [matches(pattern, names) for pattern in rule.value["allow"]]
    if any(verdicts):
        return
    allowed = f"one of {len(verdicts)} allowed"
    if names.python or None in verdicts:
        yield row(graph, node, rule, operand="", measured=node.target, limit=allowed, undecided=True,
                  message=f"what {node.target} becomes, and so whether it is allowed, only the aten graph can tell",
                  suggestion="check the aten graph")  # fmt: skip
    else:
        yield _denied(graph, node, rule, allowed, total, why="is not among those allowed")


def _verdict(names: Operation, rule: Rule) -> tuple[str | None, str | None]:
    """The first entry that names the operation, and the first that may."""
    found = [(pattern, matches(pattern, names)) for pattern in rule.value]
    denied = next((pattern for pattern, verdict in found if verdict), None)
    return denied, next((pattern for pattern, verdict in found if verdict is None), None)


def _denied(graph: GraphRecord, node: NodeRecord, rule: Rule, pattern: str, total: int, *, why: str = "") -> Violation:
    sizes = [tensor.nbytes for tensor in node.outputs]
    known = sum(size for size in sizes if size is not None)
    return row(
        graph, node, rule, operand="", measured=node.target, limit=pattern,
        cost=None if not sizes or None in sizes else known,
        share=node.flops / total if node.flops is not None and total else None,
        message=f"{node.target} is not supported ({why or f'{pattern} is denied'})",
        suggestion="replace it, or give the backend a decomposition for it",
    )  # fmt: skip
