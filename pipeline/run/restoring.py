"""Makes a stored run again with what compiled it: its variables, or a refusal.

A stored run is data from strangers. Of its variables only switches are restored (:func:`compiled_by.restorable`): never
a path, a program or a name that is imported.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.models.errors import ConfigurationError, DamagedError
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.run.compiled_by import differences, matters, restorable, set_otherwise
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.compiled_by import CompiledBy

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expected:
    """What a run that is made again is held to.

    Attributes:
        run: the stored run's folder.
        record: what compiled it; None where it has none that can be read.
        refuse: a difference ends the run before it starts; else it is told.
        changed: the command line changes the configuration.
    """

    run: str
    record: CompiledBy | None
    refuse: bool
    changed: bool = False

    def check(self, now: CompiledBy) -> list[str]:
        """What to tell of the differences from what would compile now, a line each.

        Raises:
            ConfigurationError: it would be another compilation, and that is to be refused.
        """
        if self.record is None:
            return [
                f"{self.run} has no record of what compiled it that can be read: nothing was restored, and nothing can "
                "be compared"
            ]
        refused, told = differences(self.record, now, changed=self.changed)
        if refused and self.refuse:
            raise ConfigurationError(
                f"rerun: {self.run} was compiled by something else, which can't be restored here:\n"
                + "".join(f"  {line}\n" for line in refused)
                + "valid: the same versions, variables, device and code as then.\n"
                f"Try: inductor-debug rerun {self.run} --anyway"
            )
        return [f"not as in {self.run}: {line}" for line in [*refused, *told]]

    def check_compiled(self, now: CompiledBy) -> list[str]:
        """What to tell once the case is compiled: the options that were set otherwise than then since it was built."""
        lines = set_otherwise(self.record, now) if self.record is not None else []
        return [f"not as in {self.run}: {line}" for line in lines]


def resuming(expected: Expected | None, flags: Sequence[str], words: Sequence[str]) -> tuple[list[str], str]:
    """The words of ``inductor-debug`` that go on with a run, and what they are for.

    A stored run that is made again keeps no result: it is made anew, by ``rerun`` with the variables that it had.

    Args:
        expected: of such a run.
        flags: without which the words mean something else.
        words: overrides.
    """
    if expected is not None and expected.refuse:
        return ["rerun", expected.run, *words], "To make it again"
    return ["run", *flags, *words], "To go on from there" if expected is None else "To make it again"


def recorded(run: Path) -> CompiledBy | None:
    """What compiled a stored run; None where it left no ``summary.json``, an earlier version wrote it, or it is
    damaged."""
    try:
        summary = files.SUMMARY.read(StoredFolder(run))
    except DamagedError as error:
        logger.warning("%s", error.with_parts(hint=""))
        return None
    return None if summary is None else summary.compiled_by


@contextlib.contextmanager
def restored(record: CompiledBy | None) -> Iterator[list[str]]:
    """While open, this process has a stored run's variables, as far as they may be taken over.

    Yields:
        What was done, a line each.
    """
    stored = {} if record is None else record.variables
    before = dict(os.environ)
    told = []
    try:
        for name, value in sorted(stored.items()):
            if restorable(name, value) and os.environ.get(name) != value:
                os.environ[name] = value
                told.append(f"{name}={value}")
        for name in sorted(os.environ) if record is not None else ():
            if name not in stored and matters(name) and restorable(name, os.environ[name]):
                del os.environ[name]
                told.append(f"without {name}, which is set here")
        yield told
    finally:
        os.environ.clear()
        os.environ.update(before)
