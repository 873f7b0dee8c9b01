"""A check at many points of a grid: what several points have in common is made once.

What rules look at in a graph does not depend on their values, so that each point judges the distinct subjects alone.
Where the judgements have the same outline as at an earlier point, its findings and operations are the same, and its
cost is the same sum of other numbers (:attr:`stages.rules.outcomes.Outcome.outline`). The rows are made once for each
such class of points, as :func:`stages.rules.engine.check` makes them.
"""

import datetime
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.counting import stands_alone
from inductor_debug.stages.rules.engine import JUDGED, Checked
from inductor_debug.stages.rules.findings import by_finding
from inductor_debug.stages.rules.outcomes import Looked, Outcome
from inductor_debug.stages.rules.violation import Violation

RULES_KEPT = 4096
"""Of so many rules, each at one value, it is kept what they find."""


@dataclass(frozen=True)
class Found:
    """What a check finds at one point.

    Attributes:
        severities: findings by severity.
        rules: findings by rule, errors and warnings alone.
        nodes: operations that these concern, cost: bytes that they cost together; None where that is not known.
    """

    severities: Mapping[str, int]
    rules: Mapping[str, int]
    nodes: int | None
    cost: int | None


_Source = tuple[int, int, int]
"""A rule, a graph and a position among the costs of that outcome."""


@dataclass(frozen=True)
class _Group:
    """Points whose rules' outcomes have the same outlines.

    Attributes:
        found: at each of them, but for the cost; that is None where it is not known.
        fixed: what those rows cost that cost the same at each.
        paid: where the others' costs stand, and how many rows pay each.
    """

    found: Found
    fixed: int
    paid: tuple[tuple[_Source, int], ...]


@dataclass(frozen=True)
class _RuleFound:
    """What a rule finds at one value: a number for its outlines in all graphs, and its costs in each."""

    outline: int
    costs: list[list[int]]


class Points:
    """The graphs of a grid.

    Args:
        graphs: a run's.
        today: the day that waivers' expiry is compared with; default the local date.
    """

    def __init__(self, graphs: Iterable[GraphRecord], today: datetime.date | None = None) -> None:
        self._checked = Checked(graphs)
        self._affected = AffectedOperations(self._checked.graphs)
        self._today = today or datetime.date.today()
        self._looked: dict[str, list[Looked]] = {}
        self._rules: dict[str, _RuleFound] = {}
        self._outlines: dict[Hashable, int] = {}
        self._examples: list[list[Outcome]] = []
        self._groups: dict[Hashable, _Group] = {}

    def at(self, profile: Profile) -> Found:
        """What the check of ``profile`` finds."""
        rules = [self._rule(rule) for rule in profile.rules]
        key = (profile.strict, repr(profile.waivers), tuple(rule.outline for rule in rules))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._group(profile, [self._examples[rule.outline] for rule in rules])
        varying = sum(count * rules[rule].costs[graph][at] for (rule, graph, at), count in group.paid)
        cost = None if group.found.cost is None else group.fixed + varying
        return replace(group.found, cost=cost)

    def _rule(self, rule: Rule) -> _RuleFound:
        """What a rule finds, as of the last :data:`RULES_KEPT` rules it is known."""
        key = repr(rule)
        if key not in self._rules:
            if len(self._rules) >= RULES_KEPT:
                del self._rules[next(iter(self._rules))]
            self._rules[key] = self._rule_anew(rule)
        return self._rules[key]

    def _rule_anew(self, rule: Rule) -> _RuleFound:
        graphs, kind = self._checked.graphs, repr(replace(rule, value=None))
        if rule.rule in JUDGED:
            if kind not in self._looked:
                self._looked[kind] = [self._checked.look(graph, rule) for graph in graphs]
            looked = self._looked[kind]
        else:
            looked = [self._checked.look(graph, rule) for graph in graphs]
        outcomes = list(map(self._checked.outcome, graphs, itertools.repeat(rule), looked))
        outline = (kind, *(outcome.outline for outcome in outcomes))
        number = self._outlines.setdefault(outline, len(self._outlines))
        if number == len(self._examples):
            self._examples.append(outcomes)
        return _RuleFound(number, [outcome.costs for outcome in outcomes])

    def _group(self, profile: Profile, examples: list[list[Outcome]]) -> _Group:
        """What is the same at every point with these outlines.

        Args:
            profile: one of theirs.
            examples: outcomes of each rule, graph by graph.
        """
        rows: list[Violation] = []
        sources: list[_Source | None] = []
        for graph in range(len(self._checked.graphs)):
            for rule, outcomes in enumerate(examples):
                rows += (row.but() for row in outcomes[graph].rows())  # rules alike share outcomes, and no row
                sources += [None if at is None else (rule, graph, at) for at in outcomes[graph].sources()]
        violations = self._checked.violations(rows, profile, self._today)
        counting = [row for row in violations if row.severity in ("error", "warning")]
        rules = Counter(group[0].rule for group in by_finding(counting, lambda row: row.finding))
        nodes, paying = self._affected.together(counting)
        paid, fixed = Counter[_Source](), 0
        bought = {id(row) for row in paying or ()}
        for row, source in zip(violations, sources, strict=True):
            if id(row) in bought and row.cost_bytes:
                if source is not None and stands_alone(row.rule, row.effect):
                    paid[source] += 1
                else:
                    fixed += row.cost_bytes
        found = Found(violations.by_severity, rules, nodes, None if paying is None else 0)
        return _Group(found, fixed, tuple(paid.items()))
