"""What a stage declares of itself, once: whatever lists stages iterates over declarations.

A folder of :mod:`stages` with a ``declaration.py`` that holds a ``DECLARATION`` is a stage. So is a declaration that an
installed package names in the entry-point group ``inductor_debug.stages``. A declaration names as text what is imported
only when it is needed: ``"package.module:attribute"``.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESERVED = (
    *("schema", "run", "compiled_by", "verdict", "stages", "repros"),
    *(
        "title",
        "address",
        "versions",
        "reproduce",
        "files",
        "contents",
        "findings",
        "not_established",
        "sentence",
        "then",
    ),
    "summary",
)
"""Parts of ``summary.json`` and ``report.json``, and questions, that are about the run as a whole."""


CASE = ("model", "dtype", "device", "mode", "precision", "tf32", "seed")
"""Fields of ``Settings`` that a case is built from."""


@dataclass(frozen=True)
class Question:
    """A question that ``inductor-debug analyze --type NAME`` answers from stored files.

    Attributes:
        text: the question.
        answer: ``"module:function"``, a function of a :class:`~stages.stored_run.StoredRun` and a
            :class:`~stages.stored_run.Wanted` that returns an :class:`~stages.stored_run.Analysis`. It raises a
            UserError where the run does not hold the answer. Its module must not import torch.
        takes: fields of ``Wanted`` that it heeds.
    """

    text: str
    answer: str
    takes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        key: of its data in ``report.json``.
        maker: ``"module:Class"``, a :class:`~stages.report.sections.ReportSection`. Its module must not import torch.
        place: sections stand in this order; None for the stage's ``order``.
    """

    key: str
    maker: str
    place: float | None = None


@dataclass(frozen=True)
class Declaration:
    """One stage.

    Attributes:
        name: as in ``stages=[…]``; also the folder of the run's directory that it writes into.
        stage: ``"module:Class"``, a :class:`~stages.contract.Stage`. It alone may import torch.
        options: dataclass of its options, all with defaults. A method ``check(self)``, where it has one, raises
            ConfigurationError for what the fields' own declarations (:mod:`models.options`) can't tell.
        order: stages are listed, and meant to run, in this order; the report has 100.
        needs: names of stages whose failure makes this one ``skipped``. Selecting a stage without its needs, or
            before them, is a configuration error: a run that checked nothing must not pass.
        by_default: whether it is in the default list, which ``conf/config.yaml`` spells out.
        uses_torch: False for a stage that must run without importing torch.
        timed: True where its results are times: it runs without what a run sets for bit reproduction alone; None where
            it may run either way, in the process of its neighbours.
        holds_times: whether its result holds a time beside what else it finds: such a result is of one machine, as that
            of a timed stage is.
        reads: fields of ``Settings`` that it may read; it is given defaults in the place of the others. Its result is
            then kept, and given to later runs in which these, its options and what it follows are the same. None: it
            may read all, and its result is never kept.
        follows: names of earlier stages whose artifacts it may read, and how they ended, where ``reads`` is not None.
        waives: whether its result depends on which waivers of the profile have expired, and so on the day.
        skipped_by_violation: whether a violation of a strict profile skips it.
        summary: its parts of ``summary.json``: key → the record or mapping that stands there before it has run.
        if_broken: what stands in those parts where it crashed, timed out or met a mistake, and said nothing itself.
        sections: its sections of the report.
        subject: what a run without the stage can't say, as the report lists it ("Whether the model fits"); empty where
            nobody misses it.
        questions: name → question.
    """

    name: str
    stage: str
    options: type
    order: float = 90
    needs: tuple[str, ...] = ()
    by_default: bool = False
    uses_torch: bool = True
    timed: bool | None = False
    holds_times: bool = False
    reads: tuple[str, ...] | None = None
    follows: tuple[str, ...] = ()
    waives: bool = False
    skipped_by_violation: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict)
    if_broken: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    subject: str = ""
    questions: Mapping[str, Question] = field(default_factory=dict)

    def claims(self) -> set[tuple[str, str]]:
        """Kind and name of all that no two stages may both have."""
        parts = {("part of summary.json", key) for key in self.summary}
        shown = {("section of the report", section.key) for section in self.sections}
        return {("stage", self.name), *parts, *shown, *(("question", name) for name in self.questions)}


def named(path: str) -> Any:
    """What ``"module:attribute"`` names, imported now."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
