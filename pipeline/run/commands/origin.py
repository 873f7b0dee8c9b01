"""Where a sweep was started, so that a job finds the same wherever a launcher runs it."""

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from inductor_debug.models.errors import RunDirectoryError
from inductor_debug.pipeline.cache.turns import LOCKS
from inductor_debug.pipeline.run.compiled_by import matters
from inductor_debug.pipeline.run.processes.reuse import ALSO

_CARRIED = (*ALSO, LOCKS, "PYTHONPATH", "HF_HUB_OFFLINE", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Origin:
    """What a job takes over from the process that started its sweep.

    Attributes:
        folder: the working directory: relative paths of the configuration start there.
        command: ``sys.argv``.
        variables: those that change what is compiled or how fast it runs, and where modules and caches lie.
    """

    folder: str
    command: list[str]
    variables: dict[str, str]

    @classmethod
    def here(cls) -> "Origin":
        """This process's."""
        return cls(os.getcwd(), list(sys.argv), {name: os.environ[name] for name in os.environ if _is_carried(name)})

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """While it is entered, this process is as the one that started the sweep.

        A launcher's own variables do not count: Ray and joblib set the number of threads, by which sums are ordered.

        Raises:
            RunDirectoryError: the working directory is not there: the machines share no file system.
        """
        before, command = dict(os.environ), list(sys.argv)
        with contextlib.ExitStack() as entered:
            try:
                entered.enter_context(contextlib.chdir(self.folder))
            except OSError as error:
                raise RunDirectoryError(
                    f"{self.folder}: {error.strerror} on {platform.node()}, where a launcher runs this job; valid: a "
                    "working directory on a file system that all machines share.\nTry: cluster=basic, or start the "
                    "sweep from such a folder"
                ) from error
            try:
                theirs = (name for name in os.environ if _is_carried(name) and name != LOCKS)
                for name in [name for name in theirs if name not in self.variables]:
                    del os.environ[name]
                os.environ.update(self.variables)
                sys.argv[:] = self.command
                yield
            finally:
                sys.argv[:] = command
                os.environ.clear()
                os.environ.update(before)


def _is_carried(name: str) -> bool:
    return matters(name) or name in _CARRIED
