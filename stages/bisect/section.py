"""The report's part on a bisection: which part of the compiler it takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.bisection import SUBSYSTEMS
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said

_WORDS = {"found": "found", "none": "no fault"}


def bisection(artifacts: Artifacts, max_rows: int) -> Row | None:
    """The section's data; None where nothing was bisected."""
    facts = files.BISECTION.read(artifacts)
    if facts is None:
        return None
    found = [*facts.applications, *((facts.pattern and facts.pattern.applications) or [])]
    nodes = [{"name": item.name, "index": item.index, "definition": item.definition, **node}
             for item in found for node in [*map(vars, item.nodes)] or [{}]]  # fmt: skip
    return {
        "verdict": facts.verdict,
        "answer": facts.answer,
        "subsystem": SUBSYSTEMS.get(facts.subsystem or "", facts.subsystem),
        "remedy": facts.remedy,
        "nodes": nodes,
        "table": capped(files.PROBES.cells(artifacts), files.PROBES, max_rows),
    }


class BisectionSection(ReportSection):
    """Which part of the compiler?"""

    title = "Which part of the compiler?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return bisection(run.artifacts, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        known = data["verdict"] in ("found", "none")
        remedy = data["remedy"]
        option = remedy is not None and remedy.kind == "option"
        word = data["subsystem"] if known and data["subsystem"] else _WORDS.get(data["verdict"], "not established")
        return Answer("told" if known else "unknown", word,
                      said(report, "bisect"),
                      then=(f"inductor-debug rerun RUN {remedy.text}",) if option else ())  # fmt: skip

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        if data is None or data["verdict"] in ("found", "none"):
            return []
        return [headline(data["answer"])]
