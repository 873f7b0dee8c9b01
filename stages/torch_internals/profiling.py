"""Ranges that cost the profiler little, and what it calls its events.

Relies on ``torch._C._profiler._RecordFunctionFast``, which TorchInductor itself puts around Triton's launches. It is
recorded as an operator is, so that what is launched inside it counts as its own. For generated C++ relies on its like,
``torch::aot_inductor::RAIIAtenRecordFunctionHandle``.
"""

from contextlib import AbstractContextManager
from typing import Any

PYTHON_RANGE = "torch._C._profiler", "_RecordFunctionFast"
"""Module and name, for generated Python."""
CPP_RANGE = "torch::aot_inductor::RAIIAtenRecordFunctionHandle"
"""Class, for generated C++."""


def is_backward(event: str) -> bool:
    """Whether autograd's engine calls the backward of an operation so; it has the sequence number of the forward."""
    return event.startswith("autograd::engine::evaluate_function")


def is_operator(event: str) -> bool:
    """Whether an event is an operator of ATen's."""
    return event.startswith("aten::")


def fast_range(name: str) -> AbstractContextManager[Any]:
    """A range of that name where a profiler is on; nothing else where none is."""
    from torch._C._profiler import _RecordFunctionFast

    return _RecordFunctionFast(name)
