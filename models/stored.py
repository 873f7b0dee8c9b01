"""The one reader of stored files, which a stranger may have made or a disk damaged.

Every file of a run, and every YAML file of a user's, is opened, limited and parsed here:

- a regular file alone is opened: no FIFO, device or socket, and no link that leads out of the run;
- its size, its depth and its whole numbers have limits (:data:`LIMITS`, :data:`DEPTH`, :data:`DIGITS`);
- JSON is strict: no key twice, no NaN, no number beyond what a float holds;
- YAML of a run has no anchor, alias or tag; in a user's own the nodes are counted as its aliases repeat them;
- CSV is whole: a name for each column, a cell for each name;
- the content has the shape that its reader declares (:func:`shaped`).

Anything else raises :class:`~models.errors.DamagedError`, whose message names the file, the place in it and what is
valid there. A missing file raises FileNotFoundError, for a file may rightly be missing.
"""

import contextlib
import csv
import errno
import io
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from inductor_debug.models.collection import paused_collection
from inductor_debug.models.errors import ConfigurationError, DamagedError
from inductor_debug.models.shapes import Mismatch, reader
from inductor_debug.models.visible import visible
from inductor_debug.models.yaml_limits import DEPTH, loader, refuse

log = logging.getLogger(__name__)

MIB = 2**20
LIMITS = {"json": 128 * MIB, "csv": 128 * MIB, "yaml": MIB, "text": 128 * MIB}
"""Bytes of a file at most, by kind. The largest that this tool writes are a graph's table and its provenance, some 3 KB
a node: room for 40,000 nodes."""
DIGITS = 40
"""Digits of a whole number at most: 64 bits take 20."""

_CELL, _CHUNK = 16 * MIB, MIB
_NONE: Mapping[str, Any] = {}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_bytes(path: Path, kind: str = "text", root: Path | None = None, last: int | None = None) -> bytes:
    """A regular file's content.

    Args:
        path: of the file.
        kind: key of :data:`LIMITS`.
        root: a folder that the file must be in, links followed; None for anywhere.
        last: only so many bytes at its end, of a file of any size; None for all.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is no regular file, leads out of ``root``, is too large, or can't be read.
    """
    try:
        target = os.path.realpath(path)
        if root is not None and not _within(target, os.path.realpath(root)):
            raise _damage(path, f"is a link to {visible(target)}, outside of {visible(str(root))}", "a file of its own")
        handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise _damage(path, f"is {_kind_of_file(about.st_mode)}", "a regular file")
            if last is not None:
                file.seek(max(0, about.st_size - last))
                return _content(file, last)
            content = b"" if about.st_size > LIMITS[kind] else _content(file, LIMITS[kind] + 1)
            size = max(about.st_size, len(content))
            if size > LIMITS[kind]:
                raise _damage(path, f"has {size:,} bytes", f"at most {LIMITS[kind]:,} ({kind})")
            log.debug("read %s: %d bytes", visible(str(path)), size)
            return content
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        raise _damage(path, f"can't be read: {error.strerror}", "a regular file that you may read") from error


def _content(file: BinaryIO, most: int) -> bytes:
    """At most so many bytes; ``read(most)`` would allocate all of them for the smallest file."""
    parts = []
    while most > 0 and (part := file.read(min(most, _CHUNK))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_text(path: Path, kind: str = "text", root: Path | None = None) -> str:
    """A UTF-8 file's content; errors as :func:`read_bytes`."""
    return decoded(read_bytes(path, kind, root), path)


def read_json(path: Path, shape: Any = Any, root: Path | None = None) -> Any:
    """A JSON file's content, of ``shape``; errors as :func:`read_bytes`."""
    return parse_json(read_bytes(path, "json", root), path, shape)


def read_yaml(path: Path, shape: Any = Any, root: Path | None = None, *, aliases: bool = False) -> Any:
    """A YAML file's content, of ``shape``, its interpolations as text; errors as :func:`read_bytes`.

    Args:
        path, root: as of :func:`read_bytes`.
        shape: what it must look like.
        aliases: True for a user's own file, see :func:`models.yaml_limits.refuse`.
    """
    return parse_yaml(read_bytes(path, "yaml", root), path, shape, aliases=aliases)


def read_own_yaml(path: Path) -> bytes:
    """A user's own YAML file, within limits and not parsed.

    Raises:
        FileNotFoundError: there is none.
        ConfigurationError: it is no regular file, too large, nested too deep, or its aliases repeat too much.
    """
    try:
        content = read_bytes(path, "yaml")
        refuse(content, path, aliases=True)
    except DamagedError as error:
        raise ConfigurationError(str(error)) from error
    return content


def decoded(content: bytes, path: Path) -> str:
    """Bytes as UTF-8 text; DamagedError where they are none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _damage(path, f"is no text: byte {error.start:,} is not UTF-8", "a file as the run wrote it") from error


@paused_collection()
def parse_json(content: bytes, path: Path, shape: Any = Any) -> Any:
    """JSON of ``shape``; DamagedError where it is none. ``path`` is what a message calls it."""
    valid = "strict JSON, as the run wrote it"
    text = decoded(content, path)
    try:
        found = json.loads(
            text, object_pairs_hook=_once, parse_int=_whole, parse_float=_finite, parse_constant=_no_number
        )
    except RecursionError as error:
        raise _damage(path, f"is nested more than {DEPTH} deep", valid) from error
    except ValueError as error:
        raise _damage(path, f"not JSON ({visible(str(error))})", valid) from error
    if _depth(found) > DEPTH:
        raise _damage(path, f"is nested more than {DEPTH} deep", valid)
    if _SURROGATE.search(content):  # half a pair can be in no file, and on no terminal
        found = _whole_letters(found)
    return shaped(found, shape, path)


def parse_yaml(content: bytes, path: Path, shape: Any = Any, *, aliases: bool = False) -> Any:
    """Read YAML of a shape.

    Args:
        content: of the file.
        path: what a message calls it.
        shape: type that the content must have, see :func:`models.shapes.checker`.
        aliases: True takes anchors, aliases and tags, which no stored file has.

    Raises:
        DamagedError: it is no YAML, too large, or of another shape.
    """
    import yaml

    refuse(content, path, aliases=aliases)
    try:
        found = yaml.load(content, loader())
    except (yaml.YAMLError, ValueError) as error:
        raise _damage(path, f"not YAML ({visible(str(error))})", "YAML, as the run wrote it") from error
    return shaped(found, shape, path)


@dataclass(frozen=True)
class Column:
    """A table's column that is read.

    Attributes:
        cell: what matches a whole cell. needed: True where a table without it can't be read.
    """

    cell: re.Pattern[str]
    needed: bool = True


def parse_csv(content: bytes, path: Path, columns: Mapping[str, Column] = _NONE) -> list[dict[str, str]]:
    """A table's rows.

    Args:
        content: UTF-8, the first line the names.
        path: what a message calls it.
        columns: what is read of it; other columns may hold anything.

    Raises:
        DamagedError: it is no table, a name is there twice or missing, a row has more or fewer cells, or a cell does
            not match.
    """
    csv.field_size_limit(_CELL)
    try:
        lines = [line for line in csv.reader(io.StringIO(decoded(content, path), newline=""), strict=True) if line]
    except csv.Error as error:
        raise _damage(path, f"not CSV ({error})", "a table, as the run wrote it") from error
    names = lines[0] if lines else []
    twice = sorted({name for name in names if names.count(name) > 1})
    missing = [name for name, column in columns.items() if column.needed and names and name not in names]
    for wrong, what in ((twice, "has twice the column"), (missing, "lacks the column")):
        if wrong:
            raise _damage(path, f"{what} {visible(wrong[0])}", "a table, as the run wrote it")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(names):
            raise _damage(path, f"row {number} has {len(line)} cells", f"{len(names)}, one for each column")
    for index, name in enumerate(names):
        matches = columns[name].cell.fullmatch if name in columns else None
        for number, line in enumerate(lines[1:] if matches else (), start=2):
            if matches and not matches(line[index]):
                raise _damage(path, f"row {number} has {visible(repr(line[index][:40]))} as {name}", "a number, or "
                              "True or False, as the run wrote it")  # fmt: skip
    return [dict(zip(names, line, strict=True)) for line in lines[1:]]


@paused_collection()
def shaped(value: Any, shape: Any, path: Path) -> Any:
    """Plain data as ``shape`` (:mod:`models.shapes`); DamagedError where it is of another."""
    try:
        return reader(shape)(value)
    except Mismatch as error:
        where = visible(error.place)
        raise _damage(path, f"{where or 'its content'} is {visible(error.got)}", error.valid) from error


def lies_within(path: Path, root: Path) -> bool:
    """Whether a path, its links followed, is in a folder."""
    return _within(os.path.realpath(path), os.path.realpath(root))


def files_below(
    root: Path,
    unlisted: Callable[[str], None] | None = None,
    unentered: Callable[[Collection[str]], Collection[str]] = lambda names: (),
) -> Iterator[tuple[Path, list[str]]]:
    """Every folder below ``root`` with the names in it that are no folders, ``root`` first.

    No link to a folder is followed, and none that lies more than :data:`DEPTH` levels deep.

    Args:
        root: a folder.
        unlisted: called with a message for a folder that can't be listed, which is left out.
        unentered: given all names in a folder, those of folders in it that are left out.
    """
    left = [(root, 0)]
    while left:
        folder, level = left.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if unlisted is not None:
                unlisted(f"{visible(str(folder))}: can't be read: {error.strerror}")
            continue
        yield folder, [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        if level < DEPTH:
            out = unentered({entry.name for entry in entries})
            inner = (entry for entry in reversed(entries)
                     if entry.name not in out and entry.is_dir(follow_symlinks=False))  # fmt: skip
            left += [(folder / entry.name, level + 1) for entry in inner]


def _within(target: str, root: str) -> bool:
    return target == root or target.startswith(root.rstrip(os.sep) + os.sep)


def _damage(path: Path, what: str, valid: str) -> DamagedError:
    return DamagedError(what, key=visible(str(path)), valid=valid)


def _kind_of_file(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((word for test, word in kinds if test(mode)), "a device")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:DIGITS]} is too large")
    return number


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _inner(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _depth(value: Any) -> int:
    """Levels of nesting, 0 for a scalar; without recursion."""
    if not isinstance(value, (dict, list)):
        return 0
    open_levels, deepest = [_inner(value)], 1
    while open_levels:
        for item in open_levels[-1]:
            if isinstance(item, (dict, list)):
                open_levels.append(_inner(item))
                deepest = max(deepest, len(open_levels))
                break
        else:
            open_levels.pop()
    return deepest


def _whole_letters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_whole_letters(key): _whole_letters(item) for key, item in value.items()}
    return [_whole_letters(item) for item in value] if isinstance(value, list) else value


def whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Mappings of a file of JSON lines of our own, but for torn ones: a process was killed as it wrote them."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
