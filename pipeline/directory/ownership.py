"""A run owns its directory, and a sweep its own: a lock, an identity, and what an earlier one left is removed first.

The lock is an ``flock`` on the owner's file: the system lets go of it when the last process that holds it ends,
however it ends. The parent holds it, and so does the guard of a worker (:mod:`pipeline.run.processes.guard`), which
outlives all that the worker started. So a directory is free when nobody is left who could write into it.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import Mismatch, reader
from inductor_debug.pipeline.config.fingerprint import digest, stored_fingerprint
from inductor_debug.pipeline.directory.names import (
    CACHE_PREFIX,
    CONFIGURATION_ERROR,
    HYDRA,
    LOG,
    MANIFEST,
    MARKS,
    OWNER,
    RESERVE,
    STAGES,
    SUMMARY,
    SWEEP_OWNER,
    UNFINISHED,
    own_names,
)
from inductor_debug.pipeline.directory.refusals import (
    DirectoryRefused,
    Owner,
    another_run,
    another_sweep,
    in_use,
    of_the_other_kind,
    unwritable,
)
from inductor_debug.pipeline.directory.removal import files_below, others_below, remove_files, remove_trees

_HYDRA_FILES = ("config", "hydra", "overrides")
_SWEEP_FILES = ("sweep.csv", "sweep.parquet", "sweep.html", "multirun.yaml")
_ENDING_S = 10.0
"""Seconds that the processes of a run that was killed get to end."""
_READ_LIMIT = 64 * 2**20


class Claim:
    """A directory that this process owns until :meth:`release`; a context manager.

    Attributes:
        path: the directory, absolute.
        owner: what its owner's file holds.
        lock: descriptor that holds the lock; a process that inherits it holds it too.
        own: names of files and folders directly in it that this process writes.
        stands: the directory holds the result already; nothing was removed, and ``owner`` is who made it.
    """

    def __init__(self, path: Path, owner: Owner, lock: int, own: Sequence[str] = (), *, stands: bool = False) -> None:
        self.path, self.owner, self.lock, self.own, self.stands = path, owner, lock, own, stands

    def release(self) -> None:
        os.close(self.lock)

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claim_run(
    directory: Path,
    configuration: str,
    *,
    overwrite: bool = False,
    stages: Iterable[str] = (),
    stands: Callable[[Path, Owner], bool] | None = None,
) -> Claim:
    """Own a run's directory, made if it is not there; what an earlier run wrote there is removed.

    Args:
        directory: of the run.
        configuration: its :func:`fingerprint`.
        overwrite: remove a run of another configuration too.
        stages: names of stages beyond the registry's.
        stands: given the directory and the owner of an earlier run of the same configuration: whether it came to its
            end, and would come to the same again. Then it stays.

    Raises:
        DirectoryRefused: another command owns it now, it holds another run, it can't be written, or what is there
            would lead out of it. Nothing in it was changed.
    """
    path, own = Path(directory).absolute(), (*own_names(), *stages)
    if any(os.path.lexists(path / name) for name in (SWEEP_OWNER, *_SWEEP_FILES)):
        raise of_the_other_kind(path, "sweep", "hydra.run.dir")
    if not overwrite and not os.path.lexists(path / OWNER) and holds_run(path):
        known = stored_fingerprint(path)  # of an earlier version of this tool
        if known != configuration:
            raise another_run(path, known)
    with _claiming(path, OWNER, "hydra.run.dir") as lock:
        strange = next(iter(sorted(others_below(path, own))), None)
        if strange is not None:
            raise DirectoryRefused(
                f"hydra.run.dir: {path / strange} is a link, or no regular file, and a run would write through it; "
                "valid: a directory without links in it.\nTry: hydra.run.dir=FOLDER, or remove the link"
            )
        before = _read_owner(lock)
        if holds_run(path) or before is not None:
            known = stored_fingerprint(path) if before is None else before.configuration
            if not overwrite and known != configuration:
                raise another_run(path, known)
            if before is not None and not overwrite and stands is not None and stands(path, before):
                return Claim(path, before, lock, own, stands=True)
            _remove_run(path, before, listed=not overwrite, same=known == configuration)
        left = sorted(name for name in files_below(path, own) if name.split("/")[0] not in (OWNER, UNFINISHED))
        owner = dataclasses.replace(Owner.now(configuration), not_ours=left)
        _write_owner(lock, owner)
    return Claim(path, owner, lock, own)


def claim_sweep(
    directory: Path, configurations: Iterable[str], jobs: Iterable[str], *, overwrite: bool = False
) -> Claim:
    """Own a sweep's directory, made if it is not there.

    Of an earlier sweep there, the table and those jobs are removed that this one does not have; each job's own
    directory is claimed when it starts.

    Args:
        directory: of the sweep.
        configurations: its jobs' :func:`fingerprint`, in order.
        jobs: its jobs' directories, relative to it.
        overwrite: remove another sweep too.

    Raises:
        DirectoryRefused: as of :func:`claim_run`.
    """
    path, jobs, each = Path(directory).absolute(), list(jobs), list(configurations)
    configuration = digest(each)
    if os.path.lexists(path / OWNER) or holds_run(path):
        raise of_the_other_kind(path, "run", "hydra.sweep.dir")
    with _claiming(path, SWEEP_OWNER, "hydra.sweep.dir") as lock:
        before = _read_owner(lock)
        if before is not None or any(os.path.lexists(path / name) for name in _SWEEP_FILES):
            known = _stored_sweep(path, each, jobs) if before is None else before.configuration
            if not overwrite and known != configuration:
                raise another_sweep(path, known, jobs, before)
            for job in before.jobs if before is not None else ():
                if job not in jobs:
                    _remove_job(path, job)
            remove_files(path, _SWEEP_FILES)
        owner = Owner.now(configuration, jobs)
        _write_owner(lock, owner)
    return Claim(path, owner, lock)


def _stored_sweep(path: Path, configurations: Sequence[str], jobs: Sequence[str]) -> str | None:
    """What the sweep in a directory without an owner's record was; None where it can't be established.

    Jobs that it had not started are taken to be those of ``configurations``.
    """
    started = {job for job in jobs if holds_run(path / job)}
    folders = [entry.name for entry in path.iterdir() if holds_run(entry)]
    if not started or any(name not in jobs for name in folders) or len(jobs) != len(configurations):
        return None
    known = [
        stored_fingerprint(path / job) if job in started else configuration
        for job, configuration in zip(jobs, configurations, strict=True)
    ]
    return None if None in known else digest(known)


@contextlib.contextmanager
def _claiming(path: Path, name: str, key: str) -> Iterator[int]:
    """The lock, which is let go of again where the directory is refused."""
    lock = _locked(path, name, key)
    try:
        yield lock
    except BaseException as error:
        if os.fstat(lock).st_size == 0:
            remove_files(path, (name,))  # we have made it
        os.close(lock)
        if isinstance(error, OSError):
            raise unwritable(path, key, error) from error
        raise


def is_owned(directory: Path, name: str = OWNER) -> bool:
    """Whether a command owns a directory now, by its owner's file or a sweep's."""
    try:
        descriptor = os.open(directory / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_run(directory: Path, still: Callable[[], bool]) -> bool:
    """Remove what a run wrote into its directory; whether it was removed.

    Of a run that left no manifest, what lies in the folders that a run writes is taken for its own, but for what its
    owner's record says was there before.

    Args:
        directory: of the run.
        still: asked once the directory is owned: whether the run is to be removed as it is now.

    Raises:
        DirectoryRefused: a command owns it now, or it can't be written.
    """
    path = directory.absolute()
    with os.fdopen(_locked(path, OWNER, str(directory)), "rb") as lock:
        if not still():
            return False
        _remove_run(path, _read_owner(lock.fileno()), listed=True)
        remove_files(path, [OWNER])
    return True


def remove_sweep(directory: Path) -> None:
    """Remove a sweep's own files: its jobs are removed before.

    Raises:
        DirectoryRefused: as of :func:`remove_run`.
    """
    path = directory.absolute()
    with os.fdopen(_locked(path, SWEEP_OWNER, str(directory)), "rb"):
        remove_files(path, [*_SWEEP_FILES, SWEEP_OWNER])


def holds_run(directory: Path) -> bool:
    """Whether something in a directory says that it holds a run."""
    return any(os.path.lexists(directory / name) for name in MARKS)


def read_owner(directory: Path) -> Owner | None:
    """The owner that a run's directory names; None where it names none."""
    try:
        descriptor = os.open(directory / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read_owner(descriptor)
    finally:
        os.close(descriptor)


def _locked(path: Path, name: str, key: str) -> int:
    """A descriptor of the owner's file, made if it is not there, that holds the lock on it."""
    patience = time.monotonic() + _ENDING_S
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            lock = os.open(path / name, flags, 0o666)
        except OSError as error:
            raise unwritable(path, key, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_owner(lock)
            os.close(lock)
            if holder is not None and holder.ended() and time.monotonic() < patience:
                time.sleep(0.05)  # its processes are being ended
                continue
            raise in_use(path, holder, key) from None
        except OSError as error:
            os.close(lock)
            raise unwritable(path, key, error) from error
        found = os.fstat(lock)
        if found.st_nlink == 0:  # the one who held it has removed the file
            os.close(lock)
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(lock)
            raise DirectoryRefused(
                f"{key}: {path / name} is no file of its own; valid: a directory that no run but this one writes "
                f"into.\nTry: {key}=FOLDER, or remove {path / name}"
            )
        return lock


def _read_owner(descriptor: int) -> Owner | None:
    """What the owner's file holds; None where that is nothing, or no owner."""
    found = parsed(os.pread(descriptor, _READ_LIMIT, 0)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    try:
        owner: Owner = reader(Owner)(found)
    except Mismatch:
        return None
    return owner


def _write_owner(lock: int, owner: Owner) -> None:
    """In place: a rename would give the file a new lock."""
    content = json.dumps(dataclasses.asdict(owner), indent=1).encode() + b"\n"
    os.ftruncate(lock, 0)
    try:
        if os.pwrite(lock, content, 0) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(lock)
    except OSError:
        os.ftruncate(lock, 0)
        raise


def _remove_run(path: Path, before: Owner | None, *, listed: bool = False, same: bool = False) -> None:
    """Remove what an earlier run wrote. What lists its files goes last, so that a removal cut short can be repeated.

    Args:
        listed: of a run without an owner's record, which does not tell the user's files from its own, remove only what
            its manifest lists, where it left one.
        same: the configuration is the same: what is known of work that was cut short stays.
    """
    remove_trees(path, CACHE_PREFIX)
    unfinished = set(files_below(path, (UNFINISHED,)))
    if not same:
        remove_files(path, sorted(unfinished))
    records = [name for name in files_below(path, (STAGES,)) if name.endswith(".json")]
    always = [RESERVE, LOG, SUMMARY, CONFIGURATION_ERROR, *(f"{HYDRA}/{name}.yaml" for name in _HYDRA_FILES)]
    last = {*records, OWNER, MANIFEST, *unfinished}
    remove_files(path, [name for name in [*_written(path, before, listed), *always] if name not in last])
    remove_files(path, [*records, MANIFEST])


def _remove_job(sweep: Path, job: str) -> None:
    """Remove a job of an earlier sweep, and its directory where nothing else is in it."""
    path = sweep / job
    if (
        ".." in Path(job).parts
        or Path(job).is_absolute()
        or not path.is_dir()
        or path.resolve() != sweep.resolve() / job
    ):
        return  # it would lead out of the sweep
    with os.fdopen(_locked(path, OWNER, "hydra.sweep.dir"), "rb") as lock:
        _remove_run(path, _read_owner(lock.fileno()))
        remove_files(sweep, [f"{job}/{OWNER}"])


def _written(path: Path, before: Owner | None, only_listed: bool) -> Iterator[str]:
    """What an earlier run wrote: its manifest's list; of a run that left none, what its stages' records and a run's
    own folders hold, without what was there before."""
    manifest = parsed_file(path / MANIFEST)
    listed = manifest.get("files") if isinstance(manifest, dict) else None
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, dict) else []
    if before is not None and isinstance(manifest, dict) and manifest.get("identity") == before.identity:
        yield from names
        return
    yield from (name for name in names if name.split("/")[0] in own_names())
    if only_listed and before is None and isinstance(listed, dict):
        return
    for record in files_below(path, (STAGES,)):
        stored = parsed_file(path / record)
        artifacts = stored.get("artifacts") if isinstance(stored, dict) else None
        yield from (name for name in artifacts or [] if isinstance(name, str))
    kept = set(before.not_ours) if before is not None else set()
    yield from (name for name in files_below(path, own_names()) if name not in kept)


def parsed_file(path: Path) -> Any:
    """A JSON file's content; None where there is none that can be read."""
    try:
        with path.open("rb") as file:
            return parsed(file.read(_READ_LIMIT))
    except OSError:
        return None


def parsed(content: bytes) -> Any:
    """JSON; None where it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
