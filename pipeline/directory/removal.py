"""Removes what an earlier run wrote, by name: no link is followed, and nothing outside the directory is touched."""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_OURS = (errno.ELOOP, errno.ENAMETOOLONG)


def remove_files(root: Path, names: Iterable[str]) -> None:
    """Remove regular files, in the order given, and the folders that are empty then.

    A name that leaves the directory, passes through a link, or is no regular file there is passed over.

    Args:
        root: the directory; its own path may have links, nothing below it is followed.
        names: paths relative to ``root``, from a file that anybody may have written.
    """
    emptied: set[tuple[str, ...]] = set()
    with _opened(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        for name in names:
            parts = _parts(name)
            if parts and _remove_file(top, parts):
                emptied.update(parts[:depth] for depth in range(1, len(parts)))
        for parts in sorted(emptied, key=len, reverse=True):
            with contextlib.suppress(OSError), _folder(top, parts[:-1]) as folder:
                os.rmdir(parts[-1], dir_fd=folder)


def remove_trees(root: Path, prefix: str) -> None:
    """Remove the folders directly in ``root`` whose names start with ``prefix``, with all that is in them."""
    with _opened(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        for name in [name for name in os.listdir(top) if name.startswith(prefix)]:
            shutil.rmtree(name, ignore_errors=True, dir_fd=top)  # refuses a link, follows none


def files_below(root: Path, tops: Iterable[str]) -> Iterator[str]:
    """Regular files that are, or lie below, one of ``tops`` in ``root``: relative paths. No link is followed."""
    for name, kind in _entries_below(root, tops):
        if stat.S_ISREG(kind):
            yield name


def others_below(root: Path, tops: Iterable[str]) -> Iterator[str]:
    """What is, or lies below, one of ``tops`` in ``root`` and is neither folder nor regular file: links, pipes."""
    for name, kind in _entries_below(root, tops):
        if not stat.S_ISREG(kind):
            yield name


def _entries_below(root: Path, tops: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Path relative to ``root`` and mode of all but folders."""
    pending = [root / top for top in tops]
    while pending:
        path = pending.pop()
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISDIR(mode):
            pending += path.iterdir()
        else:
            yield path.relative_to(root).as_posix(), mode


def _parts(name: str) -> tuple[str, ...]:
    """A relative path's parts; none where it names nothing inside."""
    parts = tuple(name.split("/"))
    return () if any(part in ("", ".", "..") or "\0" in part for part in parts) else parts


def _remove_file(top: int, parts: tuple[str, ...]) -> bool:
    try:
        with _folder(top, parts[:-1]) as folder:
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                return False
            os.unlink(parts[-1], dir_fd=folder)
            return True
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        return False
    except OSError as error:
        if error.errno in _NOT_OURS:
            return False
        raise


@contextlib.contextmanager
def _folder(top: int, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the folder below ``top``, opened part by part; OSError where a part is a link."""
    with contextlib.ExitStack() as opened:
        folder = top
        for part in parts:
            folder = opened.enter_context(_opened(os.open(part, _FOLDER, dir_fd=folder)))
        yield folder


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
