"""The kerneldiff stage, and comparison of tensors as a library. Importing this package does not import torch."""

import importlib
from typing import Any

_EXPORTS = {
    "KernelDiff": "comparison",
    "TensorComparison": "comparison",
    "assert_matches": "comparison",
    "compare": "comparison",
    "compare_tensors": "comparison",
    "KernelDiffStage": "stage",
}

__all__ = ["KernelDiff", "KernelDiffStage", "TensorComparison", "assert_matches", "compare", "compare_tensors"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
