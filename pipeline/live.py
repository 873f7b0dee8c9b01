"""Progress on a terminal: lines on the standard error below all that is printed, gone once the work is done.

Where the standard error is no terminal, or can't move its cursor, nothing is shown, and rich is not imported.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from inductor_debug.models.visible import visible
from inductor_debug.pipeline.loudness import is_quiet

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

Item = TypeVar("Item")
AFTER_S = 0.5
"""Seconds of work from which on its progress is shown."""


def is_shown(prints: bool) -> bool:
    """Whether somebody sees progress.

    Args:
        prints: something is printed meanwhile. Then standard output has to be a terminal too: lines of ``| tee`` come
            to the same terminal, where progress would tear them.
    """
    return (
        sys.stderr.isatty()
        and (sys.stdout.isatty() or not prints)
        and os.environ.get("TERM") != "dumb"
        and not is_quiet()
    )


class _Above(io.TextIOBase):
    """A terminal's stream while progress is shown below: its whole lines are put above that.

    Who keeps it, as a handler of logging does, writes to the stream itself once nothing is shown.
    """

    def __init__(self, stream: TextIO, console: "Console") -> None:
        self._stream = stream
        self._console: Console | None = console
        self._rest = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        if self._console is None:
            return self._stream.write(text)
        from rich.text import Text

        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def leave(self) -> None:
        """Nothing is shown below any more."""
        self._console = None
        self._stream.write(self._rest)
        self._rest = ""


@contextlib.contextmanager
def progress(*columns: "ProgressColumn | str") -> Iterator["Progress"]:
    """Rich's, of these columns, until it is left, however that is; what is printed meanwhile stands above."""
    from rich.console import Console
    from rich.progress import Progress

    uncolored = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False, force_jupyter=False,
                      no_color=uncolored)  # fmt: skip
    before = (sys.stdout, sys.stderr)
    ours = tuple(_Above(stream, console) if stream.isatty() else stream for stream in before)
    shown = Progress(*columns, console=console, transient=True, expand=True, redirect_stdout=False,
                     redirect_stderr=False)  # fmt: skip
    try:
        sys.stdout, sys.stderr = ours
        with shown:
            yield shown
    finally:
        sys.stdout, sys.stderr = before
        for stream in ours:
            if isinstance(stream, _Above):
                stream.leave()


def words(field: str, **more: Any) -> "ProgressColumn":
    """A column of a task's field, as long as there is room for; stored text in it is no markup."""
    from rich.progress import TextColumn
    from rich.table import Column

    column = Column(no_wrap=True, overflow="ellipsis", **more)
    return TextColumn(f"{{task.fields[{field}]}}", markup=False, table_column=column)


@contextlib.contextmanager
def tracked(items: Sequence[Item], what: str) -> Iterator[Iterator[Item]]:
    """The items, with how many are done of how many, where that takes longer than :data:`AFTER_S`.

    Args:
        items: each is done once the next one is asked for.
        what: is done with them.
    """
    with contextlib.ExitStack() as entered:
        yield _counted(items, what, entered) if is_shown(prints=False) else iter(items)


def _counted(items: Sequence[Item], what: str, entered: contextlib.ExitStack) -> Iterator[Item]:
    began, shown, task = time.monotonic(), None, None
    for done, item in enumerate(items):
        if shown is None and time.monotonic() - began > AFTER_S:
            from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

            columns = words("what"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            shown = entered.enter_context(progress(*columns))
            task = shown.add_task("", total=len(items), what=visible(what))
        if shown is not None and task is not None:
            shown.update(task, completed=done)
        yield item


@contextlib.contextmanager
def working(
    what: str, otherwise: Callable[[str], None] = lambda text: None, *, prints: bool = False
) -> Iterator[Callable[[str], None]]:
    """Show what is done, and for how long, while this is open.

    Args:
        what: is done first.
        otherwise: gets the later steps where nobody sees progress.
        prints: as for :func:`is_shown`.

    Yields:
        to be called with what is done next.
    """
    if not is_shown(prints):
        yield otherwise
        return
    from rich.progress import SpinnerColumn, TimeElapsedColumn

    with progress(SpinnerColumn(), TimeElapsedColumn(), words("what", ratio=1)) as shown:
        task = shown.add_task("", total=None, what=visible(what))
        yield lambda text: shown.update(task, what=visible(text))
