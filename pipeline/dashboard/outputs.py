"""The runs and sweeps below one folder, and no path outside it."""

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.run.sweep.table import TABLE
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import Benchmark

CASE = ("model", "accel", "backend", "dtype", "device", "mode")
"""What runs have in common that are compared over time."""
MEASURED = ("test.median_ms", "test.compile_s", "started")
"""Of a run with a result, what its row has beside the columns of :data:`~pipeline.directory.store.COLUMNS`."""
Row = dict[str, Any]


@dataclass(frozen=True)
class _Kept:
    """A row, and what its files were when it was read."""

    state: object
    row: Row


class Outputs:
    """What is stored below a folder.

    A row is read again once its run's result, or the time of its folder, is another one.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._rows: dict[Path, _Kept] = {}

    def inside(self, name: str) -> Path:
        """The folder that a name relative to the root stands for.

        Raises:
            UserError: it leads out of the root, also through a link, or is no folder.
        """
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root) or not path.is_dir():
            raise UserError(f"got {visible(name)!r}", key="run", valid=f"a folder below {visible(str(self.root))}",
                            hint="choose it on the page Runs")  # fmt: skip
        return path

    def name_of(self, folder: Path) -> str:
        """What :meth:`inside` takes."""
        return folder.relative_to(self.root).as_posix()

    def typed(self, name: str) -> str:
        """What is typed for it on the command line, from where the page was started."""
        path = self.root / name
        return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

    def rows(self) -> list[Row]:
        """A row a run, the newest first: the columns of a listing, those of :data:`MEASURED`, ``device``.

        ``run`` is relative to the root. Text is as :func:`~models.visible.visible` has it.
        """
        if not self.root.is_dir():
            return []
        found = {folder: self._read_once(folder) for folder in store.find_runs(self.root)}
        self._rows = found  # as a whole: other readers' threads look at it
        return sorted((kept.row for kept in found.values()), key=lambda row: row["started"], reverse=True)

    def _read_once(self, folder: Path) -> _Kept:
        state, kept = _state(folder), self._rows.get(folder)
        if kept is not None and kept.state == state:
            return kept
        row = _read(folder) | {"run": self.name_of(folder)}
        return _Kept(state, {key: visible(value) if isinstance(value, str) else value for key, value in row.items()})

    def sweeps(self) -> list[str]:
        """Names of the folders with a sweep's table, the newest first by name."""
        if not self.root.is_dir():
            return []
        found = [folder for folder, names in store.folders_below(self.root) if TABLE in names]
        return sorted(map(self.name_of, found), reverse=True)


def _read(folder: Path) -> Row:
    """A run's row, from one look at its result where it has one."""
    try:
        summary = files.SUMMARY.shaped(store.read_summary(folder))
        found = store.row_of(folder, summary) | {"started": store.moment(summary.run.started or "")}
    except (UserError, ValueError, OverflowError):
        return store.row(folder) | dict.fromkeys((*MEASURED, "device")) | {"started": store.began(folder)}
    side = (summary.benchmark or Benchmark()).test
    return found | {"test.median_ms": side.median_ms, "test.compile_s": side.compile_s, "device": summary.run.device}


def _state(folder: Path) -> object:
    """What changes once there is something else to read; of a run without a result, always."""
    try:
        found = os.stat(folder / SUMMARY)
    except OSError:
        return object()  # equal to no other: it is read each time
    return found.st_mtime_ns, found.st_size, found.st_ino


@functools.cache
def opened(root: Path) -> Outputs:
    """One for all readers of a folder."""
    return Outputs(root)


def cases(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows with a result by what they have in common, the case of the newest first; each case's oldest first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["verdict"] not in (store.NO_RESULT, store.DAMAGED):
            found.setdefault(", ".join(str(row[key]) for key in CASE), []).append(row)
    return {case: list(reversed(group)) for case, group in found.items()}
