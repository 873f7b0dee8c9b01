"""The test side run again and again from one state: how it differs from itself, and every run judged like the first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.tables import JitterRow
from inductor_debug.stages.kerneldiff import random_draws
from inductor_debug.stages.kerneldiff.reviews import Change, decide
from inductor_debug.stages.numerics.comparison import KernelDiff, compare_tensors
from inductor_debug.stages.numerics.records import raised
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.matched_draws import Draws


@dataclass
class Repeats:
    """What the later runs showed.

    Attributes:
        rows: kind and path → row of ``kerneldiff/jitter.csv``.
        changes: verdicts that other random numbers changed.
    """

    rows: dict[tuple[str, str], JitterRow] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


def repeated(
    case: Case,
    compiled: Callable[..., Any],
    ran: tuple[sides.Side, sides.Side, sides.Side],
    runs: int,
    difference: KernelDiff,
) -> Repeats:
    """Run the test side again and again; one row a tensor of its first run.

    What a later run left out, or gave in another shape, counts as differing. A later run that raised, or a result of it
    that would fail in its own right, becomes a row of ``difference``: ``PATH (run 2)``. The test side's leaf then has
    that path too; the reference and gold ran once, and have theirs under the row's ``place``.

    Args:
        case: the test side's.
        compiled: its module, compiled.
        ran: reference, test and gold, one step each. The reference gets leaves for state that a later run alone wrote.
        runs: how many in all, the first included.
        difference: the first run's comparison; gets rows.
    """
    reference, test, gold = ran
    found, first = Repeats(), replace(test, leaves={kind: dict(part) for kind, part in test.leaves.items()})
    for kind, part in first.leaves.items():
        for path, leaf in part.items():
            if isinstance(leaf, torch.Tensor):
                _row_of(found, kind, path, runs)
    for number in range(2, runs + 1):
        again = sides.run_side("test", case, lambda: compiled)
        if again.error:
            difference.rows.append(raised("output", f"(run {number})", "the test side", again.error))
            for row in found.rows.values():
                row.differing += 1
            continue
        places = sides.state_places(reference.leaves) | sides.state_places(again.leaves)
        for side in (first, reference, gold):
            side.leaves = sides.with_state(side.leaves, places, case, exact=side is gold)
        theirs = sides.with_state(again.leaves, places, case)
        other = _others(found, first.leaves, theirs, runs)
        _judge(number, case, replace(again, leaves=theirs), (reference, test, gold), other, difference, found)
    return found


def _row_of(found: Repeats, kind: str, path: str, runs: int) -> JitterRow:
    return found.rows.setdefault((kind, path), JitterRow(kind, path, runs))


def _others(found: Repeats, first: sides.Leaves, again: sides.Leaves, runs: int) -> dict[str, list[str]]:
    """Paths, by kind, of the leaves that are not the first run's bit for bit; counted in ``found``."""
    other: dict[str, list[str]] = {}
    for kind, path, mine, theirs in _pairs(first, again):
        if not isinstance(mine, torch.Tensor):
            other.setdefault(kind, []).append(path)  # no bits to compare: the comparison with the reference tells
            continue
        row = _row_of(found, kind, path, runs)
        if not isinstance(theirs, torch.Tensor) or theirs.shape != mine.shape:
            max_abs = rmse = 0.0
        else:
            compared = compare_tensors(mine, theirs, atol=0.0, worst=0)
            if compared.verdict == "exact":
                continue
            max_abs, rmse = float(compared.max_abs or 0.0), compared.rmse or 0.0
        row.differing += 1
        row.max_abs, row.rmse = max(row.max_abs, max_abs), max(row.rmse, rmse)
        other.setdefault(kind, []).append(path)
    return other


def _pairs(first: sides.Leaves, again: sides.Leaves) -> Iterator[tuple[str, str, Any, Any]]:
    """Kind, path and both leaves, None where there is none."""
    for kind in {**first, **again}:
        mine, theirs = first.get(kind, {}), again.get(kind, {})
        for path in {**mine, **theirs}:
            yield kind, path, mine.get(path), theirs.get(path)


def _judge(
    number: int,
    case: Case,
    again: sides.Side,
    ran: tuple[sides.Side, sides.Side, sides.Side],
    paths: dict[str, list[str]],
    difference: KernelDiff,
    found: Repeats,
) -> None:
    """Add the rows of a later run that fail, and their leaves to the test side's under the rows' paths.

    Args:
        paths: of the leaves that are to be judged, by kind.
    """
    reference, test, gold = ran
    own = KernelDiff(**difference.options)
    for kind, names in paths.items():
        sources = [side.leaves.get(kind, {}) for side in (reference, again, gold)]
        mine, theirs, exact = ({path: part[path] for path in names if path in part} for part in sources)
        own.compare_leaves(mine, theirs, exact, kind=kind)
    if again.generator != test.generator:  # else what the first run's draws mean holds for this one's too
        draws = Draws(case, again, differ=again.generator != reference.generator)
        found_of = random_draws.of_draws(reference, gold, again, difference.options["roundoff"] or 0.0, own.rows, draws)
        decide(random_draws.RandomDraws.name, own.rows, found_of.judgements, found.changes)
    for row in own.rows:
        if not row.failed:
            continue
        row.in_run(number)
        if row.place in again.leaves.get(row.kind, {}):
            test.leaves.setdefault(row.kind, {})[row.path] = again.leaves[row.kind][row.place]
        difference.rows.append(row)
