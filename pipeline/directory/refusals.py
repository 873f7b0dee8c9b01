"""Whose a directory is, and the messages with which one is refused."""

import errno
import platform
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from inductor_debug.models.errors import RunDirectoryError


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


def holds_another(path: Path, what: str, key: str, known: str | None) -> DirectoryRefused:
    """The error for a directory that holds something of another configuration.

    Args:
        path: the directory.
        what: ``run`` or ``sweep``.
        key: of the configuration, that names the directory.
        known: fingerprint of what is there; None where it can't be established.
    """
    stored = "its configuration, .hydra/config.yaml," if what == "run" else "the configurations of its jobs"
    unknown = f"a configuration that can't be established ({stored} can't be read, or is of another version)"
    other = unknown if known is None else "another configuration"
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
