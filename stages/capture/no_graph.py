"""Why a case has no graph, for a stage whose compilation gave none."""

from inductor_debug.models.errors import message_of, root_cause
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.capture.breaks import helping_settings
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.contract import StageContext


def without_graph(context: StageContext) -> str:
    """As :func:`stages.capture.breaks.helping_settings`: of what capture stored, else of the case traced once.

    Where Dynamo raises (an option suppressed that in the compilation itself) that is what is told.
    """
    stored = files.BREAKS.read(context.artifacts)
    if stored is not None:
        return helping_settings(item.detail for item in stored)
    try:
        breaks = capture(context.case).breaks
    except Exception as error:  # noqa: BLE001 - whatever stopped Dynamo is why there is no graph
        cause = root_cause(error)
        return f"Dynamo raised {type(cause).__name__}: {message_of(cause).partition(chr(10))[0]}"
    return helping_settings(item.detail for item in breaks)
