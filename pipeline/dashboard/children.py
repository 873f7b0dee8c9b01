"""Runs that are started on the page: processes of their own, one after the other, which outlive the page.

Each has a ticket: a file with its command, locked (``flock``) from before it is started until the last of its processes
has ended, however it ends. So any page knows what runs and what waits, also one that is opened later, and nobody has to
say whose turn it is (:mod:`turn`). Tickets lie in a folder that only this user can write, never in that of the runs,
which may be a stranger's.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from inductor_debug.models.errors import DamagedError, UserError
from inductor_debug.models.stored import read_bytes, read_json
from inductor_debug.pipeline.cache.turns import LOCKS, machine_folder
from inductor_debug.pipeline.config.arguments import quoted
from inductor_debug.pipeline.dashboard import turn
from inductor_debug.pipeline.directory.ownership import holds_run
from inductor_debug.pipeline.run.commands.composition import slug

PROGRAM = (sys.executable, "-P", "-m", "inductor_debug", "run")
KEPT = 50
"""Tickets that stay once their runs have ended, the newest."""
_SAID = 64 * 2**10
"""Bytes that are read of what a command said, its last."""
_PID_DIGITS = 10
_STARTED: list[subprocess.Popen[bytes]] = []
"""Of this process, to be waited for once they have ended."""


class State(StrEnum):
    """How far a started run is."""

    WAITING = "waiting for its turn"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Ticket:
    """A run that was started on the page.

    Attributes:
        number: its ticket's; later ones are larger.
        words: what was chosen, as it is typed after ``inductor-debug run``.
        directory: of the run or the sweep, absolute.
        pid: of its first process.
    """

    number: str
    words: list[str]
    directory: str
    pid: int


class Children:
    """The runs that were started below one folder.

    Args:
        root: the folder of runs, absolute.
        program: what takes the words of a run.

    Attributes:
        folder: of the tickets.
    """

    def __init__(self, root: Path, program: Sequence[str] = PROGRAM) -> None:
        self.root, self._program = root, program
        own = machine_folder()
        if own is None:
            raise UserError(f"got {tempfile.gettempdir()}, where this user can make no folder of its own", key=LOCKS,
                            valid="a folder of yours", hint=f"{LOCKS}=FOLDER inductor-debug dashboard")  # fmt: skip
        self.folder = own / f"dashboard-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"

    def start(self, words: Sequence[str], name: str) -> Ticket:
        """Start a run, which waits until those that were started before have ended.

        Args:
            words: after ``inductor-debug run``, without a directory.
            name: what its directory's name ends with.

        Raises:
            UserError: the ticket can't be written; nothing was started then.
        """
        now = datetime.now()
        directory = self.root / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S-%f}-{slug(name)}"
        where = [f"hydra.{kind}.dir={quoted(str(directory))}" for kind in ("run", "sweep")]
        command = [*self._program, *words, *where]
        try:
            with self._new_ticket() as (number, lock), (self.folder / f"{number}.log").open("wb") as said:
                ticket = Ticket(number, list(words), str(directory), 0)
                _write(lock, ticket)
                process = subprocess.Popen(
                    [sys.executable, "-P", turn.__file__, str(self.folder), number, *command],
                    stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                    pass_fds=[lock],
                )  # fmt: skip
                _STARTED.append(process)
                ticket = replace(ticket, pid=process.pid)
                _write(lock, ticket)  # as many bytes as before, for which there is room
        except OSError as error:
            raise UserError(f"got {self.folder}, which can't be written ({error.strerror})", key=LOCKS,
                            valid="a folder of yours with room",
                            hint=f"{LOCKS}=FOLDER inductor-debug dashboard") from error  # fmt: skip
        return ticket

    def tickets(self) -> list[Ticket]:
        """Those that are known, the newest first."""
        _STARTED[:] = [process for process in _STARTED if process.poll() is None]
        found = []
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            with contextlib.suppress(DamagedError, FileNotFoundError):  # e.g. one whose disk was full
                found.append(read_json(path, Ticket))
        return found

    def state(self, ticket: Ticket) -> State:
        """How far it is now."""
        if not self._lives(ticket.number):
            return State.ENDED
        if holds_run(Path(ticket.directory)) or not self._awaited(ticket):
            return State.RUNNING
        return State.WAITING

    def stop(self, ticket: Ticket) -> None:
        """Interrupt it; one that has ended, or ends meanwhile, is left alone.

        By SIGTERM, which a run takes as it takes Ctrl-C. What a shell starts in the background may ignore SIGINT.
        """
        if ticket.pid and self._lives(ticket.number):
            self._mark(ticket).touch()
            with contextlib.suppress(ProcessLookupError):
                os.kill(ticket.pid, signal.SIGTERM)

    def stopped(self, ticket: Ticket) -> bool:
        """Whether :meth:`stop` was what ended it."""
        return self._mark(ticket).exists()

    def _mark(self, ticket: Ticket) -> Path:
        return self.folder / f"{ticket.number}.stopped"

    def said(self, ticket: Ticket) -> str:
        """The last that its command printed."""
        try:
            return read_bytes(self.folder / f"{ticket.number}.log", last=_SAID).decode(errors="replace")
        except (FileNotFoundError, DamagedError):
            return ""

    def _awaited(self, ticket: Ticket) -> bool:
        """Whether one that was started before goes on."""
        return any(self._lives(path.stem) for path in self.folder.glob("*.json") if path.stem < ticket.number)

    def _lives(self, number: str) -> bool:
        """Whether a process of a ticket's run is there."""
        try:
            with (self.folder / f"{number}.json").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @contextlib.contextmanager
    def _new_ticket(self) -> Iterator[tuple[str, int]]:
        """A ticket's number, larger than any before, and the descriptor that holds its lock.

        A process that inherits the descriptor holds the lock too. Two that come at once get theirs one after the other.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "turns").open("wb") as turns:
            fcntl.flock(turns, fcntl.LOCK_EX)
            self._forget()
            last = max((int(path.stem) for path in self.folder.glob("*.json")), default=0)
            number = f"{max(last + 1, time.time_ns()):020d}"
            lock = os.open(self.folder / f"{number}.json", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield number, lock
        finally:
            os.close(lock)

    def _forget(self) -> None:
        """Remove the oldest tickets of runs that have ended."""
        for path in sorted(self.folder.glob("*.json"), reverse=True)[KEPT:]:
            if not self._lives(path.stem):
                path.unlink(missing_ok=True)
                for suffix in (".log", ".stopped"):
                    path.with_suffix(suffix).unlink(missing_ok=True)


def _write(lock: int, ticket: Ticket) -> None:
    """A ticket's file, in place; whatever its process's number, it has the same length."""
    text = json.dumps(asdict(ticket) | {"pid": 0})
    os.pwrite(lock, text.replace('"pid": 0', f'"pid": {ticket.pid:>{_PID_DIGITS}}').encode(), 0)
    os.fsync(lock)
