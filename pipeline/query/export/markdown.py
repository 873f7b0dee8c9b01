"""A run in Markdown, for an issue or a pull request: what its report says first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inductor_debug.models.visible import visible
from inductor_debug.stages.report.html import shortened

_MARKS = {"good": "✅", "bad": "❌", "warn": "⚠️", "unknown": "❔", "told": ""}
_LINES = 10


def markdown(report: Mapping[str, Any]) -> str:
    """The text.

    Args:
        report: of ``report/report.json``.
    """
    verdict = _line(str(report["verdict"]).replace("_", " "))
    parts = [f"### {_line(report['title'])}: {verdict}", _line(report["sentence"])]
    rows = [f"| {_line(entry['title'])} | {_MARKS.get(entry['state'], '')} {_line(entry['word'])} | "
            f"{_line(entry['text'])} |" for entry in report["contents"]]  # fmt: skip
    parts.append("\n".join(["| | | |", "|---|---|---|", *rows]))
    parts += _lines(report.get("violations") or {})
    parts += _repros(report)
    if report["not_established"]:
        told = "\n".join(f"- {_line(text)}" for text in report["not_established"])
        parts.append(_folded("What is not established", told))
    commands = [*report["then"], *report["reproduce"][:1]]
    parts.append(_folded("What to type next, and what was typed", _fenced(map(visible, commands))))
    versions = [f"{key} {value}" for key, value in report["versions"].items() if isinstance(value, str)]
    if versions:
        parts.append(_folded("Versions", _line(", ".join(versions))))
    return "\n\n".join(parts) + "\n"


def _lines(violations: Mapping[str, Any]) -> Iterator[str]:
    """The source lines whose violations cost most."""
    found = (violations.get("top_lines") or [])[:_LINES]
    if found:
        rows = [f"| {_code(row['source'])} | {_code(row['code'])} | {row['findings']} | {_line(row['rules'])} | "
                f"{_line(row['suggestion'])} |" for row in found]  # fmt: skip
        head = ["| line | code | violations | rules | suggestion |", "|---|---|---:|---|---|"]
        yield _folded("The source lines whose violations cost most", "\n".join([*head, *rows]))


def _repros(report: Mapping[str, Any]) -> Iterator[str]:
    rows = [f"| {_code(row['path'])} | {_line(row.get('failure') or row['failure_class'])} | "
            f"{'yes' if row.get('verified') else 'no'} |" for row in report["repros"]]  # fmt: skip
    if rows:
        yield _folded("Reproductions", "\n".join(["| script | failure | verified |", "|---|---|---|", *rows]))


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _fenced(lines: Iterator[str] | Sequence[str]) -> str:
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def _line(text: Any) -> str:
    """A stored text as one line of a table's cell, in which it starts nothing of its own."""
    escaped = re.sub(r"([\\`*_<\[#|~])", r"\\\1", visible(shortened(str(text))))
    return re.sub(r"^([-+>]|\d+[.)])", r"\\\1", escaped).replace("@", "&#64;")  # nor a list, nor does it call anybody


def _code(text: Any) -> str:
    """A stored text as code in a table's cell: a bar would end the cell, a backtick the code."""
    shown = visible(shortened(str(text))).replace("|", "\\|").replace("`", "'")
    return f"`{shown}`" if shown else ""
