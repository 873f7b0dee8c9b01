"""The bisect stage: which part of the compiler makes a fault go away. Importing this package does not import torch.

::

    from inductor_debug import bisect
    print(bisect(module, (x,), backend="inductor").answer)
"""

import importlib
from typing import Any

_PLACES = {
    "BisectConfig": "inductor_debug.stages.bisect.config",
    "BisectStage": "inductor_debug.stages.bisect.stage",
    "Bisection": "inductor_debug.stages.bisect.records",
    "bisect": "inductor_debug.stages.bisect.api",
}
__all__ = ["BisectConfig", "BisectStage", "Bisection", "bisect"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
