"""``inductor-debug analyze``: a question to one stored run, or the same question to many."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.query import analyze, open_run
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
    runs = runs_of(folders) if folders else [store.newest()]
    if len(runs) == 1:
        stored = open_run(runs[0])
        return analyze(stored, kind, wanted), {"run": str(stored.folder), "type": kind}
    told: list[str] = []
    tables: dict[str, Table] = {}
    refused: list[UserError] = []
    for run in runs:
        name = str(run)
        try:
            found = analyze(open_run(run), kind, wanted)
        except UserError as error:
            refused.append(error)
            told.append(f"{name}: {str(error).splitlines()[0].removeprefix(f'{name}: ')}")
            continue
        told += [f"{name}: {sentence}" for sentence in found.told]
        for table in found.tables:
            _add(tables, table, name)
    if len(refused) == len(runs):
        raise refused[0]
    return Analysis(told, list(tables.values())), {"runs": [*map(str, runs)], "type": kind}


def _add(tables: dict[str, Table], table: Table, run: str) -> None:
    before = tables.get(table.name, Table(table.name, ("run",), []))
    columns = tuple(dict.fromkeys([*before.columns, *(name for name in table.columns if name != "run")]))
    tables[table.name] = Table(table.name, columns, [*before.rows, *(dict(row) | {"run": run} for row in table.rows)])


def runs_of(folders: Sequence[Path]) -> list[Path]:
    """The folders of runs: each that is one, and of another all below it that have a result.

    Raises:
        RunDirectoryError: there is no such folder, or it holds no run.
    """
    found: list[Path] = []
    for folder in map(store.existing, folders):
        below = [folder] if StoredFolder(folder).has(SUMMARY) else store.find_runs(folder)
        held = [run for run in below if StoredFolder(run).has(SUMMARY)]
        if not held:
            raise RunDirectoryError(f"RUN: {folder} holds no run with a result; valid: runs' folders, or a sweep's.\n"
                                    f"Try: inductor-debug list {folder}")  # fmt: skip
        found += held
    return list(dict.fromkeys(found))
