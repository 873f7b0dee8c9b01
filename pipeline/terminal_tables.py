"""Tables as a terminal shows them: no wider than it is, with verdicts in color.

Every text goes to rich as ``Text``: nothing in it is read as markup, as an emoji's name or as a link. Rich takes a
moment to import, and a pipe does not need it, so it is imported where a table is drawn.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GOOD = ("passed", "ok", "exact", "within_floor", "within_tolerance")
BAD = ("failed", "crashed", "timed_out", "bad", "damaged", "defect", "raised", "error", "violated")
OPEN = ("not_established", "not established", "not_exercised", "no result", "skipped", "absent", "warning", "warn")
STYLES = dict.fromkeys(GOOD, "green") | dict.fromkeys(BAD, "red") | dict.fromkeys(OPEN, "yellow")
"""A cell's whole text → its color."""
LEAST = 12
"""Letters that a column keeps, if it has so many: narrower ones can't be read."""
LINES = 5
"""Of a cell, where the columns stand side by side."""
_GAP = 2
_INDENT = 2


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads a stream."""
    return stream.isatty()


def width() -> int:
    """Columns of the terminal: those of ``COLUMNS``, else its own, else 80."""
    return max(shutil.get_terminal_size().columns, 20)


def drawn(columns: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> str:
    """A table as text for a terminal, with a blank line behind it.

    Where the columns do not fit side by side, each row is shown as lines of ``column: cell``.

    Args:
        columns: their names.
        rows: cells, all printable.
        stream: whose encoding and terminal it is for.
    """
    console = _console(stream)
    with console.capture() as capture:
        widths = _widths(columns, rows, console.width)
        if widths:
            _side_by_side(console, columns, rows, widths)
        else:
            _by_row(console, columns, rows)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().split("\n"))


def colored(text: str, verdict: str, stream: TextIO) -> str:
    """Lines for a terminal, in which the first place of a verdict has its color.

    Args:
        text: printable lines.
        verdict: a word of it.
        stream: whose terminal it is for.
    """
    from rich.text import Text

    console, shown = _console(stream), Text(text)
    begins = text.find(verdict)
    if verdict in STYLES and begins >= 0:
        shown.stylize(STYLES[verdict], begins, begins + len(verdict))
    with console.capture() as capture:
        console.print(shown, soft_wrap=True)
    return capture.get()


def _console(stream: TextIO) -> "Console":
    """One that reads nothing into what it is given. A height is needed: without one a dumb terminal has 80 columns."""
    from rich.console import Console

    uncolored = bool(os.environ.get("NO_COLOR"))  # an empty one says nothing
    return Console(file=stream, force_terminal=True, force_jupyter=False, width=width(), height=25, markup=False,
                   emoji=False, highlight=False, legacy_windows=False, no_color=uncolored)  # fmt: skip


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], terminal: int) -> list[int]:
    """Letters of each column side by side, gaps apart; empty where they could not be read in a terminal so wide."""
    from rich.cells import cell_len

    widest = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    least = [max(cell_len(name), min(wide, LEAST), -(-wide // LINES))
             for name, wide in zip(columns, widest, strict=True)]  # fmt: skip
    spare = terminal - _GAP * (len(columns) - 1) - sum(least)
    wanted = sum(widest) - sum(least)
    if spare < 0:
        return []
    share = min(1.0, spare / wanted) if wanted else 0.0
    return [low + int(share * (wide - low)) for low, wide in zip(least, widest, strict=True)]


def _styled(cell: str) -> "Text":
    from rich.text import Text

    return Text(cell, style=STYLES.get(cell, ""))


def _side_by_side(
    console: "Console", columns: Sequence[str], rows: Iterable[Sequence[str]], widths: Iterable[int]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, width in zip(columns, widths, strict=True):
        table.add_column(Text(name), overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(_styled, row))
    console.print(table)


def _by_row(console: "Console", columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first cell of each row, and below it, indented, the others with their columns' names."""
    from rich.padding import Padding
    from rich.text import Text

    inner = console.width - _INDENT
    for first, *others in rows:
        console.print(Text(first, style=STYLES.get(first, "bold"), overflow="fold"))
        line = Text(overflow="fold")
        for name, cell in zip(columns[1:], others, strict=True):
            pair = Text.assemble((f"{name}: ", "dim"), _styled(cell), overflow="fold")
            if line and line.cell_len + _GAP + pair.cell_len > inner:
                console.print(Padding(line, (0, 0, 0, _INDENT)))
                line = Text(overflow="fold")
            line.append(" " * _GAP if line else "").append_text(pair)
        if line:
            console.print(Padding(line, (0, 0, 0, _INDENT)))
