"""A run's directory: files are written whole or not at all, read back as artifacts, and listed with their SHA-256."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from stages.encoding import encode

STAGES = ".stages"
"""Folder of each stage's stored result, from which a new worker and the parent process go on."""
CACHE_PREFIX = ".cache-"
"""Start of the private cache folder's name; the folder lives as long as the run does."""
SUMMARY, MANIFEST, LOG = "summary.json", "manifest.json", "run.log"
CONFIGURATION_ERROR = "configuration_error.json"


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` whole or not at all: a temporary file beside it, fsync, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def run_id(path: Path) -> str:
    """A run's id: its folder's name after that of the folder it is in (the day's, or the sweep's)."""
    return f"{path.parent.name}/{path.name}"


class RunDirectory:
    """One run's directory.

    Args:
        path: made if it is not there.
        overlay: artifacts that are shown to readers but not stored (the report stage's preliminary summary).
    """

    def __init__(self, path: Path, overlay: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self.overlay: dict[str, bytes] = {name: encode(name, content) for name, content in (overlay or {}).items()}

    @property
    def log(self) -> Path:
        """``run.log``: all that is logged, and what native code prints."""
        return self.path / LOG

    def store(self, name: str, content: Any) -> Path:
        """Store one artifact under its relative path; ValueError for a path that leaves the run directory."""
        path = self._inside(name)
        write_atomically(path, encode(name, content))
        return path

    def names(self, prefix: str = "") -> list[str]:
        """Stored paths that start with ``prefix``, sorted; the runner's own bookkeeping is left out."""
        stored = {name for name in self._files() if not name.startswith((STAGES + "/", CACHE_PREFIX))}
        return sorted(name for name in stored | set(self.overlay) if name.startswith(prefix))

    def read_bytes(self, name: str) -> bytes:
        """Content of one artifact; FileNotFoundError where there is none."""
        return self.overlay[name] if name in self.overlay else self._inside(name).read_bytes()

    def read_text(self, name: str) -> str:
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def store_stage(self, record: dict[str, Any]) -> None:
        """Store a stage's record (name, status, seconds, message, summary, digest, artifacts, mistake)."""
        self.store(f"{STAGES}/{record['name']}.json", record)

    def stage_records(self) -> dict[str, dict[str, Any]]:
        """Stage name → stored record, of those that have one."""
        return {path.stem: json.loads(path.read_bytes()) for path in sorted((self.path / STAGES).glob("*.json"))}

    def forget_stages(self) -> None:
        """Remove the stages' records that an earlier run left in the same directory."""
        shutil.rmtree(self.path / STAGES, ignore_errors=True)

    def make_cache(self) -> Path:
        """A new private folder for the compilers' and matplotlib's caches; :meth:`remove_caches` ends it."""
        return Path(tempfile.mkdtemp(prefix=CACHE_PREFIX, dir=self.path))

    def remove_caches(self) -> None:
        """Remove the private cache folders, and temporary files that a killed worker left behind."""
        for folder in self.path.glob(CACHE_PREFIX + "*"):
            shutil.rmtree(folder, ignore_errors=True)
        for name in list(self._files()):
            if name.endswith(".tmp") and PurePosixPath(name).name.startswith("."):
                (self.path / name).unlink(missing_ok=True)

    def sha256(self) -> dict[str, str]:
        """Relative path → SHA-256 of every file but the manifest, sorted by path."""
        names = sorted(name for name in self._files() if name != MANIFEST)
        return {name: _file_sha256(self.path / name) for name in names}

    def discard(self) -> None:
        """Remove what a run that never started left (log, stages, Hydra's folder), and the folder if it is empty then.

        A file that is none of these stays, and the folder with it: a directory that the user named is not emptied.
        """
        self.remove_caches()
        for folder in (STAGES, ".hydra"):
            shutil.rmtree(self.path / folder, ignore_errors=True)
        for name in (LOG, CONFIGURATION_ERROR):
            (self.path / name).unlink(missing_ok=True)
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


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
