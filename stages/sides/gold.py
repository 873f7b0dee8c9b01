"""The gold side of a comparison: the case in float64, or why there is none."""

import logging

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import UserError
from inductor_debug.models.read_weights import ReadWeights
from inductor_debug.stages.sides import running as sides

log = logging.getLogger(__name__)


def gold_side(case: Case, *, wanted: bool, drew: bool) -> sides.Side:
    """The gold side; empty where a tolerance decides, or where float64 is the case's own dtype.

    Args:
        drew: the reference, which ran this case, took random numbers: gold repeats them, unless the case's device
            is one for which gold is computed on the host.
    """
    if not wanted or case.dtype == torch.float64:
        return sides.Side()
    if case.device.type not in sides.COMPUTES_FLOAT64:
        case, drew = sides.moved(case, case.dtype, torch.device("cpu")), False
    if drew:
        case.watch_draws()
    with case.contents.lent():  # the case's own tensors stand still here, and its weights are there but twice
        return _gold_side(case)


def _gold_side(case: Case) -> sides.Side:
    try:
        ideal = case.to_gold()
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # what a user's objects raise when they are copied
        log.exception("kerneldiff: the model can't be copied, so there is no gold")
        return sides.Side(error=sides.describe(error) | {"who": "copying the model"})
    noting, substitutes = ReadWeights(ideal.module), ideal.substitutes
    gold = sides.run_side("gold", ideal, lambda: noting)
    if gold.error:  # it may be that the module does not run while it is watched
        ideal.substitutes = substitutes
        gold = sides.run_side("gold", ideal, lambda: ideal.module)
    else:
        gold.unread = noting.unread
    case.substitutes = ideal.substitutes  # so do the copies that are made later, for steps and moved golds
    return gold
