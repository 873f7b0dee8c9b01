"""The lower stage, and every backend behind one door.

::

    from stages.lower import mock_backend, aot_mock_backend
    torch.compile(model, backend=mock_backend)
"""

import importlib
from typing import Any

_PLACES = {
    "AcceleratorAdapter": "stages.lower.adapter",
    "CompiledCase": "stages.lower.compiled",
    "PlantedFault": "stages.lower.faults",
    "ProfileViolated": "stages.lower.violated",
    "aot_mock_backend": "stages.lower.mock",
    "build_adapter": "stages.lower.adapters",
    "compile_case": "stages.lower.compiled",
    "compiled_case": "stages.lower.compiled",
    "mock_backend": "stages.lower.mock",
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
