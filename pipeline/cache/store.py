"""The stages' results on disk: ``CACHE/stages/STAGE/KEY/VARIANT``, each whole or not there.

An entry's files are hard links to the run's where they lie on one file system, and copies elsewhere. They are held to
their SHA-256 when they are given out, so that a file which somebody edited in a run's directory is never given to
another run. Processes may write, read and remove entries at the same time.
"""

import contextlib
import dataclasses
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import Mismatch, reader
from inductor_debug.pipeline.cache.key import content_of
from inductor_debug.pipeline.config.fingerprint import digest
from inductor_debug.pipeline.directory.rundir import FULL, DiskFull, RunDirectory, is_no_space
from inductor_debug.stages.artifacts.files import REPRO
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.encoding import jsonable

logger = logging.getLogger(__name__)

FOLDER = "stages"
_ENTRY, _HITS, _NEW = "entry.json", "hits", ".new-"
_WRITING_S = 3600.0
"""Seconds after which what is being written is taken to be left by a process that was killed."""
_SIZES = "sizes"
"""Bytes of all results when they were last measured, and of each that was put since, a line each."""
_MEASURED = b"="
_UNMEASURED = 1000
"""Results after which all are measured again."""
_LATEST = 8
"""Entries that are looked at for the one that is most like what is missing."""


@dataclass(frozen=True)
class Entry:
    """One stage's result.

    Attributes:
        stage: its name.
        parts: what its key covers (:func:`pipeline.cache.key.parts_of`).
        record: the stage's record.
        files: artifact → SHA-256.
        sources: file of the user's → content; packages: distribution → version; modules: top-level module → place;
            variables: name → value; cwd: the working directory, if it counts. What the user's code took when the
            result was made.
        clock: on what its times were measured (:func:`pipeline.cache.key.clock_of`); empty for a result without any.
        made_by: what compiled it, and on what (:class:`pipeline.run.processes.reuse.MadeBy`).
        run: directory of the run that made it.
        made: when, seconds since the epoch.
    """

    stage: str
    parts: dict[str, Any]
    record: dict[str, Any]
    files: dict[str, str]
    sources: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    variables: dict[str, str | None] = field(default_factory=dict)
    clock: dict[str, str] = field(default_factory=dict)
    made_by: dict[str, Any] = field(default_factory=dict)
    run: str = ""
    made: float = 0.0

    @property
    def taken(self) -> list[Any]:
        """What the user's code took, and whose times it holds."""
        return [self.sources, self.packages, self.modules, self.variables, self.cwd, self.clock]

    def resting_on(self, others: Iterable["Entry"]) -> "Entry":
        """The same, which also stands only as long as results of other processes do that it rests on."""
        found = self
        for other in others:
            found = dataclasses.replace(
                found,
                sources=found.sources | other.sources,
                packages=found.packages | other.packages,
                modules=found.modules | other.modules,
                variables=found.variables | other.variables,
                cwd=other.cwd or found.cwd,
            )
        return found


@dataclass(frozen=True)
class Kept:
    """An entry, seen from outside.

    Attributes:
        path: its folder.
        stage: whose result it is.
        nbytes: of its files.
        hits: how often it was given out.
        used: when it was last, seconds since the epoch.
    """

    path: Path
    stage: str
    nbytes: int
    hits: int
    used: float


class Cache:
    """The results below a folder.

    Args:
        folder: ``runner.cache_dir``; made when the first result is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / FOLDER

    def entries(self, stage: str, key: str) -> Iterator[tuple[Path, Entry | None]]:
        """The results under a key, each with its folder, newest first; None for one that can't be read."""
        for path in _by_age(self.root / stage / key):
            yield path, read_entry(path)

    def latest(self, stage: str) -> Iterator[Entry]:
        """Some of a stage's newest results, under any key, newest first; each is read when it is asked for."""
        newest = (path for folder in _by_age(self.root / stage)[:_LATEST] for path in _by_age(folder)[:1])
        yield from filter(None, map(read_entry, newest))

    def put(self, key: str, entry: Entry, directory: RunDirectory) -> None:
        """Keep a result, beside those of other runs: a run that goes on in its directory takes its own."""
        beside = self.root / entry.stage
        beside.mkdir(parents=True, exist_ok=True)
        place = beside / key / digest([entry.run, *entry.taken])[:16]
        if read_entry(place) is not None:
            return
        if place.exists():  # damaged
            shutil.rmtree(place, ignore_errors=True)
        writing = beside / f"{_NEW}{secrets.token_hex(8)}"  # others may read it, as the umask says
        writing.mkdir()
        try:
            for name in entry.files:
                keep = shutil.copyfile if name.startswith(REPRO.folder) else _link
                keep(directory.path / name, writing / _file(entry.files[name]))
            with (writing / _ENTRY).open("w", encoding="utf-8") as file:
                json.dump(jsonable(entry), file)
                file.flush()
                os.fsync(file.fileno())
            nbytes = sum(item.stat().st_size for item in writing.iterdir())
            with (self.root / _SIZES).open("ab") as sizes:
                sizes.write(b"%d\n" % nbytes)
            place.parent.mkdir(exist_ok=True)
            os.rename(writing, place)
        finally:
            shutil.rmtree(writing, ignore_errors=True)

    def give(self, path: Path, entry: Entry, directory: RunDirectory) -> str:
        """Put an entry's files into a run's directory; why not, where one of them is gone, damaged or unreadable.

        One that is damaged is removed: it would stand in the way of what its stage comes to now.

        Raises:
            DiskFull: there is no room for them.
        """
        for name, wanted in entry.files.items():
            target = directory.path / name
            given = target.parent / f".{target.name[:40]}.{secrets.token_hex(4)}.tmp"
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                give = shutil.copyfile if name.startswith(REPRO.folder) else _link  # a script is there to be edited
                give(path / _file(wanted), given)
                if content_of(str(given)) != wanted:
                    self._forget(path)
                    return f"{name} is not what was kept"
                os.replace(given, target)
            except FileNotFoundError:
                self._forget(path)
                return f"{name} is gone"
            except OSError as error:
                if is_no_space(error):
                    raise DiskFull(f"{FULL} ({error.strerror}, {directory.path})") from error
                return f"{name} can't be taken ({error.strerror})"
            finally:
                given.unlink(missing_ok=True)  # it stays too where the run's file is a link to the same one already
        with contextlib.suppress(OSError), (path / _HITS).open("ab") as hits:
            hits.write(b".")
        return ""

    def _forget(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # it may be another's
            _remove(path)

    def kept(self) -> list[Kept]:
        """All results, those used longest ago first."""
        found = [_measured(path, stage.name) for stage in _folders(self.root) for key in _folders(stage)
                 for path in _folders(key)]  # fmt: skip
        return sorted((item for item in found if item is not None), key=lambda item: item.used)

    def hold(self, limit: int | None) -> None:
        """Prune to a size in all where the results may exceed it, by what was put since all were last measured.

        Args:
            limit: see :meth:`prune`.
        """
        sizes = (self.root / _SIZES).read_bytes().split() if (self.root / _SIZES).is_file() else []
        numbers = [size.removeprefix(_MEASURED) for size in sizes]
        known = sizes and sizes[0].startswith(_MEASURED) and all(map(bytes.isdigit, numbers))
        if limit is not None and not (known and len(sizes) <= _UNMEASURED and sum(map(int, numbers)) <= limit):
            self.prune(limit=limit)

    def prune(self, *, older_than_s: float | None = None, limit: int | None = None) -> list[Kept]:
        """Remove results that were not used for so long, and the longest unused ones beyond a size in all.

        Args:
            older_than_s: seconds since their last use.
            limit: bytes that all may have together; a file that a run's directory holds too is counted.

        Returns:
            What was removed.
        """
        kept, now, removed = self.kept(), time.time(), []
        kept_by: OSError | None = None
        total = sum(item.nbytes for item in kept)
        for item in kept:
            old = older_than_s is not None and now - item.used > older_than_s
            if old or (limit is not None and total > limit):
                try:
                    _remove(item.path)
                except OSError as error:
                    kept_by = error
                    continue
                total -= item.nbytes
                removed.append(item)
        if kept_by is not None:
            logger.warning("kept results can't be removed: %s", kept_by)
        for stage in _folders(self.root):
            for path in stage.glob(f"{_NEW}*"):  # of a process that was killed
                if now - _mtime(path) > _WRITING_S:
                    shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # on a full disk: what is there then says nothing, and all is measured again
            (self.root / _SIZES).write_bytes(b"%b%d\n" % (_MEASURED, total))
        return removed


def read_entry(path: Path) -> Entry | None:
    """What an entry's folder holds; None where it is none, is being removed, or another version wrote it."""
    try:
        found: Entry = reader(Entry)(json.loads((path / _ENTRY).read_text(encoding="utf-8")))
        reader(StageRecord)(found.record)
    except (OSError, ValueError, Mismatch):
        return None
    return found


def record_of(entry: Entry) -> StageRecord:
    """The stage's record that an entry holds."""
    found: StageRecord = reader(StageRecord)(entry.record)
    return found


def file_digests(record: StageRecord, directory: RunDirectory) -> dict[str, str]:
    """Artifact of a stage → SHA-256."""
    return {name: content_of(str(directory.path / name)) for name in record.artifacts}


def entry_of(record: StageRecord, parts: Mapping[str, Any], directory: RunDirectory, **more: Any) -> Entry:
    """An entry of a stage that has just run; ``more`` are its other fields."""
    stored = jsonable(dataclasses.replace(record, identity=""))
    return Entry(record.name, jsonable(parts), stored, file_digests(record, directory), run=str(directory.path),
                 made=time.time(), **more)  # fmt: skip


def _file(sha256: str) -> str:
    return f"{sha256}.file"


def _link(source: Path, target: Path) -> None:
    """A hard link, or a copy where there can be none. Two artifacts may have the same content, and so one file."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _measured(path: Path, stage: str) -> Kept | None:
    """None for an entry that is being removed."""
    nbytes = hits = 0
    used = None
    try:
        for item in os.scandir(path):
            seen = item.stat()
            if item.name == _HITS:
                hits = seen.st_size
            else:
                nbytes += seen.st_size
            if item.name in (_HITS, _ENTRY):
                used = max(used or 0.0, seen.st_mtime)
    except OSError:
        return None
    return None if used is None else Kept(path, stage, nbytes, hits, used)


def _remove(path: Path) -> None:
    """The entry's file goes first: a folder without it is none, whoever looks meanwhile. OSError where it stays."""
    (path / _ENTRY).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    for above in (path.parent, path.parent.parent):
        with contextlib.suppress(OSError):
            above.rmdir()


def _folders(path: Path) -> list[Path]:
    """Those of results, by name. A scan asks the system about no file that it does not list."""
    try:
        with os.scandir(path) as found:
            return sorted(path / item.name for item in found if item.is_dir() and not item.name.startswith(_NEW))
    except OSError:
        return []


def _by_age(path: Path) -> list[Path]:
    return sorted(_folders(path), key=_mtime, reverse=True)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
