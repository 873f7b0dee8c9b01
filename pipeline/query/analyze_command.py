"""``inductor-debug analyze``: a question to one stored run, or the same question to many."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.live import tracked
from inductor_debug.pipeline.query import analyze
from inductor_debug.pipeline.query.runs import runs_of
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import Analysis, Table, Wanted


def answered(folders: Sequence[Path], kind: str, wanted: Wanted) -> tuple[Analysis, dict[str, Any]]:
    """The answer, and what JSON has beside it.

    Of several runs each table has the rows of all, with the run in its first column. A run without an answer is told.

    Args:
        folders: of runs, and of folders that hold runs; the newest run where there is none.
        kind: of question.
        wanted: what of its answer.

    Raises:
        UserError: no run holds an answer, or there is no such question.
    """
    found = runs_of(folders or [store.newest()])
    if len(found.runs) == 1 and not found.lost:
        (stored,) = found.runs
        return analyze(stored, kind, wanted), {"run": str(stored.folder), "type": kind}
    told: list[str] = []
    tables: dict[str, Table] = {}
    refused: list[UserError] = []
    with tracked(found.runs, f"asking {counted(len(found.runs), 'run')}") as runs:
        for run in runs:
            name = str(run.folder)
            try:
                answer = analyze(run, kind, wanted)
            except UserError as error:
                refused.append(error)
                told.append(f"{name}: {str(error).splitlines()[0].removeprefix(f'{name}: ')}")
                continue
            told += [f"{name}: {sentence}" for sentence in answer.told]
            for table in answer.tables:
                _add(tables, table, name)
    if len(refused) == len(found.runs):
        raise refused[0]
    told += [f"{folder}: {reason}" for folder, reason in found.lost.items()]
    return Analysis(told, list(tables.values())), {"runs": [str(run.folder) for run in found.runs], "type": kind}


def _add(tables: dict[str, Table], table: Table, run: str) -> None:
    before = tables.get(table.name, Table(table.name, ("run",), []))
    columns = tuple(dict.fromkeys([*before.columns, *(name for name in table.columns if name != "run")]))
    tables[table.name] = Table(table.name, columns, [*before.rows, *(dict(row) | {"run": run} for row in table.rows)])
