"""Whether a PyTorch model fits an accelerator, what TorchInductor made of it, and whether the numbers are right.

The names of ``__all__`` are the library, each imported when it is first asked for; what is below the packages ``conf``,
``models``, ``pipeline`` and ``stages`` may change from one version to the next. Importing this package does not import
torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductor_debug.stages.bisect.api import bisect
    from inductor_debug.stages.constrain.config import AccelConfig, Rule
    from inductor_debug.stages.constrain.engine import check
    from inductor_debug.stages.constrain.profile import Profile, load_profile, validate_profile
    from inductor_debug.stages.constrain.subjects import row
    from inductor_debug.stages.constrain.violations import Violation, Violations
    from inductor_debug.stages.graphs import GraphRecord
    from inductor_debug.stages.guards.inspection import inspect_guards
    from inductor_debug.stages.kerneldiff.comparison import assert_matches, compare, compare_tensors
    from inductor_debug.stages.lower.adapter import AcceleratorAdapter
    from inductor_debug.stages.lower.mock import aot_mock_backend, mock_backend

_PLACES = {
    "AccelConfig": "stages.constrain.config",
    "AcceleratorAdapter": "stages.lower.adapter",
    "GraphRecord": "stages.graphs",
    "Profile": "stages.constrain.profile",
    "Rule": "stages.constrain.config",
    "Violation": "stages.constrain.violations",
    "Violations": "stages.constrain.violations",
    "aot_mock_backend": "stages.lower.mock",
    "assert_matches": "stages.kerneldiff.comparison",
    "bisect": "stages.bisect.api",
    "check": "stages.constrain.engine",
    "compare": "stages.kerneldiff.comparison",
    "compare_tensors": "stages.kerneldiff.comparison",
    "inspect_guards": "stages.guards.inspection",
    "load_profile": "stages.constrain.profile",
    "mock_backend": "stages.lower.mock",
    "row": "stages.constrain.subjects",
    "validate_profile": "stages.constrain.profile",
}
"""Name → the module below this package that holds it."""

__all__ = [
    "AccelConfig",
    "AcceleratorAdapter",
    "GraphRecord",
    "Profile",
    "Rule",
    "Violation",
    "Violations",
    "aot_mock_backend",
    "assert_matches",
    "bisect",
    "check",
    "compare",
    "compare_tensors",
    "inspect_guards",
    "load_profile",
    "mock_backend",
    "row",
    "validate_profile",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
