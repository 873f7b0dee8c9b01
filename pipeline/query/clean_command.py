"""``inductor-debug clean``: removes stored runs, and nothing that is none."""

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.names import LOG, SWEEP_OWNER, own_names
from inductor_debug.pipeline.directory.ownership import is_owned, remove_run, remove_sweep
from inductor_debug.pipeline.directory.refusals import DirectoryRefused
from inductor_debug.pipeline.directory.removal import files_below
from inductor_debug.pipeline.live import tracked
from inductor_debug.pipeline.query import list_command as listing
from inductor_debug.stages.formatting import counted, human_bytes

COLUMNS = ("run", "verdict", "age_days", "size")
"""Of the table that is printed."""
_DAY_S = 86400.0


@dataclass(frozen=True)
class Found:
    """A run to be removed.

    Attributes:
        folder: its directory.
        verdict: of it. days: since it last wrote. nbytes: of its files; some may be shared with kept results.
    """

    folder: Path
    verdict: str
    days: float
    nbytes: int


@dataclass(frozen=True)
class Wanted:
    """Which runs are to be removed: those that all conditions fit.

    Attributes:
        asked: folder and columns.
        older_than: days since a run last wrote; None for any.
        larger_than: bytes; None for any.
    """

    asked: listing.Asked
    older_than: float | None
    larger_than: int | None

    @classmethod
    def of(cls, words: Sequence[str], older_than: float | None, larger_than: str | None) -> "Wanted":
        """What a command line asks for.

        Args:
            words: as of :meth:`~pipeline.query.list_command.Asked.of`.
            older_than: days.
            larger_than: a size such as ``1GiB``.

        Raises:
            ConfigurationError: no condition is given, or one is not valid.
        """
        asked, least = listing.Asked.of(words, "clean"), memory_limit_of(larger_than, "--larger-than")
        one = asked.root.is_dir() and store.find_runs(asked.root) == [asked.root]
        if not asked.patterns and older_than is None and least is None and not one:
            beside = f" beside {visible(str(asked.root))}, which is no run" if words else ""
            again = shlex.join(["clean", *words, "--older-than", "30"])
            raise ConfigurationError(f"clean: got no condition{beside}; valid: a run's folder, KEY=PATTERN, "
                                     "--older-than DAYS, --larger-than SIZE.\n"
                                     f"Try: inductor-debug {again}")  # fmt: skip
        if older_than is not None and not older_than >= 0:
            raise ConfigurationError(f"--older-than: got {older_than:g}; valid: days, 0 or more.\n"
                                     "Try: inductor-debug clean --older-than 30")  # fmt: skip
        return cls(asked, older_than, least)

    def found(self) -> list["Found"]:
        """The runs, oldest first."""
        with tracked(store.runs_by_start(self.asked.root), "reading runs") as runs:
            return [found for run in runs if (found := self.fitting(run)) is not None]

    def fits(self, run: Path) -> bool:
        """Whether all conditions fit a run as it is now."""
        return self.fitting(run) is not None

    def fitting(self, run: Path) -> "Found | None":
        """A run as it is now, where all conditions fit it."""
        row = store.row(run)
        found = _found(run, str(row["verdict"]))
        fits = self.asked.fits(row) and (self.older_than is None or found.days > self.older_than)
        return found if fits and (self.larger_than is None or found.nbytes > self.larger_than) else None


def _found(folder: Path, verdict: str) -> Found:
    sizes = 0
    for name in files_below(folder, own_names()):
        with contextlib.suppress(OSError):  # a run that goes on may remove it
            sizes += (folder / name).lstat().st_size
    return Found(folder, verdict, (time.time() - (folder / LOG).lstat().st_mtime) / _DAY_S, sizes)


def remove(wanted: Wanted, runs: Sequence[Found], tell: Callable[[str], None]) -> str:
    """Remove runs, then sweeps without jobs and folders that are empty; what came of it in a sentence.

    Args:
        wanted: conditions, which are looked at again: a run may have ended meanwhile.
        runs: that fitted them. The folder that was looked through stays.
        tell: called with why a run is left as it is.
    """
    removed = []
    with tracked(runs, "removing runs") as each:
        for run in each:
            folder = run.folder.absolute()
            try:
                if any(is_owned(above, SWEEP_OWNER) for above in folder.parents):
                    tell(f"left: {run.folder}: its sweep goes on")
                elif remove_run(folder, partial(wanted.fits, run.folder)):
                    removed.append(run)
                    _remove_above(wanted.asked.root.absolute(), folder)
                else:
                    tell(f"left: {run.folder}: it is no longer what was asked for")
            except DirectoryRefused as error:
                tell(f"left: {str(error).splitlines()[0]}")
    size = human_bytes(sum(run.nbytes for run in removed))
    rest = [run.folder for run in removed if run.folder.is_dir() and any(run.folder.iterdir())]
    theirs = f"; {counted(len(rest), 'folder')} of them left, for other files are in it" if rest else ""
    return f"removed {counted(len(removed), 'run')}, {size}{theirs}"


def _remove_above(root: Path, folder: Path) -> None:
    """Remove a run's folder where it is empty, a sweep's files where it has no job left, and so up to ``root``."""
    if folder == root != Path.cwd():  # a run that was named itself
        with contextlib.suppress(OSError):
            folder.rmdir()
    while folder != root and folder.is_relative_to(root):
        if os.path.lexists(folder / SWEEP_OWNER) and not store.find_runs(folder):
            remove_sweep(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if folder.exists():
            return
        folder = folder.parent


def named(runs: Sequence[Found]) -> list[dict[str, object]]:
    """Rows of the table of runs to be removed."""
    return [{"run": visible(str(run.folder)), "verdict": run.verdict, "age_days": round(run.days, 1),
             "bytes": run.nbytes} for run in runs]  # fmt: skip
