"""The kerneldiff stage, and comparison of tensors as a library. Importing this package does not import torch."""

import importlib
from typing import Any

_EXPORTS = {
    "KernelDiff": "compare",
    "TensorComparison": "compare",
    "compare_structures": "compare",
    "compare_tensors": "compare",
    "KernelDiffStage": "stage",
}

__all__ = ["KernelDiff", "KernelDiffStage", "TensorComparison", "compare_structures", "compare_tensors"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
