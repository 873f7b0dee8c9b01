"""``inductor-debug list``: the stored runs below a folder, all or those that are asked for."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError, closest_first, nearest
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.live import tracked
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import Row

FILTERS = ("model", "accel", "backend", "dtype", "mode", "verdict", "numerics")
"""Columns that a word ``KEY=PATTERN`` may ask for."""


@dataclass(frozen=True)
class Asked:
    """Which runs are asked for.

    Attributes:
        root: the folder to look in.
        patterns: column → patterns as a shell has them, of which one must fit.
    """

    root: Path
    patterns: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, words: Sequence[str], command: str = "list") -> "Asked":
        """What words ask for: a folder, by default outputs, and ``KEY=PATTERN[,PATTERN]``.

        Args:
            words: of the command line.
            command: for messages.

        Raises:
            ConfigurationError: two folders, a key that is none of :data:`FILTERS` or is there twice, an empty pattern.
        """
        folders = [word for word in words if "=" not in word or Path(word).is_dir()]
        if len(folders) > 1:
            raise ConfigurationError(f"{command}: got the folders {', '.join(folders)}; valid: one, by default "
                                     f"outputs.\nTry: inductor-debug {command} {shlex.quote(folders[0])}")  # fmt: skip
        patterns: dict[str, list[str]] = {}
        for word in words:
            if word in folders:
                continue
            key, _, value = word.partition("=")
            if key not in FILTERS:
                near = closest_first(key, FILTERS)
                meant = nearest(key, FILTERS)
                again = f"{command} {meant}={value or 'PATTERN'}" if meant else f"{command} --help"
                raise ConfigurationError("runs are not chosen by it", key=key, valid=", ".join(near),
                                         hint=f"inductor-debug {again}")  # fmt: skip
            given = [*patterns.get(key, []), *value.split(",")]
            if key in patterns or not all(given):
                one = ",".join(filter(None, given)) or "PATTERN"
                typed = ", ".join(word for word in words if word.startswith(f"{key}="))
                raise ConfigurationError(f"got {typed}", key=key, valid="one word, its patterns parted by commas",
                                         hint=f"inductor-debug {command} {shlex.quote(f'{key}={one}')}")  # fmt: skip
            patterns[key] = given
        return cls(Path(folders[0]) if folders else store.OUTPUTS, patterns)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a run's row is asked for."""
        return all(any(fnmatchcase(str(row.get(key) or ""), pattern) for pattern in patterns)
                   for key, patterns in self.patterns.items())  # fmt: skip


def rows(asked: Asked, last: int | None, unlisted: Callable[[str], None], none: Callable[[str], None]) -> list[Row]:
    """The rows of :func:`~pipeline.directory.store.row`, oldest first.

    Args:
        asked: which runs.
        last: only so many of them, the newest; None for all.
        unlisted: called with a message for a folder that can't be listed.
        none: called with a message where there are runs, and none of them is asked for.
    """
    with tracked(store.runs_by_start(asked.root, unlisted), "reading runs") as runs:
        every = [store.row(run) for run in runs]
    found = [row for row in every if asked.fits(row)]
    if every and not found:
        there = {key: sorted({str(row.get(key) or "") for row in every} - {""}) for key in asked.patterns}
        told = "; ".join(f"{key} is one of {', '.join(values) or 'none'}" for key, values in there.items())
        none(f"none of {counted(len(every), 'run')} is asked for. There: {told}")
    return found if last is None else found[len(found) - min(last, len(found)) :]
