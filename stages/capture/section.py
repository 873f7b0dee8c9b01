"""The report's section on the graphs: what was captured, and what runs outside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.records import BreakRecord
from inductor_debug.stages.capture.pictures import pictures
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, describe_breaks
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said


class GraphsSection(ReportSection):
    """What was captured?"""

    title = "What was captured?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row:
        return _graphs(run.artifacts, run.summary, run.max_rows)

    def answer(self, data: Row, report: Mapping[str, Any]) -> Answer | None:
        graphs = data["summary"]
        if graphs.get("dynamo") is None:
            return None
        broken = data["breaks_in_words"] or (graphs.get("breaks") and counted(graphs["breaks"], "graph break"))
        words = broken or counted(graphs["dynamo"], "graph")
        return Answer("warn" if broken else "told", words, said(report, "capture"))

    def not_established(self, data: Row, report: Mapping[str, Any]) -> list[str]:
        if not data["breaks_in_words"]:
            return []
        return [f"What runs outside the graphs ({data['breaks_in_words']}): Dynamo left it to Python, so it is in no "
                "graph and was not checked against the profile."]  # fmt: skip

    def page(self, data: Row, artifacts: Artifacts) -> Mapping[str, Any]:
        """``pictures``: of the graphs."""
        return {"pictures": pictures(artifacts)}


def _graphs(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row:
    breaks = files.BREAKS.read(artifacts) or []
    recompiles = files.RECOMPILES.read(artifacts)
    statistics = files.STATISTICS.cells(artifacts)
    return {
        "summary": summary.get("graphs") or {},
        "files": files.GRAPH.stored(artifacts),
        "recompiles": None if recompiles is None else len(recompiles),
        "totals": [row for row in statistics or [] if row.get("scope") == "graph"],
        "statistics": capped(statistics, files.STATISTICS, max_rows),
        "breaks_in_words": describe_breaks([item.kind for item in breaks]),
        "breaks": _folded(breaks),
    }


def _folded(breaks: list[BreakRecord]) -> list[Row]:
    """Graph breaks with those of one reason together: ``count``, ``places`` and ``graphs`` say which they were."""
    groups: dict[tuple[str | None, ...], Row] = {}
    for item in breaks:
        why = {"kind": item.kind, "reason": item.reason, "detail": item.detail, "setting": item.setting}
        row = groups.setdefault(
            tuple(why.values()), why | {"count": 0, "places": [], "graphs": [], "stack": item.stack}
        )
        row["count"] += 1
        where = f"{item.file}:{item.line}  {item.code or ''}".rstrip() if item.file else ""
        row["places"] += [where] * (where not in ("", *row["places"]))
        row["graphs"] += [item.graph] * (item.graph not in (None, *row["graphs"]))
    return list(groups.values())
