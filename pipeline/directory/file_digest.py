"""SHA-256 of files. A state of a file is read once in a process, by whichever name: a sweep's restored files are links
to one."""

import functools
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class _State:
    """What tells that a file was not written since: the file itself, its size, and when it was written."""

    device: int
    inode: int
    size: int
    written_ns: int
    path: str | Path = field(compare=False)


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file's content; OSError where it can't be read."""
    seen = os.stat(path)
    return _content(_State(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, path))


@functools.lru_cache(maxsize=10_000)
def _content(state: _State) -> str:
    with open(state.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
