"""The constrain stage: the captured graphs against the profile. Runs without torch."""

import logging

from stages.constrain.engine import check
from stages.constrain.profile import Profile, validate_profile
from stages.constrain.violations import COLUMNS, Violations
from stages.contract import Stage, StageContext, StageResult
from stages.graphs import GraphRecord

log = logging.getLogger(__name__)

GRAPHS = "capture/graphs/"
TABLE = "constrain/violations.csv"


class ConstrainStage(Stage):
    """Reads ``capture/graphs/*.json``, writes ``constrain/violations.csv``: every violation, strict or not."""

    name = "constrain"
    needs = ("capture",)
    uses_torch = False

    def check(self, context: StageContext) -> None:
        """ConfigurationError where the profile is not valid, or names an operation or a dtype that torch lacks."""
        profile = validate_profile(context.settings.accel)
        if profile.of("operation") or profile.of("dtype"):
            from stages.constrain.torch_names import check_names

            check_names(profile)

    def run(self, context: StageContext) -> StageResult:
        """Failed where a strict profile is broken, or can't be shown to be kept, or nothing was captured."""
        profile = validate_profile(context.settings.accel)
        names = [name for name in context.artifacts.names(GRAPHS) if name.endswith(".json")]
        if not names:
            return StageResult("failed", "not established: no captured graph")
        graphs = [GraphRecord.from_json(context.artifacts.read_json(name)) for name in names]
        context.progress(f"checking {len(graphs)} graphs against {profile.name}")
        violations = check(graphs, profile)
        log.info("constrain: %d rows for %s", len(violations), profile.name)
        return StageResult(
            status="failed" if violations.failed else "passed",
            message=message_of(violations),
            artifacts={TABLE: violations.table},
            summary={"violations": violations.summary()},
            digest={TABLE: digest_columns()},
        )


def digest_columns() -> list[str]:
    """Columns that are equal for two runs of one configuration: all but the prose, and the waivers' ageing."""
    return [column for column in COLUMNS if column not in ("severity", "message", "suggestion")]


def message_of(violations: Violations) -> str:
    """One line: how many, of which rules, and how severe."""
    profile: Profile = violations.profile
    if not profile.rules:
        return f"profile {profile.name} has no rules: nothing to check"
    if not violations.rows:
        return f"{len(violations.graphs)} graphs fit {profile.name}"
    counts = violations.by_severity
    found = sum(counts.get(severity, 0) for severity in ("error", "warning"))
    by_rule = ", ".join(f"{rule} {count}" for rule, count in violations.summary()["by_rule"].items())
    mode = "strict" if profile.strict else "warning"
    parts = [f"{found} violations of {profile.name} in {mode} mode ({by_rule})"]
    if counts.get("undecided"):
        parts.append(f"{counts['undecided']} not established")
    if counts.get("waived"):
        parts.append(f"{counts['waived']} waived")
    return "; ".join(parts)
