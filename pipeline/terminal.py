"""The one door to the terminal for what stored runs hold: tables, sentences, JSON and errors.

Whatever passes here is printable. A control character of a stored text is shown as its escape: it can move no cursor,
color nothing and forge no line.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from inductor_debug.models.visible import visible, visible_lines


def say(text: str = "") -> None:
    """One line on the standard output; a newline in it is shown."""
    _write(f"{visible(text)}\n")


def tell(message: str) -> None:
    """A message of ours, of one line or several, on the standard error."""
    sys.stderr.write(f"{_encodable(visible_lines(message), sys.stderr)}\n")


def print_json(content: Any) -> None:
    """Strict JSON. What lies beyond ASCII is escaped, as JSON escapes it."""
    _write(json.dumps(content, indent=1, allow_nan=False).replace("\x7f", "\\u007f") + "\n")


def print_text(text: str) -> None:
    """A document of ours, whose stored texts are printable already."""
    _write(text)


def print_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Columns as wide as their widest cell: a pipe or a CI log gets whole paths, never a cut one."""
    cells = [list(columns), *([cell(row.get(column)) for column in columns] for row in rows)]
    shown = [[visible(text) for text in line] for line in cells]
    widths = [max(len(line[index]) for line in shown) for index in range(len(columns))]
    for line in shown:
        _write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n")
    _write("\n")


def cell(value: Any) -> str:
    """A value as a table shows it: text, a float to four digits, a dash for what is missing, anything else as JSON."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _write(text: str) -> None:
    sys.stdout.write(_encodable(text, sys.stdout))


def _encodable(text: str, stream: Any) -> str:
    """Letters that the stream's encoding lacks (a terminal without UTF-8) as escapes."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
