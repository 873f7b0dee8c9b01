"""What a run says at its end, for a person and in its log: its verdict, where it lies, what to type next."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts.files import REPORT_PAGE
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.formatting import headline

_WORST = ("crashed", "timed_out", "failed", "skipped", "passed")


def last_lines(
    result: Mapping[str, Any], records: Mapping[str, StageRecord], folder: Path, seconds: float
) -> list[str]:
    """Three lines. Of a run with a report the first and the last say what that says.

    Args:
        result: content of ``summary.json``.
        records: of the stages.
        folder: the run's, absolute.
        seconds: that it took.
    """
    report = records.get("report")
    reported = report is not None and report.status == "passed"
    _, *told = report.message.split("\n") if report is not None and reported else [""]
    sentence, *commands = told or [_worst(records)]
    where = folder / REPORT_PAGE.path if reported else folder
    following = commands or [f"inductor-debug show {shlex.quote(str(_from_here(folder)))}"]
    verdict = f"{result['verdict']} in {seconds:.1f} s"
    return [f"{verdict}: {sentence}" if sentence else verdict, f"where: {where}", f"next: {following[0]}"]


def _from_here(folder: Path) -> Path:
    """As one would type it; the working directory may be gone."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return folder
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _worst(records: Mapping[str, StageRecord]) -> str:
    """What the stage said that ended worst; of a run in which all passed, the last."""
    ordered = sorted(records.values(), key=lambda record: _WORST.index(record.status))
    if not ordered:
        return ""
    worst = ordered[0] if ordered[0].status != "passed" else ordered[-1]
    told = headline(worst.message)
    return f"{worst.name} {worst.status.replace('_', ' ')}{told and f': {told}'}"
