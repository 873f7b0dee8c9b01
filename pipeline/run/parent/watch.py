"""Watching a worker process: its memory, its death, and how to end it with all that it started."""

import contextlib
import os
import signal
import subprocess
import time

import psutil

from inductor_debug.models.units import format_bytes
from inductor_debug.pipeline.run.parent.forking import Forked
from inductor_debug.stages.child_processes import signal_name

_GUARD_S = 20.0
"""Seconds that the guard gets; it needs milliseconds, unless a process can't be killed."""


class Watch:
    """One worker's process tree.

    Args:
        process: the worker's guard, leader of its own session and process group.
        lifeline: descriptor that the guard waits on: it ends the worker, and all that it started, when it is closed.
        memory_limit: bytes that the tree may have resident, or None.
        marker: an environment variable, ``NAME=VALUE``, of all processes of this tree and of no other.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes] | Forked",
        lifeline: int,
        memory_limit: int | None = None,
        marker: tuple[str, str] = ("", ""),
    ) -> None:
        self.process = process
        self.marker = marker
        self._lifeline: int | None = lifeline
        self.memory_limit = memory_limit
        self.peak = 0
        self._root: psutil.Process | None = None
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended at once
            self._root = psutil.Process(process.pid)
        self._seen: set[psutil.Process] = set()

    def over_limit(self) -> int | None:
        """Bytes in use where the tree is beyond the limit, else None.

        The sum of resident sizes counts a shared page once for each process. So a sum beyond the limit is confirmed
        with the memory that is unique to each process.
        """
        if self.memory_limit is None:
            return None
        used = self._sum("rss")
        self.peak = max(self.peak, used)
        if used <= self.memory_limit:
            return None
        shared = len(self._seen) > 1 or isinstance(self.process, Forked)  # which shares with its guard and its server
        confirmed = self._sum("uss") if shared else used
        return confirmed if confirmed > self.memory_limit else None

    def end(self, *, dump_stacks: bool = False) -> None:
        """Have the guard end the worker and all that it started, and wait for that.

        Args:
            dump_stacks: first have the worker write its threads' Python stacks to its standard error.
        """
        if dump_stacks and self.process.poll() is None and hasattr(signal, "SIGUSR1"):
            self.process.send_signal(signal.SIGUSR1)  # the guard passes it on
            time.sleep(0.3)  # the dump is written by the signal's handler; there is nothing to wait on
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GUARD_S)
        if self.process.poll() != 0:
            self._end_without_guard()
        self.process.wait()

    def _end_without_guard(self) -> None:
        """End what is left where the guard itself was killed: its group, and whatever has the marker."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        name, value = self.marker
        for process in psutil.process_iter() if name else ():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.environ().get(name) == value and process.pid != os.getpid():
                    process.kill()

    def _sum(self, kind: str) -> int:
        if self._root is None:
            return 0
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(self._root.children(recursive=True))
        total = 0
        for process in (self._root, *self._seen):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().uss if kind == "uss" else process.memory_info().rss
        return total


def describe_death(returncode: int, *, memory_limit: int | None = None, peak: int = 0) -> str:
    """One truthful line on a worker that ended by itself: the signal's name, or the exit code."""
    if returncode >= 0:
        return f"the worker process ended by itself with exit code {returncode}; see run.log"
    number = -returncode
    if number == signal.SIGKILL:
        hint = "from outside; the operating system does this when memory runs out"
    else:
        hint = signal.strsignal(number) or "no description"
    near = ""
    if memory_limit is not None and peak > 0.9 * memory_limit:
        near = f", at {format_bytes(peak)} of runner.memory_limit={format_bytes(memory_limit)}"
    return f"killed by {signal_name(number)} ({hint}){near}; see run.log"
