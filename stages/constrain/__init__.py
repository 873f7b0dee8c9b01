"""The constrain stage: a captured graph against an accelerator's rules.

::

    from inductor_debug import check, load_profile
    check(graphs, load_profile("warn16", alignment=64)).table
"""

import importlib
from typing import Any

_PLACES = {
    "check": "inductor_debug.stages.constrain.engine",
    "load_profile": "inductor_debug.stages.constrain.profile",
    "load_config": "inductor_debug.stages.constrain.profile",
    "validate_profile": "inductor_debug.stages.constrain.profile",
    "Profile": "inductor_debug.stages.constrain.profile",
    "Violation": "inductor_debug.stages.constrain.violations",
    "Violations": "inductor_debug.stages.constrain.violations",
    "write_repros": "inductor_debug.stages.constrain.repros",
}
__all__ = [
    "Profile",
    "Violation",
    "Violations",
    "check",
    "load_config",
    "load_profile",
    "validate_profile",
    "write_repros",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
