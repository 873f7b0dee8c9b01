"""The stored runs of folders: those with a result, and why the others have none."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.live import tracked
from inductor_debug.pipeline.query import open_run
from inductor_debug.stages.stored_run import StoredRun


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
    with tracked(list(dict.fromkeys(found)), "reading runs") as each:
        for run in each:
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
