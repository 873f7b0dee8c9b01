"""The smallest part of a graph that shows what the graph shows."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from inductor_debug.stages.minify.candidate import Candidate, Operations
from inductor_debug.stages.minify.failures import ERROR, HANG, Failure
from inductor_debug.stages.minify.search import reduced
from inductor_debug.stages.minify.simpler import simplified
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.repro import NotReproducible

AGAIN = 4
"""How often the whole graph is called before it is said to show nothing."""

MISSED = 0.05
"""How likely it may be that a failure which does not show each time is missed in one program."""

MOST = 16
"""How often one program runs at most."""

PARTS = 8
"""What takes too long is looked at in so many parts."""

NAMED = 4
"""Kinds of operations that an error names, of which the first operations are tried on their own."""


@dataclass(frozen=True)
class Minimized:
    """What was found.

    Attributes:
        candidate: the program.
        failure: what it shows.
        before: operations of the graph.
        minimal: whether the failure is gone as soon as any one of its operations is left out.
        rate: the share of runs of a smallest program that showed it.
    """

    candidate: Candidate
    failure: Failure
    before: int
    minimal: bool
    rate: float


def minimized(
    operations: Operations,
    trials: Trials,
    *,
    starts: Iterable[Sequence[int]] = (),
    calls: Sequence[int] = (1, AGAIN),
    wanted: Callable[[Failure], bool] = lambda failure: True,
    progress: Callable[[str], None] = lambda text: None,
) -> Minimized | None:
    """Reduce a graph to a smallest program that shows the same failure.

    Args:
        operations: of the graph.
        trials: executes programs, until their time is over; the best so far is given then.
        starts: parts that are tried first, as where an operation at fault is known.
        calls: how often the whole graph is called, one after the other, where none of these shows a failure.
        wanted: which failures are looked for.
        progress: told of each step.

    Returns:
        None where nothing that was tried shows one as a program of its own. The first that does says which failure it
        is.
    """
    every = tuple(range(len(operations.units)))
    tries = [(tuple(start), 1) for start in starts]
    tries += [(every, times) for times in calls] if every else []
    for start, times in tries:
        failure = _found(operations, trials, start, times)
        if failure is not None and failure.kind == HANG:
            trials.hangs = True
            hanging = _hanging(operations, trials, start, times)
            start, failure = (start, None) if hanging is None else (hanging, failure)
        if failure is not None and wanted(failure):
            break
        trials.other = failure.text if failure is not None else trials.other
    else:
        return None
    trials.hangs = failure.kind == HANG
    costs = [cost(operations.units[place]) for place in every]

    def failing(kept: Sequence[int]) -> bool:
        return _found(operations, trials, kept, times) == failure

    def told(left: int, tried: int) -> None:
        progress(f"{left} of {len(every)} operations left, {trials.executed} programs tried")

    first: list[Sequence[int]] = [start] if start != every else []
    if start == every and failure.kind == ERROR:
        first = hinted(operations, trials.output)
    done = reduced(costs, failing, starts=first, over=trials.over, progress=told)
    smallest = operations.candidate(done.kept)
    rate = 1.0 if trials.over() else trials.rate(replace(smallest, times=times), failure, 2)
    if rate < 1:
        rate = trials.rate(replace(smallest, times=times), failure, 8)
        trials.repeats = min(math.ceil(math.log(MISSED) / math.log(1 - rate)), MOST) if 0 < rate < 1 else 1
        if trials.repeats > 1:
            done = reduced(costs, failing, starts=[done.kept], over=trials.over, progress=told)
    progress(f"{len(done.kept)} of {len(every)} operations; making the program simpler")
    candidate = simplified(replace(operations.candidate(done.kept), times=times),
                           lambda other: trials.found(other) == failure, trials.over)  # fmt: skip
    return Minimized(candidate, failure, operations.count, done.minimal, rate)


def _hanging(
    operations: Operations, trials: Trials, kept: Sequence[int], times: int
) -> tuple[int, ...] | None:  # fmt: skip
    """The smallest part that is known to hang, of one that takes too long; None where it is slow.

    Its parts are looked at, one after another. One that comes to an end tells how long the others may take, and if all
    do, how long the whole may.
    """
    kept = tuple(kept)
    told = len(kept) == 1 or trials.usual_s(len(kept)) is not None
    failure = _found(operations, trials, kept, times)
    if told or failure is None or failure.kind != HANG:
        return kept if failure is not None and failure.kind == HANG else None
    size = math.ceil(len(kept) / PARTS)
    for place in range(0, len(kept), size):
        if trials.over():
            break
        found = _hanging(operations, trials, kept[place : place + size], times)
        if found is not None:
            return found
    usual_s = trials.usual_s(len(kept))
    if usual_s is None:  # time is up before anything is known of it
        trials.cut = True
        return None
    trials.limit_s = max(trials.limit_s, usual_s)
    failure = _found(operations, trials, kept, times)
    return kept if failure is not None and failure.kind == HANG else None


def _found(operations: Operations, trials: Trials, kept: Sequence[int], times: int) -> Failure | None:
    try:
        return trials.found(replace(operations.candidate(kept), times=times))
    except NotReproducible as error:
        trials.refused = str(error)
        return None


def hinted(operations: Operations, output: str) -> list[Sequence[int]]:
    """The operations whose kinds an error names, each by itself: the rarest kinds first, of each the first."""
    words = set(re.findall(r"\w+", output))
    places: dict[str, list[int]] = {}
    for place, unit in enumerate(operations.units):
        places.setdefault(str(unit[0].target), []).append(place)
    named = [found for target, found in places.items() if words.issuperset(_name_of(target))]
    return [[found[0]] for found in sorted(named, key=len)[:NAMED]]


def _name_of(target: str) -> set[str]:
    """The words by which an operation is told from others: of ``aten.relu.default`` ``relu``."""
    parts = re.findall(r"\w+", target.removeprefix("aten.").removesuffix(".default"))
    return set(parts)


def cost(unit: Sequence[fx.Node]) -> float:
    """What it costs to compile and run some nodes, in units of a small operation: its memory counts."""
    values = [node.meta.get("val") for node in unit]
    elements = sum(value.numel() for value in values if isinstance(value, torch.Tensor) and _is_known(value))
    return 1.0 + elements / 1e6


def _is_known(value: torch.Tensor) -> bool:
    return all(type(size) is int for size in value.shape)
