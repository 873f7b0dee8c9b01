"""The report's section on the graphs: what was captured, and what runs outside."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.capture.pictures import pictures
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import breaks_in_words, counted
from inductor_debug.stages.report.sections import ReportedRun, ReportSection, capped


class GraphsSection(ReportSection):
    """Graphs."""

    template = Path(__file__).with_name("section.html")
    describes = True

    def collect(self, run: ReportedRun) -> Row:
        return _graphs(run.artifacts, run.summary, run.max_rows)

    def findings(self, data: Row, report: Mapping[str, Any]) -> list[str]:
        graphs = data["summary"]
        if graphs.get("dynamo") is None:
            return []
        breaks = data["breaks_in_words"] or counted(graphs.get("breaks") or 0, "graph break")
        return [f"Graphs: {graphs['dynamo']} from Dynamo, {breaks}."]

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
    statistics = files.STATISTICS.read(artifacts)
    return {
        "summary": summary.get("graphs") or {},
        "recompiles": len(recompiles) if isinstance(recompiles, list) else None,
        "totals": [row for row in statistics or [] if row.get("scope") == "graph"],
        "statistics": capped(statistics, files.STATISTICS, max_rows),
        "breaks_in_words": breaks_in_words([item for item in breaks if isinstance(item, Mapping)]),
        "breaks": _folded(breaks),
    }


PLACE = ("file", "line", "function", "code")
"""Where a graph broke; what else is stored of a break says why."""


def _folded(breaks: list[Any]) -> list[Row]:
    """Graph breaks with those of one reason together: ``count``, ``places`` and ``graphs`` say which they were."""
    groups: dict[str, Row] = {}
    for item in breaks:
        known = dict(item) if isinstance(item, Mapping) else {"reason": item}
        place = {key: known.pop(key) for key in PLACE if key in known}
        graph, stack = known.pop("graph", None), known.pop("stack", None)
        row = groups.setdefault(
            json.dumps(known, sort_keys=True), known | {"count": 0, "places": [], "graphs": [], "stack": stack}
        )
        row["count"] += 1
        where = f"{place['file']}:{place.get('line')}  {place.get('code') or ''}".rstrip() if place.get("file") else ""
        row["places"] += [where] * (where not in ("", *row["places"]))
        row["graphs"] += [graph] * (graph not in (None, *row["graphs"]))
    return list(groups.values())
