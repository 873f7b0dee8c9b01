"""What came of a stored run, and which questions it holds the answers to."""

from collections import Counter

from inductor_debug.models.errors import UserError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.declaration import Question, named
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.registry import questions
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Table, Wanted


def summary(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, each stage, the main findings, and what else can be asked of this run."""
    found = run.json(files.REPORT).findings if run.has(files.REPORT) else []
    name = ", ".join(str(getattr(run.head.run, key)) for key in ("model", "accel", "backend", "dtype", "mode"))
    told = [f"{name}: {run.head.verdict}", *found]
    below = Counter(name.split("/")[0] for name in run.names if "/" in name)
    asked = [{"type": name, "question": kind.text, **_answered(run, kind)}
             for name, kind in questions().items()]  # fmt: skip
    folders = [{"folder": name, "files": count} for name, count in sorted(below.items()) if not name.startswith(".")]
    columns = ("name", "status", "seconds", "message")
    stages = [{column: getattr(stage, column) for column in columns} for stage in run.head.stages]
    stages = [row | {"message": headline(row["message"] or "")} for row in stages]
    return Analysis(told, [
        Table("stages", columns, stages, files.SUMMARY.path),
        Table("types", ("type", "held", "question", "otherwise"), asked),
        Table("folders", ("folder", "files"), folders),
    ])  # fmt: skip


def _answered(run: StoredRun, question: Question) -> Row:
    """Whether the run holds an answer, and what to type where it does not."""
    try:
        named(question.answer)(run, Wanted())
    except UserError as error:
        return {"held": False, "otherwise": error.hint or str(error)}
    return {"held": True, "otherwise": None}
