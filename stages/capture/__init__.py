"""The capture stage: what Dynamo and AOTAutograd make of a case. Torch is imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductor_debug.stages.capture.compilation import Capture, capture
    from inductor_debug.stages.capture.tables import statistics
    from inductor_debug.stages.liveness import peak_live

__all__ = ["Capture", "capture", "peak_live", "statistics"]

_HOMES = {
    "Capture": "inductor_debug.stages.capture.compilation",
    "capture": "inductor_debug.stages.capture.compilation",
    "peak_live": "inductor_debug.stages.liveness",
    "statistics": "inductor_debug.stages.capture.tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
