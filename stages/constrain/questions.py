"""What the constrain stage answers: what breaks the accelerator's rules."""

from inductor_debug.models.errors import UserError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.constrain import section
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, whole_table


def constraints(run: StoredRun, wanted: Wanted) -> Analysis:
    """What the findings come to by rule and effect, the lines that are rejected or cost most, and every finding."""
    stored = section.violations(run.artifacts, run.head.violations, 0)
    if stored is None:
        raise run.lacks("violations", "constrain", "stages=[capture,constrain,report]", "accel=strict16")
    if stored["total"] is None:
        reason = run.message("constrain") or "the profile has no rules"
        raise UserError(
            f"holds no violations: {reason}",
            key=str(run.folder),
            hint=f"inductor-debug check {run.folder} accel=strict16",
        )
    lines = [vars(line) for line in stored["top_lines"]]
    return Analysis([run.message("constrain")], [
        whole_table(run, "rules", files.BY_RULE),
        Table("lines", list(lines[0]) if lines else ["source"], lines),
        whole_table(run, "violations", files.VIOLATIONS),
    ])  # fmt: skip
