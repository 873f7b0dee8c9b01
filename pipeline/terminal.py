"""The one door to the terminal for what stored runs hold: tables, sentences, JSON and errors.

Whatever passes here is printable. A control character of a stored text is shown as its escape: it can move no cursor,
color nothing and forge no line. A terminal gets lines and tables that fit its width; what is no terminal gets plain
lines, each whole.
"""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from inductor_debug.models.visible import visible, visible_lines
from inductor_debug.pipeline.loudness import is_quiet
from inductor_debug.pipeline.terminal_tables import colored, drawn, is_terminal, width


def say(text: str = "") -> None:
    """One sentence on the standard output; a newline in it is shown."""
    _write(f"{_fitted(visible(text), sys.stdout)}\n")


def say_path(path: str) -> None:
    """A path or a command on a line of its own, whole on a terminal too: it is there to be copied."""
    _write(f"{visible(path)}\n")


def say_with(verdict: str, text: str) -> None:
    """As :func:`say` a sentence that holds a verdict; on a terminal that word has its color.

    Args:
        verdict: a word of :data:`~pipeline.terminal_tables.STYLES`, or another one.
        text: the sentence.
    """
    if is_terminal(sys.stdout):
        _write(colored(_fitted(visible(text), sys.stdout), visible(verdict), sys.stdout))
    else:
        say(text)


def tell(message: str) -> None:
    """Advice on the standard error, of one line or several; none with ``--quiet``."""
    if not is_quiet():
        tell_error(message)


def tell_error(message: str) -> None:
    """What went wrong, on the standard error."""
    sys.stderr.write(f"{_encodable(_fitted(visible_lines(message), sys.stderr), sys.stderr)}\n")


def print_json(content: Any) -> None:
    """Strict JSON. What lies beyond ASCII is escaped, as JSON escapes it."""
    _write(json.dumps(content, indent=1, allow_nan=False).replace("\x7f", "\\u007f") + "\n")


def print_text(text: str) -> None:
    """A document of ours, whose stored texts are printable already."""
    _write(text)


def print_help(text: str) -> None:
    """A help text; on a terminal what does not fit goes on below, indented."""
    if is_terminal(sys.stdout):
        text = "".join(f"{_filled(line, ' ' * (len(line) - len(line.lstrip()) + 4))}\n" for line in text.splitlines())
    _write(text)


def print_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """On a terminal as :func:`drawn`; else columns as wide as their widest cell.

    So a pipe or a CI log gets whole paths, never a cut one.
    """
    cells = [list(columns), *([cell(row.get(column)) for column in columns] for row in rows)]
    shown = [[visible(text) for text in line] for line in cells]
    if is_terminal(sys.stdout):
        _write(drawn(shown[0], shown[1:], sys.stdout))
        return
    widths = [max(len(line[index]) for line in shown) for index in range(len(columns))]
    for line in shown:
        _write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n")
    _write("\n")


def cell(value: Any) -> str:
    """A value as a table shows it: text, a float to four digits, a dash for what is missing, anything else as JSON.

    A float below a billion that four digits would give an exponent is rounded to a whole number.
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        text = f"{value:.4g}"
        return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text
    return value if isinstance(value, str) else json.dumps(value)


def _fitted(text: str, stream: TextIO) -> str:
    """Lines broken between words where a terminal is narrower; a command to type stays one line, to be copied."""
    if not is_terminal(stream):
        return text
    return "\n".join(line if line.lstrip().lower().startswith("try:") else _filled(line) for line in text.split("\n"))


def _filled(line: str, indent: str = "") -> str:
    """A line in lines of the terminal's width, those behind the first indented; a longer word stays whole."""
    return textwrap.fill(line, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
                         replace_whitespace=False)  # fmt: skip


def _write(text: str) -> None:
    sys.stdout.write(_encodable(text, sys.stdout))


def _encodable(text: str, stream: Any) -> str:
    """Letters that the stream's encoding lacks (a terminal without UTF-8) as escapes."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
