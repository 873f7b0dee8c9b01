"""What the kerneldiff stage answers: which results are wrong, and by how much. Free of torch."""

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.kerneldiff import section
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, whole_table

NUMBER_COLUMNS = ("kind", "path", "verdict", "bound", "ratio", "max_abs", "max_rel", "rmse", "max_ulp", "nan_reference",
                  "nan_test", "message")  # fmt: skip


def numerics(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, and every compared tensor, the worst first."""
    stored = section.numerics(run.artifacts, run.summary, 0)
    if stored is None:
        raise run.lacks("compared numbers", "kerneldiff", "stages=[capture,lower,kerneldiff,report]")
    rows = files.OUTPUTS.read(run.artifacts) or []
    worst = files.OUTPUTS.typed(sorted(rows, key=section.worst_first))
    told = [run.message("kerneldiff"), stored["tally"] or "", stored["summary"].get("verdict") or ""]
    diagnosis = stored["diagnosis"] or {}
    if (stored["summary"].get("failed") or 0) and not run.has(files.BISECTION):
        told.append(f"which part of the compiler? Try: {run.rerun('stages=[kerneldiff,bisect,report]')}")
    tables = [Table("outputs", NUMBER_COLUMNS, worst, files.OUTPUTS.path)]
    for name, file in (("drift", files.DRIFT), ("jitter", files.JITTER)):
        if run.has(file):
            tables.append(whole_table(run, name, file))
    if diagnosis.get("error"):
        told.append(f"the {diagnosis['error'].get('side')} side raised {diagnosis['error'].get('type')}")
    return Analysis([line for line in dict.fromkeys(told) if line], tables)
