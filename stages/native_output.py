"""What a process prints, native code included, copied at the file descriptor."""

import contextlib
import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

_STDOUT = 1
_DRAIN_S = 30.0


@contextlib.contextmanager
def copied_stdout(path: Path) -> Iterator[None]:
    """While open, what is written to standard output goes where it went before, and also into the file ``path``.

    The copy is made by another process (``tee``): where native code ends this one, all that it printed is still told.
    """
    _flush()
    original = os.dup(_STDOUT)
    reading, writing = os.pipe()
    try:
        tee = subprocess.Popen(["tee", os.fspath(path)], stdin=reading, stdout=original)
    except BaseException:
        os.close(original)
        os.close(writing)
        raise
    finally:
        os.close(reading)
    os.dup2(writing, _STDOUT)
    os.close(writing)
    try:
        yield
    finally:
        _flush()
        os.dup2(original, _STDOUT)
        os.close(original)
        try:
            tee.wait(_DRAIN_S)
        except subprocess.TimeoutExpired:  # a process that was started meanwhile still holds the pipe
            log.warning("standard output was copied up to here; a process that still runs prints through the copy")


def _flush() -> None:
    """Write out what Python and C buffer."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
