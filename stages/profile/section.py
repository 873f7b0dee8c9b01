"""The report's part on a profile: where a compiled step's time goes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row, Table
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import percent
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said

NOISY = 0.15
"""Interquartile range over median of the steps, recorded or not, above which a reader is told."""


def profiling(artifacts: Artifacts, max_rows: int) -> Row | None:
    """The section's data, the longest first; None where the stage ``profile`` left nothing."""
    facts = files.PROFILE.read(artifacts)
    if facts is None:
        return None
    tables = {
        name: capped(_rows(artifacts, file), file, max_rows, longest) for name, file in files.PROFILE_TABLES.items()
    }
    trace = next(iter(files.TRACE.stored(artifacts)), None)
    return {"facts": facts, "trace": trace, **tables}


def _rows(artifacts: Artifacts, file: Table) -> list[Row] | None:
    """A table's rows, names that list several as lists, and a name that is empty said to be."""
    cells = file.cells(artifacts)
    if cells is None:
        return None
    rows: list[Row] = [{**row} for row in cells]
    for row in rows:
        if "sources" in row:
            row["sources"] = row["sources"].split()
        for key in ("operation", "source"):
            if key in row:
                row[key] = row[key] or "not established"
        if "module" in row:
            row["module"] = row["module"] or "all"
    return rows


def longest(row: Row) -> float:
    """Sorts rows by their time, the longest first."""
    return -float(row.get("time_us") or 0.0)


class ProfileSection(ReportSection):
    """Where does the time go?"""

    title = "Where does the time go?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return profiling(run.artifacts, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None or not data["facts"].longest:
            return None
        facts = data["facts"]
        share = percent(round(facts.inside_us / facts.step_us, 2))
        return Answer("told", f"{share} in kernels", said(report, "profile"))

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        return [] if data is None else [f"Profile, {note}." for note in data["facts"].not_established]
