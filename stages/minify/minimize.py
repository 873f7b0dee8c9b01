"""The smallest part of a graph that shows what the graph shows."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from inductor_debug.stages.minify.candidate import Candidate, Operations
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.search import reduced
from inductor_debug.stages.minify.simpler import simplified
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.repro import NotReproducible

AGAIN = 3
"""How often the whole graph runs before it is said to show nothing."""

MISSED = 0.05
"""How likely it may be that a failure which does not show each time is missed in one program."""

MOST = 16
"""How often one program runs at most."""


@dataclass(frozen=True)
class Minimized:
    """What was found.

    Attributes:
        candidate: the program.
        failure: what it shows.
        before: operations of the graph.
        minimal: whether the failure is gone as soon as any one of its operations is left out.
        rate: the share of runs of the first program that showed it.
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
    over: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda text: None,
) -> Minimized | None:
    """Reduce a graph to a smallest program that shows the same failure.

    Args:
        operations: of the graph.
        trials: executes programs.
        starts: parts that are tried first, as where an operation at fault is known.
        over: whether time is up; the best so far is given then.
        progress: told of each step.

    Returns:
        None where neither a start nor the whole graph shows one as a program of its own. The first that does says which
        failure it is.
    """
    every = tuple(range(len(operations.units)))
    for start in (*starts, every):
        trials.repeats = AGAIN if start == every else 1
        found = _found(operations, trials, start)
        if found is not None:
            break
    else:
        return None
    failure, first = found, operations.candidate(start)
    rate = 1.0 if trials.rate(first, failure, 1) == 1 else trials.rate(first, failure, 8)
    trials.repeats = 1 if rate in (0, 1) else min(math.ceil(math.log(MISSED) / math.log(1 - rate)), MOST)

    def shows(candidate: Candidate) -> bool:
        return trials.found(candidate) == failure

    def failing(kept: Sequence[int]) -> bool:
        return _found(operations, trials, kept) == failure

    def told(left: int, tried: int) -> None:
        progress(f"{left} of {len(every)} operations left, {trials.executed} programs tried")

    costs = [cost(operations.units[place]) for place in every]
    done = reduced(costs, failing, starts=[] if start == every else [start], over=over, progress=told)
    progress(f"{len(done.kept)} of {len(every)} operations; making the program simpler")
    candidate = simplified(operations.candidate(done.kept), shows, over)
    return Minimized(candidate, failure, operations.count, done.minimal, rate)


def _found(operations: Operations, trials: Trials, kept: Sequence[int]) -> Failure | None:
    try:
        return trials.found(operations.candidate(kept))
    except NotReproducible:
        return None


def cost(unit: Sequence[fx.Node]) -> float:
    """What it costs to compile and run some nodes, in units of a small operation: its memory counts."""
    values = [node.meta.get("val") for node in unit]
    elements = sum(value.numel() for value in values if isinstance(value, torch.Tensor) and _is_known(value))
    return 1.0 + elements / 1e6


def _is_known(value: torch.Tensor) -> bool:
    return all(type(size) is int for size in value.shape)
