"""The report stage: one self-contained HTML file and JSON.

``collect`` gives what a report says as data, ``render`` makes it HTML.
"""

import importlib
from typing import Any

_PLACES = {"ReportStage": "inductor_debug.stages.report.stage"}
__all__ = ["ReportStage"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
