"""Reads stored runs: finds them, and tells of one or of many from their ``summary.json``. Imports no torch."""

import json
import math
import re
from pathlib import Path
from typing import Any

from models.errors import RunDirectoryError, closest_first
from pipeline.rundir import CONFIGURATION_ERROR, LOG, SUMMARY
from stages.lower.config import shown_name

OUTPUTS = Path("outputs")
_ABOUT = ("model", "accel", "backend", "dtype", "mode")
COLUMNS = ("run", *_ABOUT, "verdict", "violations", "numerics", "speedup", "speedup_ci95", "seconds")
"""Columns of the table of runs."""


NO_RESULT = "no result"
"""Shown as the verdict of a run that left no summary: it was killed, or it runs still."""
_HYDRA = Path(".hydra") / "config.yaml"
_NEAREST = 3


def find_runs(root: Path) -> list[Path]:
    """Run directories below ``root`` (or ``root`` itself), oldest first, those without a result included.

    Raises:
        RunDirectoryError: there is no such folder.
    """
    if not root.is_dir():
        raise RunDirectoryError(
            f"ROOT: no folder {str(root)!r}; valid: a folder that holds runs, by default outputs.\n"
            "Try: inductor-debug list FOLDER"
        )
    return sorted((folder for folder in {file.parent for file in root.rglob(LOG)} if _is_run(folder)), key=_started)


def _started(folder: Path) -> list[tuple[float, str]]:
    """Sorts folders by when they were made: dates and times by their text, the jobs of a sweep by their number."""
    numbers = [re.match(r"\d+", part) for part in folder.parts]
    return [(int(number[0]) if number else math.inf, part) for number, part in zip(numbers, folder.parts, strict=True)]


def _is_run(folder: Path) -> bool:
    return (folder / LOG).is_file() and ((folder / SUMMARY).is_file() or (folder / _HYDRA).is_file())


def locate(run: Path) -> Path:
    """The folder of a run given by its path, or by its id as a report prints it (``DATE/TIME-…``, below outputs)."""
    if run.exists() or run.is_absolute() or not OUTPUTS.is_dir():
        return run
    found = [folder for folder in find_runs(OUTPUTS) if folder.parts[-len(run.parts) :] == run.parts]
    return found[0] if len(found) == 1 else run


def newest() -> Path:
    """The run below outputs that was started last; RunDirectoryError where there is none."""
    runs = find_runs(OUTPUTS) if OUTPUTS.is_dir() else []
    if not runs:
        raise RunDirectoryError(
            f"RUN: none given, and no run below {str(OUTPUTS)!r} here; valid: a run's folder.\n"
            "Try: inductor-debug list FOLDER"
        )
    return runs[-1]


def existing(run: Path) -> Path:
    """The folder of a run as :func:`locate` finds it; RunDirectoryError where there is none."""
    folder = locate(run)
    if not folder.is_dir():
        raise _without_summary(folder)
    return folder


def read_summary(run: Path) -> dict[str, Any]:
    """A run's ``summary.json``; RunDirectoryError where the folder is not a run or the file is damaged."""
    file = run / SUMMARY
    if not file.is_file():
        raise _without_summary(run)
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


def _without_summary(run: Path) -> RunDirectoryError:
    rejected = _rejection(run)
    if rejected:
        return RunDirectoryError(f"{run}: nothing ran, the configuration was rejected. {rejected}")
    if _is_run(run):
        return RunDirectoryError(
            f"{run}: {NO_RESULT}: the run was killed, or it runs still; {LOG} tells how far it came.\n"
            f"Try: inductor-debug rerun {run}"
        )
    known = [str(found) for found in find_runs(OUTPUTS)] if OUTPUTS.is_dir() else []
    near = ", ".join(closest_first(str(run), known)[:_NEAREST])
    return RunDirectoryError(
        f"RUN: got {str(run)!r}; valid: a run's folder{f', such as {near}' if near else ''}.\nTry: inductor-debug list"
    )


def _rejection(run: Path) -> str:
    """The message of a configuration that could not be run; empty where it was none."""
    try:
        return str(json.loads((run / CONFIGURATION_ERROR).read_bytes())["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def row(run: Path) -> dict[str, Any]:
    """One line of the table of runs, keys as in ``COLUMNS``; what a run without a result does not tell is None."""
    try:
        summary = read_summary(run)
    except RunDirectoryError:
        verdict = "rejected" if _rejection(run) else NO_RESULT
        return dict.fromkeys(COLUMNS) | {"run": str(run), **_configured(run), "verdict": verdict}
    about, benchmark = summary["run"], summary.get("benchmark") or {}
    interval = benchmark.get("speedup_ci95")
    shown = None if interval is None else "{:.3g} to {:.3g}".format(*interval)
    established = benchmark.get("established") is not False
    return {
        "run": str(run),
        **{key: about.get(key) for key in _ABOUT},
        "verdict": summary["verdict"],
        "violations": (summary.get("violations") or {}).get("total"),
        "numerics": (summary.get("numerics") or {}).get("verdict"),
        "speedup": benchmark.get("speedup") if established else None,
        "speedup_ci95": shown if established else "not established",
        "seconds": about.get("seconds"),
    }


def build_target(run: Path) -> str:
    """The dotted name of what builds a run's model; empty where the stored configuration does not tell."""
    import yaml

    try:
        return str(yaml.safe_load((run / _HYDRA).read_text())["model"]["build"].get("_target_") or "")
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return ""


def _configured(run: Path) -> dict[str, Any]:
    """What the stored configuration tells of a run; empty where it can't be read."""
    import yaml

    try:
        config = yaml.safe_load((run / _HYDRA).read_text())
        backend = shown_name(*(config["backend"].get(key) for key in ("name", "adapter", "_target_")))
        names = {"model": config["model"]["name"], "accel": config["accel"]["name"], "backend": backend}
        return names | {key: config[key] for key in ("dtype", "mode")}
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return {}
