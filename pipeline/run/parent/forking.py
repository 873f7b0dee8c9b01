"""Workers that are forked from a server, as the parent process has them."""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from inductor_debug.pipeline.cache.folders import VARIABLES

logger = logging.getLogger(__name__)

_SERVER = str(Path(__file__).parents[1] / "processes" / "fork_server.py")
HEAD = 8
"""Bytes in which a request's length comes first."""
_SECOND = 2
"""Worker that needs torch from which on it is imported once for all."""


class Forked:
    """A forked worker's guard, with what of :class:`subprocess.Popen` is used of a started one.

    Args:
        pid: of the guard.
        connection: of the server, which tells how it ended.
        stdin: the other end of the worker's standard input.
    """

    def __init__(self, pid: int, connection: socket.socket, stdin: IO[bytes]) -> None:
        self.pid, self.stdin = pid, stdin
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """The exit code, or None while it runs; minus the signal's number where one ended it."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired where it still runs after so many seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["worker"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            status = _line(self._connection)
            self.returncode = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """A server for workers of one environment and working directory.

    Args:
        environment: a worker's variables; those that differ from run to run do not count.
        apart: names of further variables that do not count.
    """

    def __init__(self, environment: Mapping[str, str], apart: Sequence[str] = ()) -> None:
        self.apart = frozenset((*VARIABLES, *apart))
        self.fits = self._fitting(environment)
        self.needed_torch = 0
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", _SERVER, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(environment),
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self.connection = ours

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a worker with these variables, in this working directory, can be forked from it."""
        return self.process.poll() is None and self._fitting(environment) == self.fits

    def fork(self, environment: Mapping[str, str], files: Sequence[int], limit: int | None) -> Forked | None:
        """A new worker; None where the server has ended.

        Args:
            environment: its variables.
            files: descriptors of the lifeline, the events, the log and, where there is one, the lock.
            limit: bytes that the log may have, or None.
        """
        reading, writing = os.pipe()
        lifeline, events, log, *lock = files
        request = {"environment": dict(environment), "folder": os.getcwd(), "limit": limit,
                   "torch": self.needed_torch >= _SECOND}  # fmt: skip
        content = json.dumps(request).encode()
        with os.fdopen(reading, "rb") as plan, contextlib.ExitStack() as opened:
            stdin = opened.enter_context(os.fdopen(writing, "wb"))
            try:
                head = len(content).to_bytes(HEAD)
                socket.send_fds(self.connection, [head], [lifeline, events, log, plan.fileno(), *lock])
                self.connection.sendall(content)
                pid = _line(self.connection)
            except OSError:
                pid = None
            if pid is None:
                return None
            opened.pop_all()
            return Forked(pid, self.connection, stdin)

    def close(self) -> None:
        """End the server, once its last worker has ended."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10.0)
        self.process.kill()
        self.process.wait()

    def _fitting(self, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        return os.getcwd(), {name: value for name, value in environment.items() if name not in self.apart}


_current: list[ForkServer] = []


def fork_server(environment: Mapping[str, str], apart: Sequence[str] = ()) -> ForkServer:
    """The server of this process for such workers, started where there is none; arguments as of :class:`ForkServer`."""
    if _current and not _current[0].suits(environment):
        close_fork_server()
    if not _current:
        _current.append(ForkServer(environment, apart))
    return _current[0]


def close_fork_server() -> None:
    """End this process's server, if there is one."""
    while _current:
        _current.pop().close()


def _line(connection: socket.socket) -> int | None:
    """A number that the server tells; None where it has ended."""
    content = b""
    while not content.endswith(b"\n"):
        try:
            part = connection.recv(1)
        except OSError:
            return None
        if not part:
            return None
        content += part
    return int(content)
