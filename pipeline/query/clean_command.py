"""``inductor-debug clean``: removes stored runs, and nothing that is none."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.units import format_bytes
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.names import LOG, SWEEP_OWNER, own_names
from inductor_debug.pipeline.directory.ownership import remove_run, remove_sweep
from inductor_debug.pipeline.directory.refusals import DirectoryRefused
from inductor_debug.pipeline.directory.removal import files_below
from inductor_debug.pipeline.query import list_command as listing
from inductor_debug.stages.formatting import counted

COLUMNS = ("run", "verdict", "age_days", "bytes")
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


def wanted(words: Sequence[str], older_than: float | None, larger_than: str | None) -> tuple[Path, list[Found]]:
    """The folder that was looked through, and the runs in it that all conditions fit, oldest first.

    Args:
        words: as of :meth:`~pipeline.query.list_command.Asked.of`.
        older_than: days since a run last wrote.
        larger_than: a size such as ``1GiB``.

    Raises:
        ConfigurationError: no condition is given, or one is not valid.
    """
    asked, least = listing.Asked.of(words), memory_limit_of(larger_than, "--larger-than")
    if not asked.patterns and older_than is None and least is None:
        raise ConfigurationError("clean: got no condition; valid: KEY=PATTERN, --older-than DAYS, --larger-than SIZE.\n"
                                 "Try: inductor-debug clean --older-than 30")  # fmt: skip
    if older_than is not None and not older_than >= 0:
        raise ConfigurationError(f"--older-than: got {older_than:g}; valid: days, 0 or more.\n"
                                 "Try: inductor-debug clean --older-than 30")  # fmt: skip
    rows = listing.rows(asked, None, lambda told: None)
    found = [_found(Path(row["run"]), str(row["verdict"])) for row in rows]
    return asked.root, [run for run in found if (older_than is None or run.days > older_than)
                        and (least is None or run.nbytes > least)]  # fmt: skip


def _found(folder: Path, verdict: str) -> Found:
    sizes = 0
    for name in files_below(folder, own_names()):
        with contextlib.suppress(OSError):  # a run that goes on may remove it
            sizes += (folder / name).lstat().st_size
    return Found(folder, verdict, (time.time() - (folder / LOG).lstat().st_mtime) / _DAY_S, sizes)


def remove(root: Path, runs: Sequence[Found], tell: Callable[[str], None]) -> str:
    """Remove runs, then sweeps below ``root`` without jobs and folders that are empty; what came of it in a sentence.

    Args:
        root: the folder that was looked through, which stays.
        runs: in it.
        tell: called with why a run is left as it is.
    """
    removed = []
    for run in runs:
        try:
            remove_run(run.folder)
        except DirectoryRefused as error:
            tell(f"left: {error}")
            continue
        removed.append(run)
        _remove_above(root, run.folder.parent)
    size = format_bytes(sum(run.nbytes for run in removed))
    rest = [run.folder for run in removed if run.folder.exists()]
    theirs = f"; {counted(len(rest), 'folder')} of them left, for other files are in it" if rest else ""
    return f"removed {counted(len(removed), 'run')}, {size}{theirs}"


def _remove_above(root: Path, folder: Path) -> None:
    """Remove a sweep's files where it has no job left, and the folders up to ``root`` that are empty then."""
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
