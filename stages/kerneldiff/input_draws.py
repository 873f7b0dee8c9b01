"""Other inputs through the same compilation, and the first again: faults that one input, or one call, does not show.

A backend may be wrong for ties alone, at every third call, return its first results for ever, or put results where its
next call overwrites them. So the reference and the test side run on further draws of the inputs
(:mod:`models.input_draws`). Where they differ by more than the first draw's verdicts allow, the draw is judged as the
first was, by a gold of its own. What a call returned is looked at again after the next.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from inductor_debug.models.case import Case
from inductor_debug.models.input_draws import EMPTY, SPECIAL, drawn_inputs
from inductor_debug.models.input_draws import MOST as ORDINARY
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.reviews import Change
from inductor_debug.stages.kerneldiff.standard import Standard
from inductor_debug.stages.kerneldiff.tables import describe_error
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import TensorComparison, raised
from inductor_debug.stages.numerics.verdict import FAILING
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.held import Held

LEAST, MOST = 3, 16
"""Draws of the inputs, the first included."""
SMALL = 2**20
"""Elements of weights and inputs together, up to which a case has the most draws: they cost less than to compile it."""

Judge = Callable[[Standard, sides.Side], Comparison]
"""Judges a test side that ran by its standard."""


@dataclass
class InputDraws:
    """What further draws of the inputs showed.

    Attributes:
        count: ordinary draws that were judged, the first included.
        special: draws with special values that were judged.
        empty: graphs that were compiled anew for an empty batch, which was judged; None: there was none.
        refused: special draws that were not judged, and why.
        failed: numbers of those that failed; the first where it failed when it was called again.
        wrong: numbers of those that failed when they were first called.
        called: draws of the test side's calls, in order.
        failing: these, up to the first that failed; empty where none did.
        rows: of later draws, tensors that failed for the first time.
        changes: what reviews changed of these.
        reference, test: their leaves, under the rows' paths.
        note: why there are not as many draws as were asked for; empty where there are.
        known: kind and path of the tensors that failed up to now.
        change: RMS by which another draw changes the reference's output that changes most, over that output's RMS; None
            where no output is of floating point.
        copied: results were compared as they were copied at once, for they lay in a CUDA graph's memory.
    """

    count: int = 1
    special: int = 0
    empty: int | None = None
    refused: list[str] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=lambda: [1])
    failing: list[int] = field(default_factory=list)
    rows: list[TensorComparison] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    reference: sides.Leaves = field(default_factory=dict)
    test: sides.Leaves = field(default_factory=dict)
    note: str = ""
    known: set[tuple[str, str]] = field(default_factory=set)
    change: float | None = None
    copied: bool = False

    def told(self, first: bool) -> str:
        """What a run's message adds: how many draws there were, and in how many of them something failed.

        Where nothing did: the share of draws of which one is among as many in 95 of 100 runs.

        Args:
            first: whether the first draw failed.
        """
        refused = f"; not judged: {'; '.join(self.refused)}" if self.refused else ""
        if self.count == 1 and not self.special and self.empty is None:
            return f"; one draw of the inputs: {self.note}{refused}" if self.note else refused
        draws = f"{self.count} draws of the inputs" + f" and {self.special} with special values" * bool(self.special)
        if self.empty is not None:
            draws += " and an empty batch" + f" (graphs compiled anew for it: {self.empty})" * bool(self.empty)
        draws += self.note and f", for {self.note}"
        copied = " (results were copied at once: a CUDA graph's next replay may overwrite them)" * self.copied
        failed = {*self.failed, *([1] if first else [])}
        if failed:
            told = f"; it does not pass in {len(failed)} of {draws}{copied}"
            if not first and self.wrong:
                told += f", first in draw {self.wrong[0]} (stages.kerneldiff.draw={self.wrong[0]} compares that one)"
            return f"{told}{refused}"
        change = "" if self.change is None else f", which change the outputs by {100 * self.change:.3g} % of their RMS"
        share = 1 - 0.05 ** (1 / self.count)
        seen = f"a fault that shows in {100 * share:.0f} % of such draws is seen with 95 % certainty"
        return f"; {draws}{change}{copied}: {seen}, a rarer one may not{refused}"

    def not_taken(self, number: int, why: str) -> None:
        """Note why a draw was not judged."""
        if number <= ORDINARY:
            self.note = why
        else:
            self.refused.append(f"{[*SPECIAL, 'an empty batch'][number - ORDINARY - 1]}, for {why}")

    def add(self, number: int, rows: Sequence[TensorComparison], *, again: bool = False) -> list[TensorComparison]:
        """Take in what fails in a draw; those of the rows that are kept, for their tensors failed in no draw before."""
        if rows and number not in self.failed:
            self.failed.append(number)
        if rows and not self.failing:
            self.failing = list(self.called)
        new = [row for row in rows if (row.kind, row.path) not in self.known]
        self.known |= {(row.kind, row.path) for row in new}
        self.rows += [row.in_draw(number, again=again) for row in new]
        return new

    def look_again(self, held: "Held") -> None:
        """Take in what the call after it overwrote of what a call had left."""
        rows, contract = held.overwritten()
        self.add(held.number, rows, again=held.number == 1)
        if contract:
            self.copied = True

    def judge(self, number: int, comparison: Comparison, *, again: bool = False) -> None:
        """Take in what failed of a draw's comparison."""
        if comparison.verdict not in FAILING:
            return
        self.wrong += [] if again else [number]
        paths = {id(row): row.path for row in comparison.failed}
        changes = {(change.kind, change.path): change for change in comparison.reviews.changes}
        for row in self.add(number, comparison.failed, again=again):
            path = paths[id(row)]
            change = changes.get((row.kind, path))
            if change is not None:
                self.changes.append(dataclasses.replace(change, path=row.path))
            for mine, theirs in ((self.reference, comparison.reference), (self.test, comparison.test)):
                if path in theirs.get(row.kind, {}):
                    mine.setdefault(row.kind, {})[row.path] = theirs[row.kind][path]


def draws_of(case: Case, config: KernelDiffConfig, *, failed: bool = False) -> list[int]:
    """Numbers of a case's draws of the inputs: as were asked for, else by its size, so that a rerun has as many.

    Args:
        case: the test side's.
        config: the options.
        failed: whether the first draw fails, so that the others only tell how often.
    """
    special = [*range(ORDINARY + 1, EMPTY + 2)] if config.special else []
    if config.draws is not None:
        return [*range(1, config.draws + 1), *special]
    tensors = [*case.module.parameters(), *case.module.buffers(), *case.named_inputs().values()]
    small = sum(tensor.numel() for tensor in tensors) <= SMALL
    return [*range(1, (MOST if small and not failed else LEAST) + 1), *special]


class _Accepted:
    """How far the test side may be from the reference by the first draw's verdicts, each tensor relative to its RMS.

    As far as the floor's limit lets it, or twice as far as it was.
    """

    def __init__(self, rows: Sequence[TensorComparison]) -> None:
        self.rows = {(row.kind, row.path): row for row in rows}

    def covers(self, reference: sides.Side, test: sides.Side) -> bool:
        """Whether each tensor of another draw is within that."""
        difference = KernelDiff(worst=0)
        for kind in {**reference.leaves, **test.leaves}:
            difference.compare_leaves(reference.leaves.get(kind, {}), test.leaves.get(kind, {}), {}, kind=kind)
        return all(row.verdict == "exact" or self._covers(row) for row in difference.rows)

    def _covers(self, row: TensorComparison) -> bool:
        first = self.rows.get((row.kind, row.path))
        if first is None or first.verdict in FAILING or first.factor is None or row.bound != "tolerance":
            return False
        if not first.reference_rms or not row.reference_rms:
            return False
        # a loss that is a sum of products cancels: its noise is that of the outputs, whatever its own size
        scale = 1.0 if row.kind == "loss" else row.reference_rms / first.reference_rms
        for now, then, floor in (
            (row.rmse, first.rmse, first.floor_rms),
            (row.max_abs, first.max_abs, first.floor_max),
        ):
            if now is None or then is None or floor is None or now > scale * max(first.factor * floor, 2 * then):
                return False
        return True


def further_draws(
    context: StageContext,
    numbers: Sequence[int],
    standard: Standard,
    compiled: Callable[..., Any],
    first: sides.Side,
    rows: Sequence[TensorComparison],
    judge: Judge,
) -> InputDraws:
    """Run all sides on other inputs, then the test side on the first ones again.

    Args:
        context: of the stage.
        numbers: of the draws, without the first.
        standard: of the first draw; left as it is, but that gold is brought back where it is needed.
        compiled: the test side's module, compiled.
        first: the test side on the first draw.
        rows: of the first draw, reviewed.
        judge: gives the comparison of one draw.
    """
    found, case, base = InputDraws(), standard.case, standard.origin
    assert isinstance(base, Case)
    found.known = {(row.kind, row.place) for row in rows if row.verdict in FAILING}
    held, accepted = Held(1, standard.reference, first), _Accepted(rows)
    for number in numbers:
        if found.note and number <= ORDINARY:
            continue
        context.progress(f"draw {number}: other random inputs")
        with drawn_inputs(case, number - 1, *standard.others) as varies:
            if not varies:
                found.not_taken(number, "there is no input to vary")
                continue
            mine = dataclasses.replace(case, draws=None)
            own = mine if base is case else dataclasses.replace(base, draws=None)
            reference = sides.run_side("reference", own, partial(sides.reference_function, context, own))
            held.look_at_eager()
            if reference.error:
                found.not_taken(number, f"on other inputs the reference raised {describe_error(reference.error)}")
                continue
            if number == 2:
                found.change = _change(standard.reference, reference)
            given = getattr(compiled, "given", 0)
            test = sides.run_side("test", mine, lambda: compiled)
            found.called.append(number)
            found.look_again(held)
            if test.error:
                found.wrong.append(number)
                found.add(number, [raised("output", "all", "the test side", test.error)])
            else:
                held = Held(number, reference, test)
                if not accepted.covers(reference, test):
                    found.judge(number, judge(standard.with_gold(mine, own, reference), test))
        found.count += number <= ORDINARY
        found.special += ORDINARY < number <= EMPTY
        if number > EMPTY:
            found.empty = getattr(compiled, "given", 0) - given
        reference = test = sides.Side()  # what is still looked at is held
    again = sides.run_side("test", case, lambda: compiled)
    found.called.append(1)
    found.look_again(held)
    if again.error:
        found.add(1, [raised("output", "all", "the test side", again.error)], again=True)
    elif not sides.gave_again(first, again) and not accepted.covers(standard.reference, again):
        standard.bring_gold_back()
        found.judge(1, judge(standard, again), again=True)
    return found


def _change(first: sides.Side, second: sides.Side) -> float | None:
    """See :attr:`InputDraws.change`."""
    difference = KernelDiff(worst=0)
    difference.compare_leaves(first.leaves.get("output", {}), second.leaves.get("output", {}), {}, kind="output")
    floating = [row for row in difference.rows if row.max_ulp is not None and row.rmse is not None]
    return max((row.rmse / row.reference_rms for row in floating if row.reference_rms), default=None)  # type: ignore[operator]
