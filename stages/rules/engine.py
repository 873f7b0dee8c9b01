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
import itertools
from collections.abc import Callable, Iterable, Iterator

from inductor_debug.models.collection import paused_collection
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.operation_lists import confirm_names
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.accelerators.rule_kinds import KINDS
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.alignment import aligned, alignment
from inductor_debug.stages.rules.checked_tensors import chosen
from inductor_debug.stages.rules.contractions import looked_at
from inductor_debug.stages.rules.counting import count_once
from inductor_debug.stages.rules.findings import with_findings
from inductor_debug.stages.rules.graph_rules import custom, memory_peak, peaks
from inductor_debug.stages.rules.judged import Seen
from inductor_debug.stages.rules.layout import layout
from inductor_debug.stages.rules.operations import operation
from inductor_debug.stages.rules.outcomes import Judge, Looked, Outcome
from inductor_debug.stages.rules.shape_rules import dynamic_shape, rank, size, tile
from inductor_debug.stages.rules.tensor_rules import dtype, memory_tensor, typed
from inductor_debug.stages.rules.unread import Unread, unclear, unseen
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations, waive

Look = Callable[..., Iterator[Seen | Unread]]

JUDGED: dict[str, tuple[Look, Judge]] = {
    "alignment": (aligned, alignment),
    "rank": (chosen, rank),
    "size": (chosen, size),
    "tile": (looked_at, tile),
    "dtype": (typed, dtype),
    "layout": (chosen, layout),
    "memory_tensor": (chosen, memory_tensor),
    "memory_peak": (peaks, memory_peak),
}
"""Rules of two parts: what a rule looks at in a graph, whatever its value is; and what it says of each such subject."""

WHOLE: dict[str, Callable[[GraphRecord, Rule], Iterator[Violation]]] = {
    "dynamic_shape": dynamic_shape,
    "custom": custom,
}
"""Rules that go over a whole graph and write its rows themselves."""
assert {*JUDGED, *WHOLE, "operation"} == KINDS.keys(), "the rules here and KINDS of rule_kinds.py have the same names"

DECOMPOSED = ("forward", "backward", "joint")
"""Kinds of graphs in which an operation is what it will be; in others a composite may become several."""


class Checked:
    """Graphs that are checked together."""

    def __init__(self, graphs: Iterable[GraphRecord]) -> None:
        self.graphs = list(graphs)
        self._kinds: dict[str, set[str]] = {}
        for graph in self.graphs:
            self._kinds.setdefault(graph.number, set()).add(graph.kind)

    def look(self, graph: GraphRecord, rule: Rule) -> Looked:
        """What a rule looks at in a graph; but for the rows that it wrote, the same whatever the rule's value is."""
        return Looked(self._seen(graph, rule))

    def _seen(self, graph: GraphRecord, rule: Rule) -> Iterator[Seen | Unread | Violation]:
        kinds = self._kinds[graph.number]
        aten = bool(kinds & {"forward", "backward"})
        if graph.kind == "joint" and aten:
            return
        lowered = graph.kind == "dynamo" and (aten or "joint" in kinds)  # its aten graphs tell what this one can't
        if rule.rule == "operation":
            yield from operation(graph, rule, aten_checked=aten or "joint" in kinds)
        elif not lowered:
            if graph.kind not in DECOMPOSED and rule.operations:
                yield from unclear(graph, rule)
            if rule.rule in WHOLE:
                yield from WHOLE[rule.rule](graph, rule)
            else:
                look, _ = JUDGED[rule.rule]
                yield from look(graph, rule, forward_checked=graph.kind == "backward" and "forward" in kinds)
        if not lowered:
            yield from unseen(graph, rule)

    def outcome(self, graph: GraphRecord, rule: Rule, looked: Looked | None = None) -> Outcome:
        """What a rule finds in a graph.

        Args:
            graph, rule: which.
            looked: from :meth:`look`, for this rule or one that differs in its value alone; None: looked at here.
        """
        _, judge = JUDGED.get(rule.rule, (None, None))
        return Outcome.of(graph, rule, self.look(graph, rule) if looked is None else looked, judge)

    def violations(self, rows: Iterable[Violation], profile: Profile, today: datetime.date | None) -> Violations:
        """The rows of all outcomes, graph by graph and rule by rule, as a check's: with severities, counted once."""
        rows = [row if row.severity == "undecided" or profile.strict else row.but(severity="warning") for row in rows]
        rows = count_once(waive(rows, profile.waivers, today or datetime.date.today()), self.graphs)
        return Violations(tuple(with_findings(rows, self.graphs)), profile, tuple(graph.id for graph in self.graphs))


@paused_collection()
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
    checked = Checked([graphs] if isinstance(graphs, GraphRecord) else graphs)
    if isinstance(profile, AccelConfig):
        profile = validate_profile(profile)
        confirm_names(profile, checked.graphs)
    outcomes = (checked.outcome(graph, rule) for graph in checked.graphs for rule in profile.rules)
    return checked.violations(itertools.chain.from_iterable(each.rows() for each in outcomes), profile, today)
