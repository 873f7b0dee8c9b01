"""The looks at a comparison that may change a verdict, in their order, and what each of them changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement


@dataclass(frozen=True)
class Found:
    """What a review found: new judgements by the index of their row, and words for the stage's message."""

    judgements: Mapping[int, Judgement] = field(default_factory=dict)
    note: str = ""


class Review(Protocol):
    """One look at all rows: most evidence is a run, and one run tells of every tensor."""

    name: str

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        """Judge what concerns this review; rows are as the reviews before it left them, and are not changed here."""
        ...


@dataclass(frozen=True)
class Change:
    """One step that changed a verdict, or what it rests on."""

    review: str
    kind: str
    path: str
    before: Judgement
    after: Judgement


@dataclass
class Reviewed:
    """All that reviews did.

    Attributes:
        changes: in the order in which they were made.
        notes: review → what it found, in words; without those that found nothing to say.
    """

    changes: list[Change] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> pd.DataFrame:
        """``kerneldiff/reviews.csv``."""
        lines = [
            (item.review, item.kind, item.path, item.before.verdict, item.after.verdict, item.before.bound,
             item.after.bound, item.after.reason.value, item.before.ratio, item.after.ratio, item.after.message)
            for item in self.changes
        ]  # fmt: skip
        return pd.DataFrame(lines, columns=COLUMNS, dtype=object)


COLUMNS = ["review", "kind", "path", "verdict_before", "verdict", "bound_before", "bound", "reason", "ratio_before",
           "ratio", "message"]  # fmt: skip


def reviewed(reviews: Sequence[Review], evidence: Evidence, rows: Sequence[TensorComparison]) -> Reviewed:
    """Let each review judge the rows in turn; what it finds becomes the row's verdict."""
    done = Reviewed()
    for review in reviews:
        found = review.review(evidence, rows)
        decide(review.name, rows, found.judgements, done.changes)
        if found.note:
            done.notes[review.name] = found.note
    return done


def decide(
    name: str, rows: Sequence[TensorComparison], judgements: Mapping[int, Judgement], changes: list[Change]
) -> None:
    """Make judgements the verdicts of their rows.

    Args:
        name: the review's.
        rows: the compared tensors; changed in place.
        judgements: by the index of their row.
        changes: gets a step for each verdict that changed.
    """
    for index, judgement in judgements.items():
        row, before = rows[index], rows[index].judgement
        if judgement != before:
            changes.append(Change(name, row.kind, row.path, before, judgement))
            row.decide(judgement)
