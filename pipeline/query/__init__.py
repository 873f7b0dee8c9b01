"""Questions to a stored run, answered from its files, without torch: ``inductor-debug analyze``."""

from pathlib import Path

from inductor_debug.models.errors import UserError, invalid_choice
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.run.compiled_by import made_with_missing
from inductor_debug.stages import registry
from inductor_debug.stages.declaration import Question, named
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted

__all__ = ["Analysis", "StoredRun", "Table", "Wanted", "analyze", "open_run", "questions"]

_SUMMARY = Question(
    "what came of the run, and what else can be asked of it?", "inductor_debug.pipeline.query.overview:summary"
)

OPTIONS = {"graph": "--graph", "lines": "--line", "kernels": "--kernel", "nodes": "--node"}
"""Field of :class:`Wanted` → the option that fills it."""


def questions() -> dict[str, Question]:
    """``--type`` → the question: that about the run as a whole, then those that the stages declare."""
    return {"summary": _SUMMARY} | registry.questions()


def open_run(folder: Path) -> StoredRun:
    """A stored run.

    Args:
        folder: a run's folder, or its id as a report prints it.

    Raises:
        RunDirectoryError: it is no run, or left no ``summary.json``.
    """
    found = store.existing(folder)
    return StoredRun(found, store.read_summary(found), StoredFolder(found))


def analyze(run: StoredRun, name: str, wanted: Wanted) -> Analysis:
    """The answer of one type.

    Raises:
        UserError: no such type, an option that it does not take, or a run that does not hold it.
    """
    known = questions()
    if name not in known:
        gone = made_with_missing(run.head.compiled_by)
        where = f"a run that was {gone}" if gone else ""
        raise invalid_choice("--type", name, known, where=where, example="--type {}")
    takes = known[name].takes
    for field, option in OPTIONS.items():
        if getattr(wanted, field) and field not in takes:
            valid = ", ".join(OPTIONS[each] for each in takes) or f"--type {name} without any"
            fitting = next(other for other, question in known.items() if field in question.takes)
            raise UserError(
                f"--type {name}: got {option}, which it does not take; valid: {valid}.\nTry: --type {fitting}"
            )
    return named(known[name].answer)(run, wanted)
