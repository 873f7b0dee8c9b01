"""What the kerneldiff stage answers: which results are wrong, and by how much. Free of torch."""

from inductor_debug.stages.bisect.section import FACTS
from inductor_debug.stages.kerneldiff import section
from inductor_debug.stages.reading import read_table
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, parsed, whole_table

NUMBER_COLUMNS = ("kind", "path", "verdict", "bound", "ratio", "max_abs", "max_rel", "rmse", "max_ulp", "nan_reference",
                  "nan_test", "message")  # fmt: skip


def numerics(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, and every compared tensor, the worst first."""
    stored = section.numerics(run.artifacts, run.summary, 0)
    if stored is None:
        raise run.lacks("compared numbers", "kerneldiff", "stages=[capture,lower,kerneldiff,report]")
    rows = read_table(run.artifacts, section.TABLE) or []
    worst = [{key: parsed(value) for key, value in row.items()} for row in sorted(rows, key=section.worst_first)]
    told = [run.message("kerneldiff"), stored["tally"] or "", stored["summary"].get("verdict") or ""]
    diagnosis = stored["diagnosis"] or {}
    if (stored["summary"].get("failed") or 0) and not run.has(FACTS):
        told.append(f"which part of the compiler? Try: {run.rerun('stages=[kerneldiff,bisect,report]')}")
    tables = [Table("outputs", NUMBER_COLUMNS, worst, section.TABLE)]
    for name in ("drift", "jitter"):
        if run.has(f"kerneldiff/{name}.csv"):
            tables.append(whole_table(run, name, f"kerneldiff/{name}.csv"))
    if diagnosis.get("error"):
        told.append(f"the {diagnosis['error'].get('side')} side raised {diagnosis['error'].get('type')}")
    return Analysis([line for line in dict.fromkeys(told) if line], tables)
