"""What the profile stage answers: where the time goes."""

from dataclasses import replace

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Wanted, whole_table

PROFILED = ("lines", "kernels", "modules", "operations")
"""Tables, in the order of the answer."""


def profile(run: StoredRun, wanted: Wanted) -> Analysis:
    """Where the time goes: by line of the model, kernel, module and operation, the longest first."""
    stored = [name for name in PROFILED if run.has(files.PROFILE_TABLES[name])]
    if not stored:
        raise run.lacks("profile", "profile", "+stages=profile")
    tables = [whole_table(run, name, files.PROFILE_TABLES[name]) for name in stored]
    return Analysis([run.message("profile")], [replace(table, rows=sorted(table.rows, key=_time)) for table in tables])


def _time(row: Row) -> float:
    return -float(row.get("time_us") or 0.0)
