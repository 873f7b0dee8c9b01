"""Failures that an earlier run of the same output directory has met, by their fingerprints."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import parse_json, read_bytes
from inductor_debug.pipeline.directory.names import SUMMARY, SWEEP_OWNER
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import ReproRecord, Summary
from inductor_debug.stages.formatting import counted

_BELOW = 3
"""Folders between an output directory and a run of it: a day's, and a sweep's."""


def with_met(repros: Sequence[ReproRecord], run: Path, started: str | None) -> list[ReproRecord]:
    """Reproductions of a run, each with the first earlier run that met its failure.

    A run that left no summary that can be read is passed over.

    Args:
        repros: of the run.
        run: its folder.
        started: its date and time, ISO 8601.
    """
    looked_for = {item.fingerprint for item in repros} - {""}
    began = _moment(started)
    if not looked_for or began is None:
        return list(repros)
    first: dict[str, tuple[datetime, str]] = {}
    for folder in _runs(_outputs(run), _BELOW):
        summary = None if folder == run else _summary(folder, looked_for)
        when = None if summary is None else _moment(summary.run.started)
        if summary is None or when is None or when >= began:
            continue
        for item in summary.repros or []:
            if item.fingerprint in looked_for:
                entry = (when, run_id(folder))
                first[item.fingerprint] = min(first.get(item.fingerprint, entry), entry)
    return [replace(item, met_in=first[item.fingerprint][1]) if item.fingerprint in first else item for item in repros]


def told_of(repros: Sequence[ReproRecord]) -> str:
    """``met before in RUN``, or how many of the failures were and where; empty where none was."""
    met = {item.fingerprint: item.met_in for item in repros if item.met_in is not None}
    every = {item.fingerprint for item in repros}
    runs = ", ".join(sorted(set(met.values())))
    if not met:
        return ""
    some = "" if len(every) == 1 else f"{len(met)} of {counted(len(every), 'failure')} with a script "
    return f"{some}met before in {runs}"


def _outputs(run: Path) -> Path:
    """The output directory: what a run's folder is in, without a sweep's and without a day's."""
    folder = run.parent.parent if os.path.lexists(run.parent / SWEEP_OWNER) else run.parent
    try:
        date.fromisoformat(folder.name)
    except ValueError:
        return folder
    return folder.parent


def _runs(folder: Path, below: int) -> Iterator[Path]:
    """Folders with a summary; one that can't be listed has none."""
    try:
        inner = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in inner:
        if os.path.lexists(path / SUMMARY):
            yield path
        elif below > 1:
            yield from _runs(path, below - 1)


def _summary(folder: Path, looked_for: set[str]) -> Summary | None:
    """A summary that holds one of these fingerprints; None for any other."""
    try:
        content = read_bytes(folder / SUMMARY, "json", folder)
        if not any(item.encode() in content for item in looked_for):
            return None
        return files.SUMMARY.shaped(parse_json(content, folder / SUMMARY))
    except (FileNotFoundError, DamagedError):
        return None


def _moment(text: str | None) -> datetime | None:
    """A date and time with its zone; None where that can't be told."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
