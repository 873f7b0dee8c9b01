"""The constrain stage: the captured graphs against the profile. Runs without torch, unless the backend has rules."""

import dataclasses
import datetime
import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from inductor_debug.models.collection import paused_collection
from inductor_debug.models.errors import wrong_value
from inductor_debug.stages.accelerators.profile import Profile, stored_profile
from inductor_debug.stages.accelerators.rule_words import in_a_sentence
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import BreakRecord
from inductor_debug.stages.constrain.declaration import DECLARATION
from inductor_debug.stages.constrain.rulebook import rulebook
from inductor_debug.stages.constrain.tables import by_rule
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import as_sentence, counted, describe_breaks, in_lines, in_words
from inductor_debug.stages.graphs.records import GraphRecord, kind_of, number_of
from inductor_debug.stages.rules.findings import severity_of
from inductor_debug.stages.rules.graph_rules import check_custom
from inductor_debug.stages.rules.repros import write_repros
from inductor_debug.stages.rules.violations import COLUMNS, Violations, expired_waivers, unused_waivers

log = logging.getLogger(__name__)
DIGEST = [column for column in COLUMNS if column not in ("severity", "message", "suggestion")]
"""Columns that are equal for two runs of one configuration: all but the prose, and the waivers' ageing."""


class ConstrainStage(Stage):
    """Reads ``capture/graphs/*.json``, writes ``constrain/violations.csv``: every violation, strict or not,
    and ``constrain/summary.csv``: what they come to by rule and effect; ``constrain/declared.json`` where the rules are
    those that the backend declares."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError where an option or the profile is not valid, or names an operation that torch lacks."""
        for key in ("repros", "verified_repros"):
            count = getattr(self.config, key)
            if count < 0:
                raise wrong_value(f"stages.constrain.{key}", count, "a whole number, 0 or more", "4")
        profile = rulebook(context.settings).profile
        for rule in profile.of("custom"):
            check_custom(rule)
        if profile.names_of_torch:
            from inductor_debug.stages.accelerators.torch_check import check_names

            check_names(profile)

    @paused_collection()
    def run(self, context: StageContext) -> StageResult:
        """Failed where a strict profile is broken, or can't be shown to be kept, or nothing was captured.

        Code that Dynamo left to Python is in no graph, so that a model with a graph break can't be shown to keep a
        strict profile.
        """
        rules = rulebook(context.settings)
        profile = rules.profile
        graphs = list(files.GRAPH.read_all(context.artifacts).values())
        if not graphs:
            return StageResult("failed", f"Whether the model fits the profile {profile.name} is not established: "
                               "no graph was captured.")  # fmt: skip
        context.progress(f"checking {_describe_graphs(graph.id for graph in graphs)} against {profile.name}")
        violations = rules.check(graphs)
        looked = bool(profile.rules or rules.own_check)
        breaks = files.BREAKS.read(context.artifacts) or []
        failed, outside = judged(violations, breaks, looked)
        found = dataclasses.replace(
            violations.summary(),
            total=len(violations.findings) if looked else None,
            profile=profile.name,
            declared_by=rules.declared_by,
        )
        log.info("constrain: %d rows for %s", len(violations), profile.name)
        result = StageResult(
            status="failed" if failed else "passed",
            message=in_lines(
                in_words(message_of(violations, looked, outside), _further(violations, failed)),
                figures_of(violations) if looked else "",
                rules.note,
                *_idle(violations),
            ),
            artifacts={
                files.VIOLATIONS.path: violations.table,
                files.BY_RULE.path: files.BY_RULE.frame(by_rule(violations, graphs)),
            },
            summary={"violations": found},
            digest={files.VIOLATIONS.path: DIGEST},
        )
        if rules.declared_by == "backend":
            own = {"own_check": rules.own_check is not None}
            result.artifacts[files.DECLARED.path] = stored_profile(rules.declared) | own
        if violations.failed and self.config.repros:
            self._reproduce(context, graphs, violations, result)
        return result

    def _reproduce(
        self, context: StageContext, graphs: list[GraphRecord], violations: Violations, result: StageResult
    ) -> None:
        """Add a strict profile's reproductions to the result."""
        context.progress("writing reproductions and running them")
        repros = write_repros(graphs, violations, limit=self.config.repros, verified=self.config.verified_repros)
        result.artifacts |= {files.REPRO.at(name): text for name, text in repros.files.items()}
        result.summary["repros"] = repros.summary
        result.message = in_lines(result.message, as_sentence(str(repros)))


def _idle(violations: Violations) -> list[str]:
    """Sentences about waivers that accept nothing, or no longer do."""
    unused = ", ".join(f"{waiver.rule} ({waiver.reason})" for waiver in unused_waivers(violations))
    over = ", ".join(f"{waiver.rule} ({waiver.reason}; on {waiver.expires})"
                     for waiver in expired_waivers(violations, datetime.date.today()))  # fmt: skip
    return [
        *([f"No finding is waived by {unused}."] if unused else []),
        *([f"A waiver that would accept findings has expired: {over}."] if over else []),
    ]


def judged(violations: Violations, breaks: Sequence[BreakRecord], looked: bool = True) -> tuple[bool, str]:
    """Whether a strict profile is broken, or can't be shown to be kept; and what no rule saw, a sentence or "".

    Args:
        breaks: as capture stores them: what Python runs there is in no graph.
        looked: False where neither the profile nor the backend has a rule.
    """
    if not breaks or not looked:
        return violations.failed, ""
    outside = f"What runs outside the graphs was not checked ({describe_breaks([item.kind for item in breaks])})."
    return violations.failed or violations.profile.strict, outside


def message_of(violations: Violations, looked: bool = True, outside: str = "") -> str:
    """Whether the model fits, in a sentence.

    Args:
        looked: False where neither the profile nor the backend has a rule.
        outside: what no rule saw, a sentence or "".
    """
    profile: Profile = violations.profile
    if not looked:
        return f"Nothing was checked: the profile {profile.name} has no rules."
    broken = _broken(violations)
    if broken:
        told = f"The model does not fit the profile {profile.name}: {counted(sum(broken.values()), 'violation')}"
        rules = [f"{rule} {count}" for rule, count in sorted(broken.items())]
        by_rule = f" ({', '.join(rules)})" if len(rules) > 1 else f" of the rule {next(iter(broken))}"
        asked = [in_a_sentence(rule) for rule in profile.rules if rule.rule in broken]
        return in_words(f"{told}{by_rule}.", asked[0] if len(asked) == 1 else "", outside)
    counts = violations.by_severity
    undecided = counts.get("undecided", 0)
    unknown = f"{counted(undecided, 'check')} could not be decided." if undecided else ""
    if unknown or (outside and profile.strict):
        return in_words(f"Whether the model fits the profile {profile.name} is not established.", unknown, outside)
    kept = "every violation is waived" if counts.get("waived") else "no rule is broken"
    return in_words(f"The model fits the profile {profile.name}: {kept}.", outside)


def _broken(violations: Violations) -> Counter[str]:
    """Rule → violations of it, without what was waived or could not be decided."""
    counting = (group for group in violations.findings
                if severity_of(row.severity for row in group) in ("error", "warning"))  # fmt: skip
    return Counter(group[0].rule for group in counting)


def _further(violations: Violations, failed: bool) -> str:
    """What the run does after its violations, and what to type so that it goes on."""
    if failed:
        who = "The profile is strict" if violations.profile.strict else "The backend calls it an error"
        return f"{who}, so stages that compile are left out. To run them anyway, add to the command: accel.strict=false"
    return "The profile is not strict, so the run goes on." if violations.by_severity.get("warning") else ""


def figures_of(violations: Violations) -> str:
    """What the rules with findings ask for, else what all of them do; the graphs; and what is no violation."""
    counts, words = violations.by_severity, {"undecided": "could not be decided", "waived": "waived"}
    told = [
        f"{counted(counts[severity], 'finding')} {what}." for severity, what in words.items() if counts.get(severity)
    ]
    met = violations.summary().by_rule
    rules = [f"The profile's rule {rule.rule}: {in_a_sentence(rule)}" for rule in violations.profile.rules
             if rule.rule in met or not met]  # fmt: skip
    rules = [] if len(rules) == 1 and _broken(violations) else rules  # it is in the sentence
    return in_lines(*rules, f"Checked: {_describe_graphs(violations.graphs)}.", *told)


def _describe_graphs(ids: Iterable[str]) -> str:
    """``1 graph (seen as dynamo, forward)``: Dynamo's and AOTAutograd's are pictures of one graph of the model."""
    ids = list(ids)
    kinds = dict.fromkeys(kind_of(id) for id in ids)
    return f"{counted(len({number_of(id) for id in ids}), 'graph')} (seen as {', '.join(kinds)})"
