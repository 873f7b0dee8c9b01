"""Reads stored runs: finds them, and tells of one or of many from their ``summary.json``."""

import contextlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from inductor_debug.models import stored
from inductor_debug.models.errors import DamagedError, RunDirectoryError, closest_first, quoted
from inductor_debug.models.stored import files_below
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import LOG, OWNER, SUMMARY, own_names
from inductor_debug.pipeline.directory.ownership import is_owned
from inductor_debug.pipeline.directory.summary import EXIT_CODES
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import Benchmark, Summary
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.settings import shown_name
from inductor_debug.stages.stored_run import made_again

OUTPUTS = Path("outputs")
LATEST = Path("latest")
"""Names the run below outputs that was started last."""
_ABOUT = ("model", "accel", "backend", "dtype", "mode")
COLUMNS = ("run", *_ABOUT, "verdict", "violations", "numerics", "speedup", "speedup_ci95", "seconds")
"""Columns of the table of runs."""

DAMAGE = "damage"
"""A further column: what can't be read of a run; None where all of its row could be."""

NO_RESULT = "no result"
"""Shown as the verdict of a run that left no summary: it was killed, or it runs still."""
DAMAGED = "damaged"
"""Shown as the verdict of a run whose summary can't be read."""
HYDRA = ".hydra/config.yaml"
"""The stored configuration."""
RESOLVED = ".hydra/resolved.yaml"
"""Values of its interpolations, if it has any."""
_NEAREST = 3


def find_runs(root: Path, unlisted: Callable[[str], None] | None = None) -> list[Path]:
    """Run directories below ``root`` (or ``root`` itself) by path, those without a result included.

    Dates, times and numbers of jobs are compared as such. :func:`runs_by_start` has them as they were started.

    Args:
        root: a folder.
        unlisted: called with a message for a folder that can't be listed, so that what is in it is not known.

    Raises:
        RunDirectoryError: there is no such folder.
    """
    if not root.is_dir():
        raise RunDirectoryError(
            f"FOLDER: no folder {str(root)!r}; valid: a folder that holds runs, by default outputs.\n"
            "Try: inductor-debug list FOLDER"
        )
    logged = (folder for folder, names in folders_below(root, unlisted) if LOG in names)
    return sorted(filter(_is_run, logged), key=_by_numbers)


def folders_below(root: Path, unlisted: Callable[[str], None] | None = None) -> Iterator[tuple[Path, list[str]]]:
    """As :func:`~models.stored.files_below`, without the folders that a run has made in its own."""
    own = set(own_names())

    def of_a_run(names: Collection[str]) -> Collection[str]:
        return own if LOG in names and (SUMMARY in names or HYDRA.partition("/")[0] in names) else ()

    return files_below(root, unlisted, of_a_run)


def runs_by_start(root: Path, unlisted: Callable[[str], None] | None = None) -> list[Path]:
    """As :func:`find_runs`, the one that was started first before the others, whatever it is called."""
    return sorted(find_runs(root, unlisted), key=began)


def _by_numbers(folder: Path) -> list[tuple[float, str]]:
    """Sorts folders by their paths: dates and times by their text, the jobs of a sweep by their number."""
    numbers = [re.match(r"\d+", part) for part in folder.parts]
    return [(int(number[0]) if number else math.inf, part) for number, part in zip(numbers, folder.parts, strict=True)]


def _is_run(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in (SUMMARY, HYDRA)) and os.path.lexists(folder / LOG)


def locate(run: Path) -> Path:
    """The folder of a run given by its path, by its id as a report prints it (``DATE/TIME-…``), or as ``latest``.

    The last two are looked for below outputs.
    """
    if run.exists() or run.is_absolute():
        return run
    if run == LATEST:
        return newest()
    if not OUTPUTS.is_dir():
        return run
    found = [folder for folder in find_runs(OUTPUTS) if folder.parts[-len(run.parts) :] == run.parts]
    return found[0] if len(found) == 1 else run


def newest() -> Path:
    """The run below outputs that was started last; RunDirectoryError where there is none."""
    runs = find_runs(OUTPUTS) if OUTPUTS.is_dir() else []
    if not runs:
        raise RunDirectoryError(
            f"RUN: there is no run below {str(OUTPUTS)!r} here, of which the newest would be taken; valid: a run's "
            "folder.\nTry: inductor-debug list FOLDER"
        )
    return max(runs, key=began)


def began(run: Path) -> float:
    """When a run started, in seconds since 1970: as its result tells, so that a copy keeps its place.

    Of a run without one when its owner's file, else its log, was written.
    """
    with contextlib.suppress(OSError, DamagedError, TypeError, KeyError, ValueError, OverflowError):
        return moment(stored.read_json(run / SUMMARY, Any, run)["run"]["started"])
    for name in (OWNER, LOG):
        with contextlib.suppress(OSError):
            return (run / name).stat().st_mtime
    return 0.0


def moment(started: str) -> float:
    """When a result says that its run started, in seconds since 1970; ValueError or OverflowError for no time."""
    return datetime.fromisoformat(started).timestamp()


def existing(run: Path) -> Path:
    """The folder of a run as :func:`locate` finds it; RunDirectoryError where there is none."""
    folder = locate(run)
    if not folder.is_dir():
        raise _without_summary(folder)
    return folder


def read_summary(run: Path) -> dict[str, Any]:
    """A run's ``summary.json``; RunDirectoryError where the folder is not a run or the file is damaged."""
    folder = StoredFolder(run)
    try:
        found: dict[str, Any] = folder.read_json(SUMMARY)
    except FileNotFoundError:
        raise _without_summary(run) from None
    except DamagedError as error:  # nor can what compiled the run be known
        raise error.with_parts(hint=made_again(run, "--anyway")) from error
    if found["verdict"] not in EXIT_CODES:
        raise DamagedError(
            f"verdict is {visible(repr(found['verdict']))}",
            key=visible(str(run / SUMMARY)),
            valid=", ".join(EXIT_CODES),
            hint=made_again(run, "--anyway"),
        )
    return found


def _without_summary(run: Path) -> RunDirectoryError:
    rejected, shown = _rejection(run), visible(str(run))
    if rejected:
        return RunDirectoryError(f"{shown}: nothing ran, the configuration was rejected. {' '.join(rejected.split())}")
    if is_owned(run):
        return RunDirectoryError(
            f"{shown}: {NO_RESULT} yet: the run goes on; {LOG} tells how far it came.\nTry: tail -f {shown}/{LOG}"
        )
    if _is_run(run):
        return RunDirectoryError(
            f"{shown}: {NO_RESULT}: the run was killed, or it runs on another machine; {LOG} tells how far it came.\n"
            f"Try: inductor-debug rerun {shown}"
        )
    below = [visible(str(found)) for found in sorted(run.glob("*/"), key=_by_numbers) if _is_run(found)]
    if below:
        return RunDirectoryError(
            f"RUN: got {str(run)!r}, which holds {counted(len(below), 'run')}; valid: a run's folder, such as "
            f"{below[0]}.\nTry: inductor-debug list {quoted(visible(str(run)))}"
        )
    known = [visible(str(found)) for found in find_runs(OUTPUTS)] if OUTPUTS.is_dir() else []
    near = ", ".join(closest_first(str(run), known)[:_NEAREST])
    return RunDirectoryError(
        f"RUN: got {str(run)!r}; valid: a run's folder{f', such as {near}' if near else ''}.\nTry: inductor-debug list"
    )


def _rejection(run: Path) -> str:
    """The message of a configuration that could not be run; empty where it was none, or can't be read."""
    try:
        found = files.CONFIGURATION_ERROR.read(StoredFolder(run))
    except DamagedError:
        return ""
    return "" if found is None else found.message


def row(run: Path) -> dict[str, Any]:
    """One line of the table of runs, keys as in ``COLUMNS`` and :data:`DAMAGE`; what a run does not tell is None."""
    try:
        summary = files.SUMMARY.shaped(read_summary(run))
    except DamagedError as error:
        return dict.fromkeys(COLUMNS) | {"run": str(run), "verdict": DAMAGED, DAMAGE: str(error.with_parts(hint=""))}
    except RunDirectoryError:
        verdict = "rejected" if _rejection(run) else NO_RESULT
        return dict.fromkeys(COLUMNS) | {"run": str(run), **_configured(run), "verdict": verdict, DAMAGE: None}
    return row_of(run, summary)


def row_of(run: Path, summary: Summary) -> dict[str, Any]:
    """As :func:`row`, of a run whose result is read already."""
    benchmark = summary.benchmark or Benchmark()
    interval = [float(limit) for limit in benchmark.speedup_ci95 or () if limit is not None]
    shown = "{:.3g} to {:.3g}".format(*interval) if interval else None
    established = benchmark.established is not False
    return {
        "run": str(run),
        **{key: getattr(summary.run, key) for key in _ABOUT},
        "verdict": summary.verdict,
        "violations": summary.violations and summary.violations.total,
        "numerics": summary.numerics and summary.numerics.verdict,
        "speedup": benchmark.speedup if established else None,
        "speedup_ci95": shown if established else "not established",
        "seconds": summary.run.seconds,
        DAMAGE: None,
    }


def build_target(run: Path) -> str:
    """The dotted name of what builds a run's model; empty where the stored configuration does not tell."""
    try:
        configured: _Configured = StoredFolder(run).read_yaml(HYDRA, _Configured)
    except (FileNotFoundError, DamagedError):
        return ""
    return str(configured.model.build.get("_target_") or "")


@dataclass(frozen=True)
class _Model:
    name: str
    build: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Accel:
    name: str


@dataclass(frozen=True)
class _Backend:
    name: str
    adapter: str
    _target_: str | None = None


@dataclass(frozen=True)
class _Configured:
    """What a listing takes from a stored configuration."""

    model: _Model
    accel: _Accel
    backend: _Backend
    dtype: str
    mode: str


def _configured(run: Path) -> dict[str, Any]:
    """What the stored configuration tells of a run; empty where it can't be read."""
    try:
        config: _Configured = StoredFolder(run).read_yaml(HYDRA, _Configured)
    except (FileNotFoundError, DamagedError):
        return {}
    backend = shown_name(*vars(config.backend).values())
    names = {"model": config.model.name, "accel": config.accel.name, "backend": backend}
    return {**names, "dtype": config.dtype, "mode": config.mode}
