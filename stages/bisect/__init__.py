"""The bisect stage: which part of the compiler makes a fault go away. Importing this package does not import torch.

::

    from stages.bisect import bisect
    print(bisect(module, (x,), backend="inductor").answer)
"""

import importlib
from typing import Any

_PLACES = {
    "BisectConfig": "stages.bisect.config",
    "BisectStage": "stages.bisect.stage",
    "Bisection": "stages.bisect.records",
    "bisect": "stages.bisect.api",
}
__all__ = ["BisectConfig", "BisectStage", "Bisection", "bisect"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
