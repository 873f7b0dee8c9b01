"""What a run does now, on a terminal: its stage, for how long, the stage's last word; of a sweep the runs done.

The runner logs each event of a worker with the event itself (:func:`pipeline.run.parent.session.log_event`). What is
shown is a handler of those records, so it is there in this process alone: not in a launcher's jobs elsewhere.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from inductor_debug.models.visible import visible
from inductor_debug.pipeline import live
from inductor_debug.pipeline.run.events import Event, Finished, Progress, Started, Waiting

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_OURS = logging.getLogger("inductor_debug")


class Display(logging.Handler):
    """Shows one run, or the runs of a sweep.

    Args:
        bars: rich's, open.
        runs: of a sweep; None for a single run.
    """

    def __init__(self, bars: "Bars", runs: int | None) -> None:
        super().__init__()
        self._bars = bars
        self._of, self._done = runs, 0
        self._runs = None if runs is None else bars.add_task("", total=runs, what=f"0 of {runs} runs", text="")
        self._stage = bars.add_task("", total=None, what="starting", text="")
        self._order: list[str] = []

    def begin(self, stages: Sequence[str]) -> None:
        """A run begins, of these stages in their order."""
        self._order = list(stages)
        self._bars.reset(self._stage, total=len(self._order), what="starting", text="")

    def end(self) -> None:
        """A run of a sweep is over."""
        if self._runs is not None:
            self._done += 1
            self._bars.update(self._runs, completed=self._done, what=f"{self._done} of {self._of} runs")

    def emit(self, record: logging.LogRecord) -> None:
        event: Event | None = getattr(record, "event", None)
        match event:
            case Started() if event.stage in self._order:
                number = self._order.index(event.stage)
                what = f"stage {number + 1} of {len(self._order)}: {event.stage}"
                self._bars.reset(self._stage, completed=number, total=len(self._order), what=what, text="")
            case Progress() | Waiting():
                waits = "waiting: " if isinstance(event, Waiting) and event.text else ""
                self._bars.update(self._stage, text=visible(f"{waits}{event.text}"))
            case Finished() if event.stage in self._order:
                self._bars.update(self._stage, completed=self._order.index(event.stage) + 1, text="")


@contextlib.contextmanager
def display(runs: int | None = None) -> Iterator[Display]:
    """Show the runs of this process until it is left, however that is.

    Args:
        runs: of a sweep; None for a single run.
    """
    from rich.progress import BarColumn, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), live.words("what"), BarColumn(20), TimeElapsedColumn(), live.words("text", ratio=1)
    with live.progress(*columns) as bars:
        handler = Display(bars, runs)
        _OURS.addHandler(handler)
        try:
            yield handler
        finally:
            _OURS.removeHandler(handler)
