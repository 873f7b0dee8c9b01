"""The report's part on guards: what recompiles, why, and what dynamic shapes would change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.guards import GuardedGraph
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said


def guards(artifacts: Artifacts, max_rows: int) -> Row | None:
    """The section's data; None where the stage ``guards`` left nothing."""
    facts = files.GUARDS.read(artifacts)
    if facts is None:
        return None
    return {
        "graphs": [_graph(graph) for graph in facts.graphs],
        "recompiling": facts.recompiling,
        "variations": files.GUARD_VARIATIONS.cells(artifacts) or [],
        "recompiles": capped(files.GUARD_RECOMPILES.cells(artifacts), files.GUARD_RECOMPILES, max_rows),
        "breaks": capped(files.GUARD_BREAKS.cells(artifacts), files.GUARD_BREAKS, max_rows),
        "limits": [*map(vars, facts.limits)],
        "not_established": facts.not_established,
    }


def _graph(graph: GuardedGraph) -> Row:
    changed = [f"{guard.name}: {'; '.join(guard.becomes) or guard.dynamic}" for guard in graph.guards
               if guard.dynamic in ("relaxed", "gone")]  # fmt: skip
    unknown = dict.fromkeys(("kept", "relaxed", "gone"), None if graph.not_established else 0)
    return {"graph": graph.graph, "function": graph.function, "source": f"{graph.file}:{graph.line}",
            "guards": len(graph.guards), **unknown, **graph.dynamic_shapes, "changed": changed}  # fmt: skip


class GuardsSection(ReportSection):
    """What makes it compile again?"""

    title = "What makes it compile again?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return guards(run.artifacts, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        again = [f"{kind} ({', '.join(policies)})" for kind, policies in data["recompiling"].items() if policies]
        word = counted(len(again), "variation") if again else "nothing"
        return Answer("warn" if data["limits"] else "told", word, said(report, "guards"))

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        return [f"Guards, {note}." for note in (data or {}).get("not_established", [])]
