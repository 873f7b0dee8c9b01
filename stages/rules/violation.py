"""What a rule found at one place: a row of ``constrain/violations.csv``."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord


@dataclass(frozen=True, kw_only=True)
class CustomFinding:
    """What a custom rule yields, as a mapping with these keys or as such: see :class:`Violation`.

    Attributes:
        node: a name in the graph.
        measured, limit: anything, which is shown as text.
        undecided: the check could not tell.
    """

    node: str
    operand: str = ""
    measured: Any = ""
    limit: Any = ""
    message: str
    suggestion: str = ""
    cost_bytes: int | None = None
    cost_share: float | None = None
    undecided: bool = False


@dataclass(frozen=True)
class Violation:
    """One row of ``constrain/violations.csv``.

    Attributes:
        graph, node: the graph's id and the node's name in it.
        target: the node's target.
        operand: ``output``, ``output[i]`` of a node with several, a placeholder's role, or ``args[i]`` (in a list
            ``args[i][j]``, by keyword ``args[name]``).
        module: path of the owning module.
        source: the user's line as ``file:line``; of a layer of torch's that none calls, where its forward begins in
            torch (:func:`stages.graphs.records.is_torchs`); empty where torch recorded none.
        rule, effect: as in the profile.
        severity: error (strict), warning, waived, undecided (the check could not tell).
        measured, limit: what was found and what is allowed, in the rule's unit.
        cost_bytes: bytes padded, copied, or concerned, for this row alone: 0 where an earlier row with this rule and
            effect has counted the same tensor; None where unknown.
        cost_share: alignment: padding over the tensor's own bytes; operation, and any fallback: the share of its
            graph's known FLOPs that the nodes concerned have; None otherwise or where unknown.
        message: one sentence. suggestion: what to try.
        finding: id of the finding that the row belongs to, the same in each row of it (see
            :mod:`stages.rules.findings`); "" until the check is over.
        piece: which tensor, and what of it, costs ``cost_bytes``; in no table.
        also: further nodes of the graph that the finding concerns; in no table, but in the shares of the summary.
    """

    graph: str
    node: str
    target: str
    operand: str
    module: str
    source: str
    rule: str
    effect: str
    severity: str
    measured: str
    limit: str
    cost_bytes: int | None
    cost_share: float | None
    message: str
    suggestion: str
    piece: str = ""
    also: tuple[str, ...] = ()
    finding: str = field(default="", compare=False)

    def but(self, **changes: Any) -> "Violation":
        """This row with fields changed, as ``dataclasses.replace`` does at several times the cost."""
        made = object.__new__(Violation)
        made.__dict__.update(self.__dict__, **changes)
        return made


def row(graph: GraphRecord, node: NodeRecord, rule: Rule, *, operand: str, measured: object, limit: object,
        message: str, suggestion: str, undecided: bool = False, cost: int | None = None,
        share: float | None = None, piece: str = "") -> Violation:  # fmt: skip
    """One violation with the node's place filled in.

    Args:
        graph, node: where it is.
        rule: what is violated.
        operand, measured, limit, message, suggestion: as of :class:`Violation`; the message
            gets the node's name in front.
        undecided: whether the sizes leave it open, instead of breaking the rule.
        cost, share: the row's ``cost_bytes`` and ``cost_share``; None where they are not known.
        piece: tells costs of one tensor apart that add up; empty for a row of its own.
    """
    return Violation(
        graph=graph.id, node=node.name, target=node.target, operand=operand, module=node.module,
        source=str(node.source) if node.source else "", rule=rule.rule, effect=rule.effect or "reject",
        severity="undecided" if undecided else "error", measured=str(measured), limit=str(limit), cost_bytes=cost,
        cost_share=share, message=f"{node.name}: {message}", suggestion=suggestion, piece=piece,
    )  # fmt: skip
