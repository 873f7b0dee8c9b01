"""Makes a stored run again with what compiled it: its variables, or a refusal.

A stored run is data from strangers. Of its variables only switches are restored (:func:`compiled_by.restorable`): never
a path, a program or a name that is imported.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.run.compiled_by import differences, matters, restorable, set_otherwise


@dataclass(frozen=True)
class Expected:
    """What a run that is made again is held to.

    Attributes:
        run: the stored run's folder.
        record: what compiled it; None where it did not record that.
        refuse: a difference ends the run before it starts; else it is told.
        changed: the command line changes the configuration.
    """

    run: str
    record: dict[str, Any] | None
    refuse: bool
    changed: bool = False

    def check(self, now: Mapping[str, Any]) -> list[str]:
        """What to tell of the differences from what would compile now, a line each.

        Raises:
            ConfigurationError: it would be another compilation, and that is to be refused.
        """
        if self.record is None:
            return [f"{self.run} did not record what compiled it: nothing was restored, and nothing can be compared"]
        refused, told = differences(self.record, now, changed=self.changed)
        if refused and self.refuse:
            raise ConfigurationError(
                f"rerun: {self.run} was compiled by something else, which can't be restored here:\n"
                + "".join(f"  {line}\n" for line in refused)
                + "valid: the same versions, variables, device and code as then.\n"
                f"Try: inductor-debug rerun {self.run} --anyway"
            )
        return [f"not as in {self.run}: {line}" for line in [*refused, *told]]

    def check_compiled(self, now: Mapping[str, Any]) -> list[str]:
        """What to tell once the case is compiled: the options that were set otherwise than then since it was built."""
        return [f"not as in {self.run}: {line}" for line in set_otherwise(self.record or {}, now)]


def recorded(run: Path) -> dict[str, Any] | None:
    """What compiled a stored run; None where it left no ``summary.json``, or an earlier version wrote it."""
    if not (run / SUMMARY).is_file():
        return None
    record = store.read_summary(run).get("compiled_by")
    if not isinstance(record, dict) or not all(value is None or isinstance(value, dict) for value in record.values()):
        return None
    return record


@contextlib.contextmanager
def restored(record: Mapping[str, Any] | None) -> Iterator[list[str]]:
    """While open, this process has a stored run's variables, as far as they may be taken over.

    Yields:
        What was done, a line each.
    """
    stored = (record or {}).get("variables") or {}
    before = dict(os.environ)
    told = []
    try:
        for name, value in sorted(stored.items()):
            if isinstance(value, str) and restorable(name, value) and os.environ.get(name) != value:
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
