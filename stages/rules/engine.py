"""All rules over all graphs.

Which graph is checked by which rule, for the graphs of one ``gN``:

=====================================  ================================================================
alignment, dtype, layout,              forward and backward. Where neither was captured: joint, else
memory_tensor                          dynamo. Never two pictures of the same tensors.
operation                              dynamo (the user's own calls), and forward and backward (what they
                                       became); joint only where neither of those was captured.
=====================================  ================================================================

A tensor is reported at the node that makes it, not again at each that reads it. Exceptions are ``contraction``, and
rules of some ``operations``, which are about operands. Its bytes are counted once however many read it. A backward
graph's placeholders that its forward has shown are not reported again. What a graph does not hold (the body of a
higher-order operator, a module that was not traced) is undecided for every rule. Rows of one denied call, in several
graphs, are one finding (:mod:`stages.rules.findings`).
"""

import datetime
from collections.abc import Callable, Iterable, Iterator

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.operation_lists import confirm_names
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.accelerators.rule_kinds import KINDS
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.alignment import alignment
from inductor_debug.stages.rules.checked_tensors import unclear, unseen
from inductor_debug.stages.rules.counting import count_once
from inductor_debug.stages.rules.findings import with_findings
from inductor_debug.stages.rules.graph_rules import custom, memory_peak
from inductor_debug.stages.rules.layout import layout
from inductor_debug.stages.rules.operations import operation
from inductor_debug.stages.rules.shape_rules import dynamic_shape, rank, size, tile
from inductor_debug.stages.rules.tensor_rules import dtype, memory_tensor
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations, waive

RULES: dict[str, Callable[..., Iterator[Violation]]] = {
    "alignment": alignment,
    "rank": rank,
    "size": size,
    "tile": tile,
    "dtype": dtype,
    "layout": layout,
    "memory_tensor": memory_tensor,
    "memory_peak": memory_peak,
    "dynamic_shape": dynamic_shape,
    "custom": custom,
}
assert {*RULES, "operation"} == KINDS.keys(), "RULES here and KINDS of stages/accelerators/rule_kinds.py name the same"

DECOMPOSED = ("forward", "backward", "joint")
"""Kinds of graphs in which an operation is what it will be; in others a composite may become several."""


def check(
    graphs: GraphRecord | Iterable[GraphRecord],
    profile: Profile | AccelConfig,
    *,
    today: datetime.date | None = None,
) -> Violations:
    """Every violation of ``profile`` in ``graphs``, strict or not: nothing stops at the first.

    Args:
        graphs: one graph or several, e.g. all of a run's.
        profile: from :func:`~stages.constrain.load_profile`, or a configuration, which is validated here.
        today: the day that waivers' expiry is compared with; default the local date.

    Raises:
        ConfigurationError: ``profile`` is a configuration that is not valid, or names an operation that torch does not
            have.
    """
    records = [graphs] if isinstance(graphs, GraphRecord) else list(graphs)
    if isinstance(profile, AccelConfig):
        profile = validate_profile(profile)
        confirm_names(profile, records)
    rows: list[Violation] = []
    for graph in records:
        kinds = {other.kind for other in records if other.number == graph.number}
        for rule in profile.rules:
            rows.extend(_with_share(_apply(rule, graph, kinds), graph) if rule.effect == "fallback"
                        else _apply(rule, graph, kinds))  # fmt: skip
    rows = [row if row.severity == "undecided" or profile.strict else row.but(severity="warning") for row in rows]
    rows = count_once(waive(rows, profile.waivers, today or datetime.date.today()), records)
    return Violations(tuple(with_findings(rows, records)), profile, tuple(graph.id for graph in records))


def _apply(rule: Rule, graph: GraphRecord, kinds: set[str]) -> Iterator[Violation]:
    aten = bool(kinds & {"forward", "backward"})
    if graph.kind == "joint" and aten:
        return
    lowered = graph.kind == "dynamo" and (aten or "joint" in kinds)  # its aten graphs tell what this one can't
    if rule.rule == "operation":
        yield from operation(graph, rule, aten_checked=aten or "joint" in kinds)
    elif not lowered:
        if graph.kind not in DECOMPOSED and rule.operations:
            yield from unclear(graph, rule)
        forward_checked = graph.kind == "backward" and "forward" in kinds
        yield from RULES[rule.rule](graph, rule, forward_checked=forward_checked)
    if not lowered:
        yield from unseen(graph, rule)


def _with_share(rows: Iterator[Violation], graph: GraphRecord) -> Iterator[Violation]:
    """Rows of a fallback with the share of the graph's known FLOPs that the nodes they concern take to the host."""
    flops = {node.name: node.flops for node in graph.nodes}
    total = sum(number or 0 for number in flops.values())
    for row in rows:
        own = [number for name in {row.node, *row.also} if (number := flops[name]) is not None]
        yield row if not own or not total else row.but(cost_share=sum(own) / total)
