"""A run's directory: files are written whole or not at all, read back as artifacts, and listed with their SHA-256."""

import dataclasses
import errno
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from inductor_debug.models.errors import wrapped
from inductor_debug.models.stored import parse_csv
from inductor_debug.pipeline.directory.file_digest import file_sha256
from inductor_debug.pipeline.directory.names import (
    CACHE_PREFIX,
    CONFIGURATION_ERROR,
    HYDRA,
    LOG,
    MANIFEST,
    OWNER,
    RESERVE,
    STAGES,
    UNFINISHED,
    own_names,
)
from inductor_debug.pipeline.directory.ownership import Claim, holds_run, read_owner
from inductor_debug.pipeline.directory.removal import files_below, remove_files, remove_trees
from inductor_debug.stages.artifacts.files import STAGE_RECORD
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.encoding import encode, write_atomically

_RESERVED = 2 << 20
FULL = "the disk is full"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_id(path: Path) -> str:
    """A run's id: its folder's name after that of the folder it is in (the day's, or the sweep's)."""
    path = path.absolute()
    return f"{path.parent.name}/{path.name}"


def is_no_space(error: BaseException) -> bool:
    """Whether an error is, or came from, a write for which a disk, a quota or a limit on files had no room."""
    return any(isinstance(item, OSError) and item.errno in _NO_SPACE for item in wrapped(error, contexts=True))


class DiskFull(RuntimeError):
    """A stage's record could not be stored for lack of room: nothing more can be run."""


class RunDirectory:
    """One run's directory.

    Args:
        path: made if it is not there.
        overlay: artifacts that are shown to readers but not stored (the report stage's preliminary summary).
        identity: of the run; records of another one are not read.
        claim: of the process that owns the directory.
    """

    def __init__(
        self, path: Path, overlay: Mapping[str, Any] | None = None, *, identity: str = "", claim: Claim | None = None
    ) -> None:
        self.path = Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self.overlay: dict[str, bytes] = {name: encode(name, content) for name, content in (overlay or {}).items()}
        self.identity = identity if claim is None else claim.owner.identity
        self.lock = None if claim is None else claim.lock
        self._own = own_names() if claim is None else claim.own
        owner = read_owner(self.path) if claim is None else claim.owner
        self._not_ours = frozenset(owner.not_ours) if owner is not None else frozenset()
        self._reserved = False

    @property
    def log(self) -> Path:
        """``run.log``: all that is logged, and what native code prints."""
        return self.path / LOG

    def reserve(self) -> None:
        """Keep room on the disk for this process's last records: where a write finds none, it is let go of."""
        (self.path / RESERVE).write_bytes(os.urandom(_RESERVED))  # a file system may compress zeros
        self._reserved = True

    def release_reserve(self) -> None:
        """Let go of what :meth:`reserve` kept, if it is still kept."""
        if self._reserved:
            self._reserved = False
            remove_files(self.path, (RESERVE,))

    def store(self, name: str, content: Any) -> Path:
        """Store one artifact under its relative path; ValueError for a path that leaves the run directory."""
        path, encoded = self._inside(name), encode(name, content)
        try:
            write_atomically(path, encoded)
        except OSError as error:
            if not (self._reserved and is_no_space(error)):
                raise
            self.release_reserve()
            write_atomically(path, encoded)
        return path

    def names(self, prefix: str = "") -> list[str]:
        """Stored paths that start with ``prefix``, sorted; the runner's own bookkeeping is left out, and so is what was
        there before the run."""
        own = (STAGES + "/", CACHE_PREFIX, UNFINISHED + "/", OWNER, RESERVE)
        stored = {name for name in self._files() if not name.startswith(own)} - self._not_ours
        return sorted(name for name in stored | set(self.overlay) if name.startswith(prefix))

    def read_bytes(self, name: str) -> bytes:
        """Content of one artifact; FileNotFoundError where there is none."""
        return self.overlay[name] if name in self.overlay else self._inside(name).read_bytes()

    def read_text(self, name: str) -> str:
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def read_table(self, name: str) -> list[dict[str, str]]:
        return parse_csv(self.read_bytes(name), self.path / name)

    def store_stage(self, record: StageRecord) -> None:
        """Store a stage's record, with this run's identity."""
        self.store(STAGE_RECORD.at(record.name), dataclasses.replace(record, identity=self.identity))

    def stage_records(self) -> dict[str, StageRecord]:
        """Stage name → stored record, of those of this run that have one."""
        found = [json.loads(path.read_bytes()) for path in sorted((self.path / STAGES).glob("*.json"))]
        ours = [item for item in found if item.get("identity") == self.identity]
        return {item["name"]: STAGE_RECORD.shaped(item, item["name"]) for item in ours}

    def forget_stages(self) -> None:
        """Remove the stages' records."""
        remove_files(self.path, list(files_below(self.path, (STAGES,))))

    def make_cache(self) -> Path:
        """A new private folder for the compilers' and matplotlib's caches; :meth:`remove_caches` ends it."""
        return Path(tempfile.mkdtemp(prefix=CACHE_PREFIX, dir=self.path))

    def remove_caches(self) -> None:
        """Remove the private cache folders, and temporary files that a killed worker left behind."""
        remove_trees(self.path, CACHE_PREFIX)
        beside = [f".{name}." for name in self._own]
        tops = [*self._own, *(name for name in os.listdir(self.path) if name.startswith(tuple(beside)))]
        found = set(files_below(self.path, tops)) - self._not_ours
        remove_files(self.path, [name for name in found if re.fullmatch(r"\..*\.tmp", PurePosixPath(name).name)])

    @property
    def unfinished(self) -> Path:
        """Folder of what stages know of work that was cut short."""
        return self.path / UNFINISHED

    def tidy_unfinished(self) -> None:
        """Of work that was cut short, keep what is known: the ``.jsonl`` files."""
        remove_files(self.path, [name for name in files_below(self.path, (UNFINISHED,)) if not name.endswith(".jsonl")])

    def sha256(self) -> dict[str, str]:
        """Relative path → SHA-256 of every file of the run but the manifest, sorted by path."""
        stored = (name for record in self.stage_records().values() for name in record.artifacts)
        names = {*files_below(self.path, self._own), *files_below(self.path, stored)}
        names -= {MANIFEST, RESERVE, *files_below(self.path, (UNFINISHED,))} | self._not_ours
        return {name: file_sha256(self.path / name) for name in sorted(names)}

    def discard(self) -> None:
        """Remove what a run that never started left (log, stages, Hydra's folder), and the folder if it is empty then.

        A file that is none of these stays, and the folder with it: a directory that the user named is not emptied.
        """
        self._reserved = False
        self.remove_caches()
        bookkeeping = files_below(self.path, (STAGES, HYDRA, LOG, CONFIGURATION_ERROR, RESERVE))
        remove_files(self.path, [name for name in bookkeeping if name not in self._not_ours])
        if not holds_run(self.path):
            remove_files(self.path, (OWNER,))
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _inside(self, name: str) -> Path:
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise ValueError(f"an artifact's path must stay inside the run directory, got {name!r}")
        return self.path / relative

    def _files(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.path):
            for file in files:
                yield (Path(folder) / file).relative_to(self.path).as_posix()
