"""Its section of the report, and its answer to ``analyze --type acme_energy``. Imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug import Analysis, Answer, ReportedRun, ReportSection, StoredRun, Table, Wanted

COLUMNS = ("graph", "operation", "microjoules")
TABLE = "acme_energy/operations.csv"


class EnergySection(ReportSection):
    """What does a step cost?"""

    title = "What does a step cost?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> dict[str, Any] | None:
        if TABLE not in run.artifacts.names("acme_energy/"):
            return None
        rows = run.artifacts.read_table(TABLE)
        return {"total": run.summary["acme_energy"]["microjoules"], "rows": rows[: run.max_rows], "count": len(rows)}

    def answer(self, data: dict[str, Any] | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        return Answer("told", f"{data['total']:.3g} µJ", f"A step takes {data['total']:.3g} µJ on acme.")


def answer(run: StoredRun, wanted: Wanted) -> Analysis:
    """The operations, the costliest first."""
    if not run.has(TABLE):
        raise run.lacks("energy", "acme_energy", "+stages=acme_energy")
    ordered = sorted(run.table(TABLE), key=lambda row: -row["microjoules"])
    return Analysis([run.message("acme_energy")], [Table("operations", COLUMNS, ordered, TABLE)])
