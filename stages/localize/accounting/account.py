"""What the errors of a step's values cost its outputs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from inductor_debug.stages.localize.accounting.frozen import Name, Step
from inductor_debug.stages.localize.accounting.links import SUMS, Ends
from inductor_debug.stages.localize.accounting.shares import Shares, fewest, shares_of
from inductor_debug.stages.localize.config import TRUSTED
from inductor_debug.stages.localize.runs.regions import Seen

REPLAYED = 8
"""Values that are mended, one at a time, where it is farther; each costs a step in float64."""


@dataclass
class Account:
    """Of one step.

    Attributes:
        shares: of each value, to first order; None where the outputs have no error, or could not be followed.
        remains: by culprit, the share of the final error that remains where its values are right for what they
            received.
        few: the fewest values that are to be right for a verdict that passes; empty where that was not asked.
        altered: what the graphs that ran give otherwise than the model, see :meth:`Step.altered`; None where that is
            not known.
        missing: what is not accounted for, in words.
        replayed: where first order does not account for the error, by how much of it the step's is smaller with one
            value right for what it received, of those with the largest shares; empty where it does.
        sums: what autograd added up between the graphs.
    """

    shares: Shares | None = None
    remains: dict[Name, float] = field(default_factory=dict)
    few: list[Name] = field(default_factory=list)
    altered: dict[str, float] | None = None
    missing: list[str] = field(default_factory=list)
    replayed: dict[Name, float] = field(default_factory=dict)
    sums: list[Seen] = field(default_factory=list)

    @property
    def closure(self) -> float | None:
        """The sum of the shares."""
        return None if self.shares is None else self.shares.closure

    @property
    def ranked(self) -> list[tuple[Name, float]]:
        """Values and their shares, their decisions included, or what replays say; the largest first."""
        if self.shares is None:
            return []
        names = {**self.shares.own, **self.shares.decisions}
        found = self.replayed or {name: self.shares.of(name) or 0.0 for name in names}
        return sorted(found.items(), key=lambda item: -abs(item[1]))


def account(
    runs: Sequence[Seen],
    ends: Ends,
    culprits: Mapping[Name, Collection[Name]],
    target: float | None,
    gold: Ends | None = None,
) -> Account:
    """Account for the final error of a step.

    Args:
        runs: of its graphs, in order.
        ends: what it began and ended with.
        culprits: operation at fault → the values that it makes wrong.
        target: the share of the error with which the verdict would pass, to learn which few operations it takes; None
            where that is not asked.
        gold: what the step gives in float64; None where that is not known.
    """
    step = Step(runs, ends)
    found = Account(missing=step.missing, sums=[each.seen for each in step.passes if each.seen.id == SUMS])
    if gold is not None and step.passes:
        found.altered = step.altered(ends, gold)
    if not step.error:
        return found
    found.shares = shares_of(step)
    found.missing += found.shares.missing
    if not abs(found.shares.closure - 1) <= TRUSTED:
        suspects = [name for name, _ in found.ranked if name in found.shares.own][:REPLAYED]
        found.replayed = {name: 1 - step.remaining([name]) for name in suspects}
    found.remains = {name: step.remaining(values) for name, values in culprits.items()}
    if target is not None:
        found.few = fewest(step, found.shares, target)
    return found
