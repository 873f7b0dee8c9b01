"""How the answer to a question is printed: for a person, or as JSON."""

import re
from typing import Any

from inductor_debug.pipeline import query as analysis
from inductor_debug.pipeline.command_line.app import Format
from inductor_debug.pipeline.terminal import cell, print_json, print_table, say

ROWS = 20
"""Rows of a table that analyze prints, unless it is told otherwise."""
_PACKAGES = re.compile(r"\S*/(?:site|dist)-packages/")


def print_analysis(found: analysis.Analysis, about: dict[str, Any], rows: int | None, output: Format) -> None:
    """The sentences and tables of an answer.

    Args:
        found: the answer.
        about: what JSON has beside it; ``run`` is also told a person.
        rows: of each table; 0 for all, by default all in JSON and :data:`ROWS` for a person.
        output: for whom.
    """
    if output is Format.JSON:
        tables = {table.name: [{key: row.get(key) for key in table.columns} for row in table.rows[: rows or None]]
                  for table in found.tables}  # fmt: skip
        print_json({**about, "told": found.told, "tables": tables})
        return
    if "run" in about:
        say(f"run: {about['run']}")
    for sentence in found.told:
        for line in sentence.split("\n"):  # a stage's message has several
            say(line)
    say()
    for table in found.tables:
        _print_part(table, ROWS if rows is None else rows or len(table.rows))


def _print_part(table: analysis.Table, limit: int) -> None:
    shown = table.rows[:limit]
    stored = f", in {table.file}" if table.file else ""
    left = f", {limit} shown (--rows 0 for all)" if len(table.rows) > limit else ""
    say(f"{table.name} ({len(table.rows)}{left}{stored}):")
    if shown:
        print_table(
            list(table.columns),
            [{key: _PACKAGES.sub("", cell(row.get(key))) for key in table.columns} for row in shown],
        )
    else:
        say("none")
        say()
