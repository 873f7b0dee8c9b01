"""A stored run as a question reads it: what it does not hold is an error that says what to type."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.models.visible import visible
from inductor_debug.stages.artifacts import files, kinds
from inductor_debug.stages.artifacts.kinds import Content, File, Json, Row
from inductor_debug.stages.artifacts.records import Summary
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import stage_note

_CONFIGURATION = ".hydra/config.yaml"
"""What a run is made again from."""


@dataclass(frozen=True)
class Table:
    """One table of an answer.

    Attributes:
        name: a word or two; the key in JSON.
        columns: in this order.
        rows: their values are JSON-able.
        file: where all of it is stored, relative to the run; empty for what is computed from several files.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Row]
    file: str = ""


@dataclass
class Analysis:
    """An answer: sentences, then tables."""

    told: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class Wanted:
    """What of an answer is asked for; all of it where nothing is.

    Attributes:
        graph: a graph's id, ``g0.forward``.
        lines: source lines, each ``FILE:LINE``, ``FILE``, or a part of the line's code.
        kernels: kernels' names or parts of them, or ``NAME:HANDLE``.
        nodes: names of post-grad nodes, or of the scheduler's.
    """

    graph: str | None = None
    lines: Sequence[str] = ()
    kernels: Sequence[str] = ()
    nodes: Sequence[str] = ()


class StoredRun:
    """One run's files.

    Args:
        folder: the run's folder, for messages.
        summary: content of its ``summary.json``: a mapping, for each stage, a package's too, declares a part of it.
            What every run has is in :attr:`head`.
        artifacts: its files.
    """

    def __init__(self, folder: Path, summary: dict[str, Any], artifacts: Artifacts) -> None:
        self.folder, self.summary, self.artifacts = folder, summary, artifacts

    @cached_property
    def head(self) -> Summary:
        """What ``summary.json`` holds whatever the stages: the run, its verdict, what became of each stage."""
        return files.SUMMARY.shaped(self.summary)

    @cached_property
    def names(self) -> list[str]:
        """Stored paths."""
        return self.artifacts.names()

    def has(self, file: File | str, *parts: str) -> bool:
        return _path(file, parts) in self.names

    @overload
    def json(self, file: Json[Content], *parts: str) -> Content: ...

    @overload
    def json(self, file: str) -> Any: ...

    def json(self, file: Json[Any] | str, *parts: str) -> Any:
        """A JSON file's content; RunDirectoryError where there is none, or not what was stored."""
        name = _path(file, parts)
        with self._held(name):
            content = self.artifacts.read_json(name)
        return content if isinstance(file, str) else file.shaped(content, *parts)

    def text(self, name: str) -> str:
        """A text file's content; RunDirectoryError where there is none, or not what was stored."""
        with self._held(name):
            return self.artifacts.read_text(name)

    @contextlib.contextmanager
    def _held(self, name: str) -> Iterator[None]:
        """A file that an answer needs and that is not there is an error that says what to type."""
        try:
            yield
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"holds no {visible(name)}, so the answer is not known",
                key=visible(str(self.folder)),
                valid="a whole run",
                hint=self.rerun(),
            ) from error

    def table(self, file: kinds.Table | str, *parts: str) -> list[Row]:
        """A CSV file's rows, numbers and truth values as such, empty cells as None; [] where there is no such file."""
        table = files.table_of(file) if isinstance(file, str) else file
        return table.read(self.artifacts, *parts) or []

    def status(self, stage: str) -> str | None:
        """What became of a stage; None where it was not selected."""
        return next((item.status for item in self.head.stages if item.name == stage), None)

    def message(self, stage: str) -> str:
        """What a stage said."""
        return next((item.message or "" for item in self.head.stages if item.name == stage), "")

    def lacks(self, what: str, stage: str, *changes: str, because: str = "") -> UserError:
        """The error for what the run does not hold: which stage makes it, and the command to type.

        Args:
            what: ``kernels``.
            stage: the stage that would store it.
            changes: overrides that the command takes.
            because: why it is not there; by default what became of the stage.
        """
        reason, hint = because or stage_note(self.summary["stages"], stage), self.rerun(*changes)
        if not because and self.status(stage) == "passed" and not (self.folder / _CONFIGURATION).exists():
            reason = f"the stage {stage} passed, but this is a part of the run's folder, such as an export"
            hint = "the same question, where the run was made"
        return UserError(f"holds no {what}: {reason}", key=visible(str(self.folder)), hint=hint)

    def rerun(self, *changes: str) -> str:
        """The command that runs it again, as of :func:`made_again`."""
        return made_again(self.folder, *changes)


def made_again(folder: Path, *changes: str) -> str:
    """The command that runs a stored run again; of an export, which has no configuration, also where to type it.

    Args:
        folder: the run's.
        changes: overrides.
    """
    command = shlex.join(["inductor-debug", "rerun", visible(str(folder)), *changes])  # for zsh, [ begins a pattern
    return command if (folder / _CONFIGURATION).exists() else f"where the run was made: {command}"


def whole_table(run: StoredRun, name: str, file: kinds.Table) -> Table:
    """A stored table as it is."""
    rows = run.table(file)
    columns = list(rows[0]) if rows else (run.text(file.path).splitlines()[:1] or [""])[0].split(",")
    return Table(name, columns, rows, file.path)


def _path(file: File | str, parts: Sequence[str]) -> str:
    return file if isinstance(file, str) else file.at(*parts)
