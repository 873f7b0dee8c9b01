"""The constrain stage: the captured graphs against the profile. Runs without torch, unless the backend has rules."""

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from inductor_debug.models.collection import paused_collection
from inductor_debug.models.errors import wrong_value
from inductor_debug.stages.accelerators.profile import Profile, stored_profile
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import BreakRecord
from inductor_debug.stages.constrain.declaration import DECLARATION
from inductor_debug.stages.constrain.rulebook import rulebook
from inductor_debug.stages.constrain.tables import by_rule
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import counted, describe_breaks
from inductor_debug.stages.graphs.records import GraphRecord, kind_of, number_of
from inductor_debug.stages.rules.graph_rules import check_custom
from inductor_debug.stages.rules.repros import write_repros
from inductor_debug.stages.rules.violations import COLUMNS, Violations, unused_waivers

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
            return StageResult("failed", "not established: no captured graph")
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
        unused = ", ".join(f"{waiver.rule} ({waiver.reason})" for waiver in unused_waivers(violations))
        idle = f"no finding is waived by {unused}" if unused else ""
        result = StageResult(
            status="failed" if failed else "passed",
            message="; ".join(part for part in (message_of(violations, looked), rules.note, idle, outside) if part),
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
        result.message += f"; {repros}"


def judged(violations: Violations, breaks: Sequence[BreakRecord], looked: bool = True) -> tuple[bool, str]:
    """Whether a strict profile is broken, or can't be shown to be kept; and what no rule saw, in words or "".

    Args:
        breaks: as capture stores them: what Python runs there is in no graph.
        looked: False where neither the profile nor the backend has a rule.
    """
    if not breaks or not looked:
        return violations.failed, ""
    outside = f"what runs outside the graphs was not checked ({describe_breaks([item.kind for item in breaks])})"
    if violations.profile.strict and not violations.failed:
        outside = f"not established: {outside}"
    return violations.failed or violations.profile.strict, outside


def message_of(violations: Violations, looked: bool = True) -> str:
    """One line: how many, of which rules, and how severe.

    Args:
        looked: False where neither the profile nor the backend has a rule.
    """
    profile: Profile = violations.profile
    if not looked:
        return f"nothing was checked: the profile {profile.name} has no rules"
    if not violations.rows:
        one = len({number_of(id) for id in violations.graphs}) == 1
        return f"{_describe_graphs(violations.graphs)} {'fits' if one else 'fit'} {profile.name}"
    counts = violations.by_severity
    found = sum(counts.get(severity, 0) for severity in ("error", "warning"))
    by_rule = ", ".join(f"{rule} {count}" for rule, count in violations.summary().by_rule.items())
    mode = "strict" if profile.strict else "warning"
    parts = [f"{counted(found, 'violation')} of {profile.name} in {mode} mode ({by_rule})"]
    if counts.get("undecided"):
        parts.append(f"{counts['undecided']} not established")
    if counts.get("waived"):
        parts.append(f"{counts['waived']} waived")
    return "; ".join(parts)


def _describe_graphs(ids: Iterable[str]) -> str:
    """``1 graph (seen as dynamo, forward)``: Dynamo's and AOTAutograd's are pictures of one graph of the model."""
    ids = list(ids)
    kinds = dict.fromkeys(kind_of(id) for id in ids)
    return f"{counted(len({number_of(id) for id in ids}), 'graph')} (seen as {', '.join(kinds)})"
