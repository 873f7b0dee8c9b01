"""The report's part on a profile: where a compiled step's time goes. Free of torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.reading import Row, capped, read_json, read_table
from inductor_debug.stages.report.sections import ReportedRun, ReportSection

FACTS = "profile/summary.json"
TABLES = {name: f"profile/{name}.csv" for name in ("kernels", "operations", "modules", "lines")}
TRACE = "profile/trace.json.gz"
MICROSECONDS = ("time_us", "iqr_us", "alone_us", "at_most_us")


def profiling(artifacts: Artifacts, max_rows: int) -> Row | None:
    """The section's data, the longest first; None where the stage ``profile`` left nothing."""
    facts = read_json(artifacts, FACTS)
    if facts is None:
        return None
    tables = {name: capped(_table(artifacts, path), path, max_rows, _longest) for name, path in TABLES.items()}
    trace = TRACE if TRACE in artifacts.names("profile/") else None
    return {"facts": facts, "trace": trace, **tables}


def _table(artifacts: Artifacts, path: str) -> list[Row] | None:
    """A table's rows, names that list several as lists, and a name that is empty said to be."""
    rows = read_table(artifacts, path)
    for row in rows or []:
        if "sources" in row:
            row["sources"] = row["sources"].split()
        for key in ("operation", "source"):
            if key in row:
                row[key] = row[key] or "not established"
        if "module" in row:
            row["module"] = row["module"] or "all"
    return rows


def _longest(row: Row) -> float:
    return -float(row["time_us"] or 0.0)


class ProfileSection(ReportSection):
    """Where does the time go?"""

    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return profiling(run.artifacts, run.max_rows)

    def findings(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        if data is None or not data["facts"]["longest"]:
            return []
        facts = data["facts"]
        share = facts["inside_us"] / facts["step_us"]
        return [f"Time: {100 * share:.0f} % of a step in kernels; the longest is {facts['longest'][0]}."]

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        return [] if data is None else [f"Profile, {note}." for note in data["facts"]["not_established"]]
