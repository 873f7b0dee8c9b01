"""The report's section with the graphs to work with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.report.explorer.encoding import boxes, encoded
from inductor_debug.stages.report.explorer.layers import layers
from inductor_debug.stages.report.explorer.marks import marks
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection

SCRIPTS = ("dagre.min.js.LEGAL.txt", "dagre.min.js", "graphs.js", "layout.js", "pane.js", "explorer.js")
"""dagre (the package ``@dagrejs/dagre`` of npm, 3.1.3, as published) lays out; the text beside it is its licence."""
MOST = 20_000
"""Operations on the page, those of all graphs together; graphs that come later are named without their operations."""


_KERNELS = " In a graph of kernels each call is one."


class ExplorerSection(ReportSection):
    """Where in the graphs?"""

    title = "Where in the graphs?"
    template = Path(__file__).with_name("section.html")
    scripts = tuple(Path(__file__).with_name(name) for name in SCRIPTS)

    def collect(self, run: ReportedRun) -> list[Row] | None:
        """Of each graph ``id, title, operations``, and ``shown``: whether the page draws it."""
        found, damaged = layers(run.artifacts)
        rows: list[Row] = []
        left = MOST
        for layer in found:
            count = boxes(layer)
            left -= count
            rows.append({"id": layer.id, "title": layer.title, "operations": count, "shown": left >= 0})
        rows += [{"id": graph, "title": graph, "operations": None, "shown": False} for graph in damaged]
        return rows or None

    def answer(self, data: list[Row] | None, report: Mapping[str, Any]) -> Answer | None:
        if not data:
            return None
        told = "; ".join(f"{row['title']}: {row['operations']}" for row in data if row["operations"] is not None)
        calls = _KERNELS if any(row["id"].endswith(" kernels") for row in data) else ""
        return Answer("told", counted(len(data), "graph"), f"Operations: {told}.{calls}")

    def not_established(self, data: list[Row] | None, report: Mapping[str, Any]) -> list[str]:
        return [f"{row['title']}: its file is damaged, so the page has no graph of it."
                for row in data or [] if row["operations"] is None]  # fmt: skip

    def page(self, data: list[Row] | None, artifacts: Artifacts) -> Mapping[str, Any]:
        """``explorer_data``: what the script draws; None where there is no graph."""
        wanted = {row["id"] for row in data or [] if row["shown"]}
        shown = [layer for layer in layers(artifacts)[0] if layer.id in wanted] if wanted else []
        return {"explorer_data": encoded(shown, marks(shown, artifacts)) if shown else None}
