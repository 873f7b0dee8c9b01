"""Reads stored runs: finds them, and tells of one or of many from their ``summary.json``. Imports no torch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.errors import RunDirectoryError, closest_first
from pipeline.rundir import SUMMARY

COLUMNS = (
    "run",
    "model",
    "accel",
    "backend",
    "dtype",
    "mode",
    "verdict",
    "violations",
    "numerics",
    "speedup",
    "seconds",
)
"""Columns of the table of runs."""


def find_runs(root: Path) -> Iterator[Path]:
    """Run directories below ``root`` (or ``root`` itself), oldest first: folders that hold a ``summary.json``."""
    yield from sorted(file.parent for file in root.rglob(SUMMARY) if (file.parent / "run.log").exists())


def read_summary(run: Path) -> dict[str, Any]:
    """A run's ``summary.json``; RunDirectoryError where the folder is not a run or the file is damaged."""
    file = run / SUMMARY
    if not file.is_file():
        known = closest_first(run.name, [str(found) for found in find_runs(Path("outputs"))])
        raise RunDirectoryError(
            f"RUN: got {str(run)!r}, which holds no {SUMMARY}; "
            f"valid: a run's folder: {', '.join(known[:20]) or 'none'}.\n"
            "Try: inductor-debug list"
        )
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise RunDirectoryError(f"{file}: not JSON ({error}).\nTry: inductor-debug rerun {run}") from error
    if not isinstance(found, dict) or not {"run", "verdict", "stages"} <= found.keys():
        raise RunDirectoryError(
            f"{file}: has not the keys of a run's summary; valid: run, verdict, stages.\n"
            f"Try: inductor-debug rerun {run}"
        )
    return found


def row(run: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """One line of the table of runs, keys as in ``COLUMNS``."""
    about = summary["run"]
    return {
        "run": str(run),
        **{key: about.get(key) for key in ("model", "accel", "backend", "dtype", "mode")},
        "verdict": summary["verdict"],
        "violations": (summary.get("violations") or {}).get("total"),
        "numerics": (summary.get("numerics") or {}).get("verdict"),
        "speedup": (summary.get("benchmark") or {}).get("speedup"),
        "seconds": about.get("seconds"),
    }
