"""The report's part on the profile: what was found, at which lines, and what was not looked at."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.records import Violations
from inductor_debug.stages.constrain.tables import top_lines
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, place
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, said
from inductor_debug.stages.rules.findings import by_finding, severity_of


def violations(artifacts: Artifacts, stored: Violations | None, max_rows: int) -> Row | None:
    """The section's data; ``total`` is None where the profile has no rules, so that nothing was checked."""
    rows = files.VIOLATIONS.records(artifacts)
    if rows is None:
        return None
    stored = stored or Violations()
    found = by_finding(rows, lambda row: row.finding)
    by = {f"by_{key}": dict(Counter(getattr(group[0], key) for group in found)) for key in ("rule", "effect")}
    return {
        **by,
        "by_severity": dict(Counter(severity_of(row.severity for row in group) for group in found)),
        "total": len(found) if rows or stored.total is not None else None,
        "strict": stored.strict,
        "by_rule_and_effect": [_shares(row) for row in files.BY_RULE.cells(artifacts) or []],
        "profile": stored.profile,
        "declared_by": stored.declared_by,
        "top_lines": top_lines(rows, _code(artifacts) if rows else {}),
        "rows": (files.VIOLATIONS.cells(artifacts) or [])[:max_rows],
        "rows_total": len(rows),
        "file": files.VIOLATIONS.path,
    }


def _shares(row: Row) -> Row:
    """Shares as numbers, which the page shows in percent."""
    return {key: (float(value) if value else None) if key.endswith("_share") else value for key, value in row.items()}


def fit(found: Mapping[str, Any], accel: str, told: str, *, failed: bool = False, skipped: bool = False) -> Answer:
    """Whether the model fits.

    Args:
        found: what :func:`violations` gave.
        accel: the profile's name.
        told: what the stage said.
        failed: whether the stage did, which without a violation means that not all could be looked at.
        skipped: whether a stage was left out, as those that compile are where a strict profile is broken.
    """
    own = found.get("declared_by") == "backend"
    rules = f"the rules that the backend declares ({found['profile']})" if own else f"the profile {accel}"
    if found["total"] is None:
        return Answer("unknown", "not checked", told,
                      then=("inductor-debug profiles", "inductor-debug check RUN accel=warn16"))  # fmt: skip
    severities = Counter(found["by_severity"])
    errors, warnings = severities["error"], severities["warning"]
    broken = counted(errors + warnings, "violation") if errors or warnings else ""
    waived = f"{counted(severities['waived'], 'finding')} waived" if severities["waived"] else ""
    if not broken:
        if severities["undecided"] or failed:
            return Answer("unknown", "undecided" if severities["undecided"] else "not established", told)
        return Answer("good", "yes", told, f"fits {rules}{f' ({waived})' if waived else ''}")
    return Answer(
        "bad" if severities["error"] else "warn",
        f"no, {broken}",
        told,
        f"does not fit {rules} ({broken}{'' if errors else ', which do not stop the run'}{_worst(found)}"
        f"{f'; {waived}' if waived else ''})",
        then=("inductor-debug analyze RUN --type constraints", *_further(found, skipped)),
    )


def _worst(found: Mapping[str, Any]) -> str:
    """The line that is rejected, or whose findings cost most, where several have some; empty where none is known."""
    lines = [line for line in found["top_lines"] if line.source.rpartition(":")[2].isdigit()]
    if len(lines) < 2:
        return ""
    return f", {'rejected' if lines[0].rejected else 'the costliest'} at {place(lines[0].source)}"


def _further(found: Mapping[str, Any], skipped: bool) -> list[str]:
    """What to type to go on in spite of violations, and to see which values would be kept to."""
    stopped = skipped and found["strict"] and found["by_severity"].get("error")
    on = ["inductor-debug rerun RUN accel.strict=false"] if stopped else []
    return [*on, *(["inductor-debug check RUN --grid alignment=1:128"] if found["by_rule"].get("alignment") else [])]


def _code(artifacts: Artifacts) -> dict[str, str]:
    """``file:line`` → the code there, from the captured graphs."""
    nodes = (node for graph in files.GRAPH.read_all(artifacts).values() for node in graph.nodes)
    return {str(node.source): node.source.code for node in nodes if node.source is not None}


class ViolationsSection(ReportSection):
    """Does it fit?"""

    title = "Does it fit?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return violations(run.artifacts, None if run.head is None else run.head.violations, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return self._not_asked(report)
        failed = any(stage.get("name") == "constrain" and stage.get("status") == "failed" for stage in report["stages"])
        skipped = any(stage.get("status") == "skipped" for stage in report["stages"])
        return fit(data, str(report["run"]["accel"]), said(report, "constrain"), failed=failed, skipped=skipped)

    def _not_asked(self, report: Mapping[str, Any]) -> Answer | None:
        """Of a run without a profile: the stage alone would have nothing to check, and its capture can be checked."""
        ended = {stage.get("name"): stage.get("status") for stage in report["stages"]}
        if report["run"]["accel"] != "none" or "constrain" in ended or ended.get("capture") != "passed":
            return None
        told = "The stage constrain was not selected, and the run has no profile."
        return Answer("unknown", "not asked", told, then=("inductor-debug check RUN accel=warn16",))

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        notes = []
        if data is not None and data["total"] is None:
            accel = report["run"]["accel"]
            notes.append(f"Whether the model fits: nothing was checked, the profile {accel} has no rules.")
        undecided = (data or {}).get("by_severity", {}).get("undecided", 0)
        if undecided:
            checks = counted(undecided, "check")
            notes.append(f"{checks} against the profile could not be decided (severity undecided).")
        not_verified = Counter(str(row.get("reason") or "") for row in report["repros"] if not row.get("verified"))
        for reason, count in not_verified.items():
            scripts = counted(count, "reproduction")
            notes.append(f"Whether {scripts} would show the fault elsewhere{f': {reason}' if reason else ''}.")
        return notes
