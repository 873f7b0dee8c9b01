"""Stored artifacts as the report and the questions read them: what is missing is None. Free of torch."""

from collections.abc import Callable
from typing import Any

from inductor_debug.stages.contract import Artifacts

Row = dict[str, Any]


def read_json(artifacts: Artifacts, name: str) -> Any:
    """A JSON artifact, or None."""
    try:
        return artifacts.read_json(name)
    except FileNotFoundError:
        return None


def read_table(artifacts: Artifacts, name: str) -> list[Row] | None:
    """A CSV artifact's rows, their cells as text, or None."""
    try:
        return artifacts.read_table(name)
    except FileNotFoundError:
        return None


def capped(rows: list[Row] | None, name: str, max_rows: int, order: Callable[[Row], Any] | None = None) -> Row | None:
    """The first ``max_rows`` of a table, how many there are, and the file that has all."""
    if rows is None:
        return None
    ordered = sorted(rows, key=order) if order else rows
    return {"columns": list(rows[0]) if rows else [], "rows": ordered[:max_rows], "rows_total": len(rows), "file": name}
