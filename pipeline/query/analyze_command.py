"""``inductor-debug analyze``: a question to one stored run, or the same question to many."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query import analyze, open_run
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted


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
    for run in found.runs:
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


@dataclass(frozen=True)
class Runs:
    """Runs of several folders.

    Attributes:
        runs: with a result.
        lost: folder → why there is none: the run was killed, goes on, was rejected, or is damaged.
    """

    runs: list[StoredRun]
    lost: dict[Path, str]


def runs_of(folders: Sequence[Path]) -> Runs:
    """The runs of folders: each that is one, and of another all below it.

    Raises:
        UserError: a folder is not there, or none has a run with a result; of a single run why.
    """
    found = [run for folder in map(store.existing, folders) for run in store.find_runs(folder) or [folder]]
    runs, lost = [], {}
    for run in dict.fromkeys(found):
        try:
            runs.append(open_run(run))
        except UserError as error:
            if len(found) == 1:
                raise
            lost[run] = str(error).splitlines()[0].removeprefix(f"{run}: ")
    if not runs:
        named = ", ".join(map(str, folders))
        raise RunDirectoryError(f"RUN: {named}: no run there has a result; valid: runs' folders, or a sweep's.\n"
                                f"Try: inductor-debug list {shlex.quote(str(folders[0]))}")  # fmt: skip
    return Runs(runs, lost)
