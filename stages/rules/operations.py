"""The operation rule: a deny list, the same for Dynamo's and aten graphs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.graphs.known import known_total
from inductor_debug.stages.graphs.operation_names import Operation, matches, settled
from inductor_debug.stages.graphs.records import GETITEM, HIGHER_ORDER, GraphRecord, NodeRecord
from inductor_debug.stages.rules.checked_tensors import identity
from inductor_debug.stages.rules.unread import has_body
from inductor_debug.stages.rules.violation import Violation, row

REPLACE = "replace it, or give the backend a decomposition for it"


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
        if not node.is_call or node.op == "call_module":
            continue
        if isinstance(rule.value, Mapping):
            yield from _unlisted(graph, node, rule, total, aten_checked=aten_checked)
            continue
        names = Operation.dispatched(node)
        if names not in verdicts:  # a graph repeats few operations often
            verdicts[names] = _verdict(names, rule)
        denied, unclear = verdicts[names]
        inside = list(_inside(graph, node, rule, aten_checked=aten_checked))
        yield from inside
        if denied is not None and denied not in {each.limit for each in inside}:
            yield _denied(graph, node, rule, denied, total, why=_why(denied, node))
        elif inside or denied is not None or _told_by_unseen(graph, node) or left_to_aten(graph, node, aten_checked):
            continue
        elif unclear or not settled(node, graph):
            limit = unclear or f"one of {len(rule.value)} denied"
            yield row(graph, node, rule, operand="", measured=node.target, limit=limit, undecided=True,
                      message=f"{node.target} may become {limit}: only the aten graph can tell",
                      suggestion="check the aten graph")  # fmt: skip


def _inside(graph: GraphRecord, node: NodeRecord, rule: Rule, *, aten_checked: bool) -> Iterator[Violation]:
    """A row for each call that a higher-order operator's graphs make under a denied name, at its own line.

    What AOTAutograd makes of them has lost the names that are Python's, and those in place. One whose graphs are not
    known is undecided; where no aten graph is checked, :func:`stages.rules.unread.unseen` says so.
    """
    for inner in node.body or ():
        pattern, _ = _verdict(Operation.of(inner), rule)
        if pattern is not None:
            shown = replace(inner, name=node.name, inputs=[], module=inner.module or node.module,
                            source=inner.source or node.source)  # fmt: skip
            yield row(
                graph, shown, rule, operand="", measured=inner.target, limit=pattern, cost=_nbytes(inner),
                message=f"{inner.target} in the body of {node.target} is not supported ({pattern} is denied)",
                suggestion=REPLACE, piece=f"{graph.id}/{node.name}.{inner.name}[0]:" if inner.outputs else "",
            )  # fmt: skip
    if node.body is None and aten_checked and graph.kind == "dynamo" and _told_by_unseen(graph, node):
        yield row(
            graph, node, rule, operand="", measured=node.target, limit=f"one of {len(rule.value)} denied",
            undecided=True, suggestion="capture the model again, or call what is inside without the operator",
            message=f"what the body of {node.target} calls by names that are Python's, or in place, is not known",
        )  # fmt: skip


def _told_by_unseen(graph: GraphRecord, node: NodeRecord) -> bool:
    """Whether :func:`stages.rules.unread.unseen` has the row of a node that nothing is known of."""
    return node.dispatched is None and has_body(graph, node)


def left_to_aten(graph: GraphRecord, node: NodeRecord, aten_checked: bool) -> bool:
    """Whether what a node comes to is left to the aten graphs, which are checked too."""
    dynamos = graph.kind == "dynamo" and node.target.startswith(HIGHER_ORDER)
    return aten_checked and (dynamos or Operation.of(node).python)


def _unlisted(
    graph: GraphRecord, node: NodeRecord, rule: Rule, total: int, *, aten_checked: bool
) -> Iterator[Violation]:
    """A row where no entry of the allow list names the node, or one of the overloads that it comes to."""
    if left_to_aten(graph, node, aten_checked) or (node.target == GETITEM and graph.kind != "dynamo"):
        return
    if _told_by_unseen(graph, node):
        return
    names = Operation.of(node)
    allowed = _described(rule)
    if node.dispatched is not None:
        own = [] if names.python else [node.target]
        refused = [call for call in [*own, *node.dispatched] if not _allows(rule, Operation.of_overload(call))]
        if refused:
            yield _denied(graph, node, rule, allowed, total, why=f"{refused[0]} is not among those allowed")
        return
    verdicts = [matches(pattern, names) for pattern in rule.value["allow"]]
    if any(verdicts) or (names.python and settled(node, graph) and None not in verdicts):
        return
    if None in verdicts or not settled(node, graph):
        yield row(graph, node, rule, operand="", measured=node.target, limit=allowed, undecided=True,
                  message=f"what {node.target} becomes, and so whether it is allowed, only the aten graph can tell",
                  suggestion="check the aten graph")  # fmt: skip
    else:
        yield _denied(graph, node, rule, allowed, total, why="is not among those allowed")


def allow_list(profile: Profile, row: Violation) -> list[str]:
    """The entries of the allow list that a row is about; empty where it is about none."""
    if row.rule != "operation":  # casts, strides and custom rules have mappings of their own
        return []
    rules = [rule for rule in profile.of("operation") if isinstance(rule.value, Mapping)]
    return next((list(rule.value["allow"]) for rule in rules if _described(rule) == row.limit), [])


def _described(rule: Rule) -> str:
    return f"one of {len(rule.value['allow'])} allowed"


def _allows(rule: Rule, operation: Operation) -> bool:
    return any(matches(pattern, operation) for pattern in rule.value["allow"])


def _verdict(names: Operation, rule: Rule) -> tuple[str | None, str | None]:
    """The first entry that names the operation, and the first that may."""
    found = [(pattern, matches(pattern, names)) for pattern in rule.value]
    denied = next((pattern for pattern, verdict in found if verdict), None)
    return denied, next((pattern for pattern, verdict in found if verdict is None), None)


def _why(pattern: str, node: NodeRecord) -> str:
    """Which of the calls that a node comes to is denied, where its own name does not tell."""
    if node.dispatched is None or matches(pattern, Operation.of(node)):
        return ""
    call = next((name for name in node.dispatched if matches(pattern, Operation.of_overload(name))), None)
    return f"{pattern} is denied, and it calls {call}" if call else ""


def _denied(graph: GraphRecord, node: NodeRecord, rule: Rule, pattern: str, total: int, *,
            why: str = "") -> Violation:  # fmt: skip
    return row(
        graph, node, rule, operand="", measured=node.target, limit=pattern,
        cost=_nbytes(node),
        share=node.flops / total if node.flops is not None and total else None,
        message=f"{node.target} is not supported ({why or f'{pattern} is denied'})",
        suggestion=REPLACE,
        piece=f"{identity(graph, node, 0)}:" if node.outputs else "",
    )  # fmt: skip


def _nbytes(node: NodeRecord) -> int | None:
    """Bytes of what a node makes; None where it makes nothing, or a size is not known."""
    return known_total(tensor.nbytes for tensor in node.outputs) if node.outputs else None
