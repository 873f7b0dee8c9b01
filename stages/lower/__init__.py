"""The lower stage, and every backend behind one door.

::

    from inductor_debug import aot_mock_backend, mock_backend
    torch.compile(model, backend=mock_backend)
"""

import importlib
from typing import Any

_PLACES = {
    "AcceleratorAdapter": "inductor_debug.stages.lower.adapter",
    "CompiledCase": "inductor_debug.stages.lower.compiled",
    "PlantedFault": "inductor_debug.stages.lower.faults",
    "ProfileViolated": "inductor_debug.stages.lower.violated",
    "aot_mock_backend": "inductor_debug.stages.lower.mock",
    "build_adapter": "inductor_debug.stages.lower.adapters",
    "compile_case": "inductor_debug.stages.lower.compiled",
    "compiled_case": "inductor_debug.stages.lower.compiled",
    "mock_backend": "inductor_debug.stages.lower.mock",
}
__all__ = [
    "AcceleratorAdapter",
    "CompiledCase",
    "PlantedFault",
    "ProfileViolated",
    "aot_mock_backend",
    "build_adapter",
    "compile_case",
    "compiled_case",
    "mock_backend",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
