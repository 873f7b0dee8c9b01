"""Whose a directory is, and the messages with which one is refused."""

import errno
import platform
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import psutil

from inductor_debug.models.errors import DamagedError, RunDirectoryError, shortened, shown
from inductor_debug.models.stored import read_text


@dataclass(frozen=True)
class Owner:
    """Content of the owner's file.

    Attributes:
        identity: of this run, drawn anew at each start; all of its records have it.
        configuration: see :func:`fingerprint`.
        pid, host, process_started: the process that started it; seconds since the epoch, as psutil has them.
        started: the same time, for a person.
        not_ours: files in folders that a run writes, which were there before.
        jobs: of a sweep, its jobs' directories, relative to its own.
    """

    identity: str
    configuration: str
    pid: int
    host: str
    process_started: float
    started: str
    not_ours: list[str]
    jobs: list[str]

    @classmethod
    def now(cls, configuration: str, jobs: Iterable[str] = ()) -> "Owner":
        """This process, with a new identity."""
        process = psutil.Process()
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        identity = uuid.uuid4().hex
        return cls(identity, configuration, process.pid, platform.node(), process.create_time(), started, [], [*jobs])

    def ended(self) -> bool:
        """Whether the process that started it has certainly ended."""
        if self.host != platform.node():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.process_started) > 1.0
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


class DirectoryRefused(RunDirectoryError):
    """A directory that this command may not write into; nothing in it was changed."""


def another_run(path: Path, known: str | None) -> DirectoryRefused:
    """The error for a directory that holds a run of another configuration, whose words it tells.

    Args:
        path: the directory.
        known: fingerprint of what is there; None where it can't be established.
    """
    try:
        lines = read_text(path / ".hydra" / "overrides.yaml", "yaml", path).splitlines()
    except (FileNotFoundError, DamagedError):
        lines = []
    words = shortened(" ".join(line[2:] for line in lines if line.startswith("- ")))
    return _holds_another(path, "run", "hydra.run.dir", known, f"its words were {words}" if words else "")


def another_sweep(path: Path, known: str | None, jobs: Sequence[str], before: Owner | None) -> DirectoryRefused:
    """The error for a directory that holds a sweep of another configuration; it tells the first job that differs.

    Args:
        path, known: see :func:`another_run`.
        jobs: directories of this sweep's.
        before: who owned it.
    """
    there = before.jobs if before is not None else []
    theirs, ours = next(((old, new) for old, new in zip_longest(there, jobs) if old != new), (None, None))
    if theirs is None:
        told = "" if ours is None else f"it has no job {shown(ours)}"
    else:
        told = f"its job {shown(theirs)} is " + ("none of this one's" if ours is None else f"here {shown(ours)}")
    return _holds_another(path, "sweep", "hydra.sweep.dir", known, told if there else "")


def of_the_other_kind(path: Path, what: str, key: str) -> DirectoryRefused:
    """The error for a run in a sweep's directory, or a sweep in a run's.

    Args:
        path: the directory. what: it holds, "run" or "sweep". key: that names it.
    """
    return DirectoryRefused(f"{key}: {path} holds a {what}; valid: a directory of its own.\nTry: {key}=FOLDER")


def _holds_another(path: Path, what: str, key: str, known: str | None, told: str) -> DirectoryRefused:
    stored = "its configuration, .hydra/config.yaml," if what == "run" else "the configurations of its jobs"
    unknown = f"a configuration that can't be established ({stored} can't be read, or is of another version)"
    other = unknown if known is None else "another configuration"
    other += f" ({told})" if told else ""
    return DirectoryRefused(
        f"{key}: {path} holds another {what}, of {other}; valid: a new or empty directory, or the same "
        f"configuration again.\nTry: runner.overwrite=true, which removes what that {what} wrote, or {key}=FOLDER"
    )


def in_use(path: Path, holder: Owner | None, key: str) -> DirectoryRefused:
    """The error for a directory that another command writes into."""
    if holder is None:
        told = "another command, which has just started"
    elif holder.ended():
        told = f"a process that process {holder.pid} started before it was killed"
    else:
        told = f"process {holder.pid} on {holder.host}, since {holder.started}"
    return DirectoryRefused(
        f"{key}: {path} is in use by {told}; valid: a directory that no other command writes into.\n"
        f"Try: {key}=FOLDER, or wait until that has ended"
    )


def unwritable(path: Path, key: str, error: OSError) -> DirectoryRefused:
    """The error for a directory that the system does not let us write, or lock."""
    if error.errno == errno.ELOOP:
        reason = "a link is in the place of the file that locks it"
    elif error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        reason = f"its file system has no locks ({error.strerror})"
    else:
        reason = f"it can't be written ({error.strerror or error})"
    return DirectoryRefused(f"{key}: {path}: {reason}; valid: a directory that can be written.\nTry: {key}=FOLDER")
