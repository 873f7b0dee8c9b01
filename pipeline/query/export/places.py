"""Where a file of a run's source lies, for a reader on another machine."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from inductor_debug.pipeline.directory.names import MANIFEST
from inductor_debug.stages.stored_run import StoredRun

ROOT, PACKAGES = "SRCROOT", "SITE_PACKAGES"
"""Bases that a path is relative to: the run's repository, or its working directory; the installed packages."""
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")


@dataclass(frozen=True)
class Line:
    """A source line: ``uri`` relative to ``base``, which is empty for a file elsewhere; ``number`` from 1."""

    uri: str
    base: str
    number: int


def line_of(source: str, root: str) -> Line | None:
    """The place of ``FILE:LINE``; None where no line is known.

    Args:
        source: as tables have it.
        root: of the run's source, from :func:`root_of`.
    """
    file, _, number = source.rpartition(":")
    if not file or not number.isdigit():
        return None
    inside = _PACKAGES.sub("", file)
    if inside != file:
        return Line(quote(inside), PACKAGES, int(number))
    path = PurePosixPath(file)
    if root and path.is_relative_to(root):
        return Line(quote(path.relative_to(root).as_posix()), ROOT, int(number))
    return Line(f"file://{quote(file)}" if path.is_absolute() else quote(file), "", int(number))


def root_of(run: StoredRun) -> str:
    """The folder of the run's repository, else the one in which it was started; empty where neither is recorded."""
    try:
        manifest = run.artifacts.read_json(MANIFEST)
    except FileNotFoundError:
        return ""
    git = (manifest.get("git") or {}).get("working_directory") or {}
    return str(git.get("root") or manifest.get("working_directory") or "")
