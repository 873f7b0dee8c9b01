"""Who goes first, between processes: of those that would make the same result, and of those that measure time.

All are ``flock``s: the system lets go of one when its process ends, however it ends. Where a file system has none,
nobody waits.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCKS = "INDUCTOR_DEBUG_LOCKS"
_POLL_S = 0.1


class Turns:
    """Of the jobs that would make the same result at the same time, one makes it while the others wait.

    Whoever takes several turns takes them in one order, the same in all processes: then no two wait for each other.

    Args:
        root: folder of the results.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._held: dict[str, tuple[Path, int]] = {}

    def take(self, stage: str, key: str, waiting: Callable[[bool], None]) -> None:
        """Wait until nobody else makes this result, and be the one who does.

        Args:
            stage: whose result it is.
            key: its key.
            waiting: called with True where somebody else has the turn, and with False once that is over.
        """
        path = self.root / stage / f"{key}.turn"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held[stage] = path, _locked(path, fcntl.LOCK_EX, waiting)

    def release(self, stage: str) -> None:
        """The result is there, or will not be."""
        if stage in self._held:
            path, held = self._held.pop(stage)
            with contextlib.suppress(OSError):  # the file may be gone, or the folder read-only by now
                path.unlink()
            _let_go(held)


class Machine:
    """While one process measures times, no other measures or works for a sweep on the same machine.

    Args:
        folder: the machine's own, see :func:`machine_folder`; None where nobody waits.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def alone(self, waiting: Callable[[bool], None]) -> Iterator[None]:
        """Entered once nobody else is in; meanwhile nobody enters. ``waiting`` as of :meth:`Turns.take`."""
        with self._holding("gate", fcntl.LOCK_EX, waiting), self._holding("room", fcntl.LOCK_EX, waiting):
            yield

    @contextlib.contextmanager
    def together(self, waiting: Callable[[bool], None]) -> Iterator[None]:
        """Entered with others, but not while one is alone in there, or waits for it."""
        with contextlib.ExitStack() as entered:
            with self._holding("gate", fcntl.LOCK_SH, waiting):
                entered.enter_context(self._holding("room", fcntl.LOCK_SH, waiting))
            yield

    @contextlib.contextmanager
    def _holding(self, name: str, kind: int, waiting: Callable[[bool], None]) -> Iterator[None]:
        held = None
        if self.folder is not None:
            with contextlib.suppress(OSError):
                held = _locked(self.folder / name, kind, waiting)
        try:
            yield
        finally:
            if held is not None:
                _let_go(held)


def machine_folder() -> Path | None:
    """A folder of this user's on this machine, made if it is not there; None where there can be none.

    The variable ``INDUCTOR_DEBUG_LOCKS`` names another one, for jobs that see different ``/tmp``.
    """
    named = os.environ.get(LOCKS)
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"inductor-debug-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if folder.stat().st_uid == os.getuid() and not folder.is_symlink() else None
    except OSError:
        return None


def _locked(path: Path, kind: int, waiting: Callable[[bool], None]) -> int:
    """A descriptor that holds a lock; a file that its holder has removed meanwhile is made anew."""
    told = False
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:
                    return descriptor
            except BlockingIOError:
                if not told:
                    waiting(True)
                    told = True
                time.sleep(_POLL_S)
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)
    finally:
        if told:
            waiting(False)


def _let_go(descriptor: int) -> None:
    """Unlocked for children too, that have inherited it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
