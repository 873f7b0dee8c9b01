"""Ctrl-C, SIGTERM (a cluster's way to end a job) and SIGHUP (a terminal's that closes): noted, and then told."""

import shlex
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """The command was stopped from outside. A run's directory tells the truth all the same."""


def resumed_by(error: KeyboardInterrupt, words: Sequence[str], told: str = "To go on from there") -> None:
    """Let the message of an interruption end with the command that goes on from the first unfinished stage.

    Args:
        error: what ends the command.
        words: of ``inductor-debug``; the words of a sweep take the place of those of its run.
        told: what the command is for.
    """
    error.__notes__ = [f"{told}: {shlex.join(['inductor-debug', *words])}"]


class Interruption:
    """While it is entered, such a signal is noted, and :meth:`check` raises: nothing is torn in the middle.

    A signal that is ignored stays ignored (``nohup``, a shell's background job). Handlers are of the main thread: in
    another one nothing changes.

    Args:
        at_once: raise where the signal arrives, for code that never looks.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.at_once = at_once
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise Interrupted where a signal came."""
        if self.number is not None:
            raise Interrupted(signal.Signals(self.number).name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if self.at_once:
            self.check()

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
