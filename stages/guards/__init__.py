"""The guards stage: what torch.compile holds a case to, and what varied inputs make of it. Torch comes on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductor_debug.stages.guards.inspection import inspect_guards
    from inductor_debug.stages.guards.records import GuardReport

__all__ = ["GuardReport", "inspect_guards"]

_HOMES = {
    "GuardReport": "inductor_debug.stages.guards.records",
    "inspect_guards": "inductor_debug.stages.guards.inspection",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
