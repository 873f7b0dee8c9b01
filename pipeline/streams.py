"""Standard streams that hold: closed ones are opened on nothing, and a reader who leaves ends no command."""

import contextlib
import errno
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_GONE = (errno.EPIPE, errno.EIO)


class _Steady(io.RawIOBase):
    """Writes to a descriptor until that fails; from then on to nothing. What failed is in :attr:`error`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def write(self, content: "memoryview | bytes") -> int:  # type: ignore[override]
        if self.error is None:
            try:
                return os.write(self.descriptor, content)
            except OSError as error:
                self.error = error
        return len(content)


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """While it is entered, writing to standard output and error raises nothing; logging's own failures say nothing.

    A disk that is full behind standard output is told on standard error, once. A reader who has gone (``| head``, a
    terminal that closed) is nothing to tell of.
    """
    before, raising = (sys.stdout, sys.stderr), logging.raiseExceptions
    for descriptor in (0, 1, 2):
        _open(descriptor)
    streams = [_Steady(1), _Steady(2)]
    ours = tuple(
        _text(stream, old) if old is None or old is real else old
        for stream, old, real in zip(streams, before, (sys.__stdout__, sys.__stderr__), strict=True)
    )
    sys.stdout, sys.stderr = ours
    logging.raiseExceptions = False
    try:
        yield
    finally:
        sys.stdout.flush()
        lost = streams[0].error
        if lost is not None and lost.errno not in _GONE:
            sys.stderr.write(f"standard output can't be written: {lost.strerror}\n")
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        logging.raiseExceptions = raising


def _open(descriptor: int) -> None:
    """A closed descriptor would be given to the next file that is opened, and printed into."""
    try:
        os.fstat(descriptor)
    except OSError:
        found = os.open(os.devnull, os.O_RDWR)
        if found != descriptor:
            os.dup2(found, descriptor)
            os.close(found)


def _text(stream: Any, old: TextIO | None) -> TextIO:
    encoding = old.encoding if old is not None else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(stream),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
