"""Looks for the smallest program wherever a failure shows: in a graph, else in a module and its calls."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from inductor_debug.models.case import Case
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified, Place, smallest
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.judges import Compiled
from inductor_debug.stages.minify.modules.engine import smallest_module
from inductor_debug.stages.minify.modules.recorded import Arguments
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible


def smallest_anywhere(
    case: Case,
    judge: Compiled,
    options: MinifyConfig,
    *,
    at: Place | None = None,
    calls: Sequence[Arguments] = (),
    dynamic: bool | None = None,
    wanted: Callable[[Failure], bool] = lambda failure: True,
    folder: Path | None = None,
    workers: Workers | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Minified:
    """The smallest program of the graphs of a case; where none shows a failure, of its modules and calls.

    Args:
        case: left as found.
        judge: compares what a compiler makes of programs.
        options: how long to look, in all.
        at: where the failure is known to be.
        calls: further calls of the module, positional and keyword arguments of each. With such the failure is one that
            they bring, and no single graph is looked at.
        dynamic: as ``torch.compile`` takes it.
        wanted: which failures are looked for.
        folder: where programs and what is known of them stay; None for nowhere.
        workers: run the programs, with the compiler's package; None starts some.
        progress: told of each step.
    """
    began = time.monotonic()
    found = Minified("No failure: none was looked for in the graph of one call.")
    if not calls:
        found = smallest(case, judge, options, at=at, dynamic=dynamic, wanted=wanted, folder=folder, workers=workers,
                         progress=progress)  # fmt: skip
    left_s = options.budget_s - (time.monotonic() - began)
    if found.failure or left_s <= 0:
        return found
    left = replace(options, budget_s=left_s, limit_s=max(options.limit_s, found.limit_s))
    try:
        other = smallest_module(
            case.module, [(case.args, case.kwargs), *calls], judge.compiler, left, factor=judge.factor,
            dynamic=dynamic, folder=folder, workers=workers, progress=progress,
        )  # fmt: skip
    except NotReproducible as error:
        return replace(found, message=f"{found.message} Of modules: {error}")
    if other is None:
        return replace(found, message=f"{found.message} No module by itself shows one either.")
    if not wanted(Failure.named(other.failure)):
        return replace(found, message=f"{found.message} A module shows another: {other.failure}.")
    return other
