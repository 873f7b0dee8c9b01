"""What makes a section of the report.

::

    class Power(ReportSection):
        template = Path(__file__).with_name("section.html")

        def collect(self, run: ReportedRun) -> Row | None:
            return FACTS.read(run.artifacts)

        def findings(self, data: Any, report: Mapping[str, Any]) -> list[str]:
            return [] if data is None else [f"Power: {data['watts']} W."]

The template is Jinja's. It sees all of the report's data by key, and ``{% from "macros.html" import table, more %}``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row, Table
from inductor_debug.stages.artifacts.records import Summary
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.declaration import named
from inductor_debug.stages.registry import declared


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


class ReportSection(ABC):
    """One section.

    Attributes:
        template: its HTML; also rendered where there are no data, to say why.
        describes: True where its findings describe the run, and so stand behind those that judge it.
    """

    template: ClassVar[Path]
    describes: ClassVar[bool] = False

    @abstractmethod
    def collect(self, run: ReportedRun) -> Any:
        """JSON-able data of the section, in ``report.json`` under its key; None or empty where there are none."""

    def findings(self, data: Any, report: Mapping[str, Any]) -> Sequence[str]:
        """Sentences for the top of the report.

        Args:
            data: what :meth:`collect` gave.
            report: data of the whole report.
        """
        return ()

    def not_established(self, data: Any, report: Mapping[str, Any]) -> Sequence[str]:
        """What the run can't say about the section's subject, one sentence each; arguments as of :meth:`findings`."""
        return ()

    def page(self, data: Any, artifacts: Artifacts) -> Mapping[str, Any]:
        """What the HTML needs beside the data: variables of the template."""
        return {}


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


def sections() -> dict[str, ReportSection]:
    """Key in ``report.json`` → section, of all stages, in the order of the page."""
    found = [(stage.order if section.place is None else section.place, section)
             for stage in declared().values() for section in stage.sections]  # fmt: skip
    return {section.key: named(section.maker)() for _, section in sorted(found, key=lambda item: item[0])}
