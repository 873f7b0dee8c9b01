"""Whether the test side drew the reference's random numbers, and the test side once more with those numbers.

Asked only where a result fails. Each random operation of both sides is looked at. Where they belong together, but are
not surely the same, the test side is judged by another step. In it the reference's numbers are written into its own, by
logical index (:mod:`models.redraws`). Where they don't, nothing that differs is a finding about the backend.

Where a step with its own numbers gives the same bits, they were the reference's. Then the first step stands: what was
wrong in that call need not be in a later one.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inductor_debug.models import draws as recording
from inductor_debug.models.case import Case
from inductor_debug.models.random_state import seed_everything
from inductor_debug.models.redraws import matched
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.global_settings import settings_put_back

log = logging.getLogger(__name__)

OTHERS = "the test side drew other random numbers than the reference"


@dataclass
class Draws:
    """What is known of the random numbers of the test side.

    Attributes:
        case: what the test side runs from here on.
        test: what it is judged by.
        differ: its numbers are others than the reference's, or can't be told to be the same.
        found: in words; empty where nothing more than the generators' states was looked at.
    """

    case: Case
    test: sides.Side
    differ: bool
    found: str = ""


def look(case: Case, compiled: Callable[..., Any], reference: sides.Side, test: sides.Side) -> Draws:
    """Look at each random operation of the case in eager and of the compiled one; see the module.

    Args:
        case: the test side's.
        compiled: its module, compiled.
        reference, test: one step each, from the case's state.
    """
    if case.draws is None:
        case.watch_draws()
    assert case.draws is not None
    if test.host != reference.host:
        return Draws(case, test, True, OTHERS)
    try:
        with settings_put_back(), case.preserved():
            seed_everything(case.seed)
            theirs = recording.recorded_draws(lambda: case.step(compiled))
    except Exception as error:
        if not sides.blamed_on_side(error):
            raise
        log.exception("kerneldiff: the test side can't be watched drawing")
        return Draws(case, test, True, f"it can't be told whether {OTHERS}: watched, it raised {type(error).__name__}")
    match = matched(case.draws, theirs)
    if match == "same":
        return Draws(case, test, False)
    many = f"{OTHERS}: {len(theirs.items)} random operations, {len(case.draws.items)} in the reference"
    if match == "no":
        return Draws(case, test, True, many)
    repeating = replace(case, match=match)
    again = sides.run_side("test", repeating, lambda: compiled)
    if again.error or not case.draws.matched:
        return Draws(case, test, True, many)
    if sides.gave_again(sides.run_side("test", case, lambda: compiled), again):  # the numbers were the same
        return Draws(case, test, False)
    order = "in another form or order of memory" if match == "all" else "but for some that the reference does not use"
    found = f"the test side draws what the reference draws, {order}; it was judged with the reference's random numbers"
    return Draws(repeating, again, False, found)
