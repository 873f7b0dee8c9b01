"""The process between the parent and a worker: ``python -I -S guard.py LIFELINE LOCK EVENTS LIMIT COMMAND…``.

It starts the worker. When the worker or the parent has ended, in whatever way, it ends all that the worker started. The
lifeline is a pipe whose other end only the parent holds; processes whose own parent died become the guard's children.
The guard holds the run's lock, so that the directory is free only when nobody is left who could write into it. It
copies what they print to its standard output, the run's log; of a log beyond the limit it keeps the start and the end.

A program of its own with the standard library alone, so that it starts in milliseconds. It ends as the worker did: with
its exit code, or by its signal.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable

_CHUNK = 1 << 16
_TAIL = 4 << 20
_KILLING_S = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class BoundedLog:
    """Writes to a descriptor up to a limit, and what came last, of what is beyond it, when it is closed.

    Args:
        descriptor: of a file, opened to append.
        limit: bytes that the file may have, or None. A file that is nearly full takes a sixteenth of it all the same.
    """

    def __init__(self, descriptor: int, limit: int | None) -> None:
        self.descriptor, self.limit = descriptor, limit
        self.dropped = 0
        self._tail = bytearray()
        if limit is not None:
            room = max(limit - os.fstat(descriptor).st_size, limit // 16)
            self._tail_limit = min(room // 4, _TAIL)
            self._head = room - self._tail_limit

    def add(self, chunk: bytes) -> None:
        if self.limit is None:
            self._write(chunk)
            return
        head, rest = chunk[: self._head], chunk[self._head :]
        if head:
            self._head -= len(head)
            self._write(head)
        if not rest:
            return
        self._tail += rest
        if len(self._tail) > 2 * self._tail_limit + _CHUNK:
            self._shorten()

    def close(self) -> None:
        """Write what came last, and how much is missing before it."""
        if self.limit is None or not self._tail:
            return
        self._shorten()
        if self.dropped:
            note = f"\n[… {self.dropped:,} bytes are left out here: runner.log_limit is {self.limit:,} bytes …]\n"
            self._write(note.encode())
        self._write(bytes(self._tail))

    def _shorten(self) -> None:
        surplus = max(len(self._tail) - self._tail_limit, 0)
        self.dropped += surplus
        del self._tail[:surplus]

    def _write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError:  # the disk is full: what printed must neither wait nor die of it
            self.dropped += len(view)


class Guard:
    """See the module's docstring.

    Args:
        lifeline: descriptor that is at its end when the parent is.
        log: where the output goes.
    """

    def __init__(self, lifeline: int, log: BoundedLog) -> None:
        self.lifeline, self.log = lifeline, log
        self.worker = 0
        self.status: int | None = None
        self.stopped = False
        self.output = -1

    def start(self, begin: Callable[[], None], events: int) -> None:
        """Start the worker: it ends with this process, from its first instruction on.

        Args:
            begin: called in the worker's process, becomes the worker.
            events: descriptor on which it tells its parent.
        """
        guard = os.getpid()
        libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.output, writing = os.pipe()
        self.worker = os.fork()
        if self.worker:
            os.close(writing)
            os.close(events)
            return
        try:
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == guard:  # else it has ended before it could be asked for
                os.close(self.output)
                os.dup2(writing, 1)
                os.dup2(writing, 2)
                os.close(writing)
                os.set_inheritable(events, True)
                begin()
        finally:
            os._exit(127)

    def watch(self) -> None:
        """Copy output until the worker or the parent has ended, then end the rest and copy what is left."""
        wake, waking = os.pipe()
        os.set_blocking(waking, False)
        os.set_blocking(self.output, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGUSR1, lambda number, frame: self._forward(number))
        for number in _STOPPING:
            signal.signal(number, self._stop)
        sources = [self.lifeline, self.output, wake]
        self._reap()
        while self.status is None and not self.stopped:
            ready, _, _ = select.select(sources, [], [])
            if self.output in ready and self._copy() == b"":
                sources.remove(self.output)
            if self.lifeline in ready and not os.read(self.lifeline, 1):
                self.stopped = True
            if wake in ready:
                os.read(wake, 512)
                self._reap()
        self._end_all()
        while self._copy():
            pass
        self.log.close()

    def _copy(self) -> bytes | None:
        """Copy one chunk and return it: None where there is none now, empty where none will come."""
        try:
            chunk = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None
        self.log.add(chunk)
        return chunk

    def _forward(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, number)

    def _stop(self, number: int, frame: object) -> None:
        self.stopped = True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                if process == self.worker:
                    self.status = status

    def _end_all(self) -> None:
        """Kill what descends from this process until nothing does; a child of a killed one becomes ours."""
        patience = time.monotonic() + _KILLING_S
        while (left := self._left()) and time.monotonic() < patience:
            for process in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            self._copy()
            self._reap()
            time.sleep(0.005)
        self._reap()

    def _left(self) -> list[int]:
        return descendants() or ([self.worker] if self.status is None else [])


def descendants() -> list[int]:
    """Processes that descend from this one and still run, from /proc; none where there is no /proc."""
    parents: dict[int, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    parents[int(name)] = int(parent)
    found = {os.getpid()}
    while new := {process for process, parent in parents.items() if parent in found and process not in found}:
        found |= new
    return sorted(found - {os.getpid()})


def end_like(status: int | None) -> None:
    """End this process as another ended: its exit code or its signal."""
    if status is None:
        os._exit(1)
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def execute(command: list[str]) -> None:
    """Become another program, with the signals that it expects."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)


def main(arguments: list[str]) -> None:
    lifeline, lock, events, limit = (int(argument) for argument in arguments[:4])
    for held in (lifeline, lock):
        os.set_inheritable(held, False)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # SLURM sends it to all processes of a job before its time is over
    guard = Guard(lifeline, BoundedLog(1, None if limit < 0 else limit))
    guard.start(lambda: execute(arguments[4:]), events)
    os.close(0)
    guard.watch()
    end_like(guard.status)


if __name__ == "__main__":
    main(sys.argv[1:])
