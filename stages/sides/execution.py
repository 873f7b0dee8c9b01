"""Who executed the test side: another step of it, in which torch's operations are counted."""

import dataclasses
import logging

from inductor_debug.models.case import Case
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.backends.compiled import CompiledCase
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.global_settings import settings_put_back

log = logging.getLogger(__name__)


def with_operations(execution: Execution, case: Case, compiled: CompiledCase) -> Execution:
    """The same with the operations that torch executed, where the backend is to execute graphs itself.

    They are counted in a step of its own, for eager code may round otherwise while it is watched. Where that step
    raises they are not known.

    Args:
        execution: of the step that was judged.
        case: the test side's, as it was before the step, which is put back.
        compiled: its module, compiled.
    """
    if execution.executor != "own":
        return execution
    try:
        with settings_put_back(), case.preserved(), compiled.watch.step(operations=True):
            seed_everything(case.seed)
            case.step(compiled)
            case.synchronize()
    except Exception as error:
        if not sides.blamed_on_side(error):
            raise
        log.exception("kerneldiff: the test side can't be watched executing")
        return execution
    found = compiled.watch.execution()
    return dataclasses.replace(
        execution,
        torch_operations=found.torch_operations,
        graph_operations=found.graph_operations,
        outside=found.outside,
    )
