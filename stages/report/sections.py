"""What makes a section of the report.

::

    class Power(ReportSection):
        title = "How much power does it take?"
        template = Path(__file__).with_name("section.html")

        def collect(self, run: ReportedRun) -> Row | None:
            return FACTS.read(run.artifacts)

        def answer(self, data: Any, report: Mapping[str, Any]) -> Answer | None:
            if data is None:
                return None
            return Answer("told", f"{data['watts']} W", f"A step takes {data['watts']} W.")

The template is Jinja's. It sees all of the report's data by key, and ``{% from "macros.html" import table, more %}``.
The page writes the heading above it, and its answer into the list of contents.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row, Table
from inductor_debug.stages.artifacts.records import Summary
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.declaration import named
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.registry import declared

_LONGEST = 120
"""Characters of an error in the sentence about the run."""


@dataclass(frozen=True)
class ReportedRun:
    """What a section is made from.

    Attributes:
        artifacts: what the run's stages stored.
        summary: content of ``summary.json`` as far as it is known; empty where the runner gave none.
        max_rows: rows of a table that the report keeps.
    """

    artifacts: Artifacts
    summary: Mapping[str, Any]
    max_rows: int

    @cached_property
    def head(self) -> Summary | None:
        """``summary.json`` as a record; None where the runner gave none."""
        return files.SUMMARY.read(self.artifacts)


State = Literal["good", "bad", "warn", "unknown", "told"]
"""``good`` and ``bad`` judge the run; ``warn`` is bad and does not fail it. ``unknown``: it could not be established.
``told``: there is nothing to judge."""


@dataclass(frozen=True)
class Answer:
    """A section's answer to the question that is its title.

    Attributes:
        state: of the answer.
        word: the answer in a few words, for the list of contents: ``yes``, ``1.25 times``.
        text: one sentence, with a full stop, for someone who was not there.
        does: what the model does, for the sentence about the whole run: ``fits the profile warn16``. Empty where that
            sentence does not speak of it.
        then: commands to type next, the most useful first. ``RUN`` stands for the run's folder.
    """

    state: State
    word: str
    text: str
    does: str = ""
    then: tuple[str, ...] = ()


class ReportSection(ABC):
    """One section.

    Attributes:
        title: its heading, a question where it answers one.
        template: its HTML, without the heading; also rendered where there are no data, to say why.
        scripts: files of JavaScript that run on a page with data of the section, in this order, after the page's own.
    """

    title: ClassVar[str]
    template: ClassVar[Path]
    scripts: ClassVar[Sequence[Path]] = ()

    @abstractmethod
    def collect(self, run: ReportedRun) -> Any:
        """JSON-able data of the section, in ``report.json`` under its key; None or empty where there are none."""

    def answer(self, data: Any, report: Mapping[str, Any]) -> Answer | None:
        """What stands in the list of contents; None where only what became of the stage can be said.

        Args:
            data: what :meth:`collect` gave.
            report: data of the whole report.
        """
        return None

    def not_established(self, data: Any, report: Mapping[str, Any]) -> Sequence[str]:
        """What the run can't say about the section's subject, one sentence each; arguments as of :meth:`answer`."""
        return ()

    def page(self, data: Any, artifacts: Artifacts) -> Mapping[str, Any]:
        """What the HTML needs beside the data: variables of the template."""
        return {}


def said(report: Mapping[str, Any], stage: str) -> str:
    """What a stage said in a sentence, for a section's answer; empty where it left no record."""
    messages = [item.get("message") or "" for item in report["stages"] if item.get("name") == stage]
    return headline(str(messages[0])) if messages else ""


def raised(report: Mapping[str, Any], stage: str) -> str:
    """The beginning of the error with which a stage crashed, for the sentence about the run."""
    first = said(report, stage).partition(" (within ")[0]
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"


def capped(rows: list[Row] | None, file: Table, max_rows: int, order: Callable[[Row], Any] | None = None) -> Row | None:
    """The first rows of a table, how many there are, and the file that has all.

    Args:
        rows: of the table; None where it was not stored.
        file: the table.
        max_rows: how many rows to show.
        order: sorts the rows first, smallest key first; None keeps their order.
    """
    if rows is None:
        return None
    ordered = sorted(rows, key=order) if order else rows
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "rows": ordered[:max_rows], "rows_total": len(rows), "file": file.path}


@dataclass(frozen=True)
class Shown:
    """A section, and the name of the stage that declares it."""

    section: ReportSection
    stage: str


def sections() -> dict[str, Shown]:
    """Key in ``report.json`` → section, of all stages, in the order of the page."""
    found = [(stage.order if section.place is None else section.place, section, stage.name)
             for stage in declared().values() for section in stage.sections]  # fmt: skip
    ordered = sorted(found, key=lambda item: item[0])
    return {section.key: Shown(named(section.maker)(), stage) for _, section, stage in ordered}
