"""What of a run's log its console shows, and where: handlers that Hydra makes, wherever a launcher starts a job."""

import logging

from inductor_debug.pipeline.directory.summary import FAILED
from inductor_debug.pipeline.loudness import Loudness
from inductor_debug.pipeline.run.events import Finished, Progress, Started, Waiting

LAST = {"last": True}
"""``extra`` of a command's last lines."""


class Quiet(logging.StreamHandler):
    """Errors and the command's last lines. A stage that failed is a finding, which the last lines tell."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        finding = isinstance(event, Finished) and event.status == FAILED
        if getattr(record, "last", False) or (record.levelno >= logging.ERROR and not finding):
            super().emit(record)


class Above(logging.StreamHandler):
    """All but what a display shows below."""

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(getattr(record, "event", None), Started | Progress | Waiting):
            super().emit(record)


def overrides(loud: Loudness, *, displayed: bool, on_stderr: bool) -> list[str]:
    """Words for Hydra that make the console so.

    Args:
        loud: how much it says.
        displayed: whether a display shows the run as well.
        on_stderr: whether standard output is for the answer alone.
    """
    kind = Quiet if loud is Loudness.QUIET else Above if displayed else None
    words = ["hydra.verbose=[inductor_debug]"] if loud is Loudness.VERBOSE else []
    for log in ("job_logging", "hydra_logging"):
        console = f"++hydra.{log}.handlers.console"
        words += [f"{console}.class={kind.__module__}.{kind.__name__}"] if kind is not None else []
        words += [f"{console}.stream='ext://sys.stderr'"] if on_stderr else []
    return words
