"""What the profile stage answers: where the time goes."""

from dataclasses import replace

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.profile.section import longest
from inductor_debug.stages.stored_run import Analysis, StoredRun, Wanted, whole_table

PROFILED = ("lines", "kernels", "modules", "operations")
"""Tables, in the order of the answer."""


def profile(run: StoredRun, wanted: Wanted) -> Analysis:
    """Where the time goes: by line of the model, kernel, module and operation, the longest first."""
    stored = [name for name in PROFILED if run.has(files.PROFILE_TABLES[name])]
    if not stored:
        raise run.lacks("profile", "profile", "+stages=profile")
    tables = [whole_table(run, name, files.PROFILE_TABLES[name]) for name in stored]
    tables = [replace(table, rows=sorted(table.rows, key=longest)) for table in tables]
    return Analysis([run.message("profile")], tables)
