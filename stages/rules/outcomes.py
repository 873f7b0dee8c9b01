"""What one rule finds in one graph: what it looks at, what it says of each distinct subject, and the rows of both."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.counting import stands_alone
from inductor_debug.stages.rules.judged import Judgement, Seen, Subject
from inductor_debug.stages.rules.unread import Unread
from inductor_debug.stages.rules.violation import Violation

Judge = Callable[[Any, Rule], Iterator[Judgement]]


class Looked:
    """What a rule looks at in a graph, in order, with its distinct subjects.

    Attributes:
        places: what is seen, with the position of its subject; nodes that can't be judged; rows that the rule wrote.
        subjects: each once.
    """

    def __init__(self, found: Iterable[Seen | Unread | Violation]) -> None:
        positions: dict[Hashable, int] = {}
        self.places: list[tuple[Seen, int] | Unread | Violation] = [
            each if isinstance(each, Unread | Violation) else (each, positions.setdefault(each.subject, len(positions)))
            for each in found
        ]
        self.subjects = list(positions)


@dataclass(frozen=True)
class Outcome:
    """What a rule finds in a graph at one value.

    Attributes:
        graph, rule: which.
        looked: what the rule looks at.
        judgements: of each subject.
    """

    graph: GraphRecord
    rule: Rule
    looked: Looked
    judgements: list[tuple[Judgement, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, graph: GraphRecord, rule: Rule, looked: Looked, judge: Judge | None) -> "Outcome":
        """What ``judge`` says of each subject.

        Args:
            graph, rule, looked: as of the class.
            judge: the rule's; None for one that writes its rows.
        """
        assert judge is not None or not looked.subjects
        found = [tuple(judge(subject, rule)) for subject in looked.subjects] if judge is not None else []
        if rule.effect == "pad":  # a view allocates nothing that could be padded
            for position, subject in enumerate(looked.subjects):
                if found[position] and isinstance(subject, Subject) and subject.aliases:
                    found[position] = tuple(each._replace(cost=None, share=None) for each in found[position])
        return cls(graph, rule, looked, found)

    def rows(self) -> Iterator[Violation]:
        """Its rows; those of a fallback with the share of the graph's known FLOPs that their nodes take to the host."""
        rows = self._rows()
        return _with_share(rows, self.graph) if self.rule.effect == "fallback" else rows

    def _rows(self) -> Iterator[Violation]:
        for place in self.looked.places:
            if isinstance(place, Violation):
                yield place
            elif isinstance(place, Unread):
                yield place.row(self.rule)
            else:
                seen, position = place
                for judgement in self.judgements[position]:
                    yield seen.row(self.rule, judgement)

    @property
    def costs(self) -> list[int]:
        """What each judgement costs, subject by subject, 0 where that is not known; then each row that was written."""
        judged = [judgement.cost or 0 for of_subject in self.judgements for judgement in of_subject]
        return judged + [place.cost_bytes or 0 for place in self.looked.places if isinstance(place, Violation)]

    def sources(self) -> Iterator[int | None]:
        """For each row the position in :attr:`costs` of what it costs by itself; None for one without."""
        starts = [0]
        for of_subject in self.judgements:
            starts.append(starts[-1] + len(of_subject))
        written = starts[-1]
        for place in self.looked.places:
            if isinstance(place, Unread):
                yield None
            elif isinstance(place, Violation):
                yield written
                written += 1
            else:
                yield from range(starts[place[1]], starts[place[1] + 1])

    @property
    def outline(self) -> Hashable:
        """All of its rows that the counting of findings, operations and costs depends on, but costs that stand alone.

        Two outcomes of a rule in a graph, at two values, with the same outline are counted alike: of a cost that stands
        alone (:func:`~stages.rules.counting.stands_alone`) it only matters whether there is one.
        """
        alone = stands_alone(self.rule.rule, self.rule.effect or "reject")
        judged = tuple(
            tuple((each.undecided, each.part, each.node, bool(each.cost) if alone else each.cost) for each in found)
            for found in self.judgements
        )
        told: dict[str, Any] = {"measured": "", "limit": "", "message": "", "suggestion": "", "cost_share": None}
        written = tuple(
            row.but(**told, cost_bytes=int(bool(row.cost_bytes)) if alone else row.cost_bytes)
            for row in self.looked.places
            if isinstance(row, Violation)
        )
        return judged, written


def _with_share(rows: Iterator[Violation], graph: GraphRecord) -> Iterator[Violation]:
    flops = {node.name: node.flops for node in graph.nodes}
    total = sum(number or 0 for number in flops.values())
    for row in rows:
        own = [number for name in {row.node, *row.also} if (number := flops[name]) is not None]
        yield row if not own or not total else row.but(cost_share=sum(own) / total)
