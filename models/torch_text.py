"""What torch says in its errors and how it names things, read in one place: plain text, without torch.

The text of generated code, of guards and of the printer is the stages': :mod:`stages.torch_internals`.
"""

import re
from typing import NamedTuple

OUT_OF_MEMORY_ERROR = "OutOfMemoryError"
"""The type of what a device raises where its memory ran out."""
DEVICE_ERRORS = ("AcceleratorError", "CudaError", "DeferredCudaCallError")
"""Types of what a device raises for its own failure."""
MARK = "_dynamo_"
"""What the attributes begin with that ``mark_dynamic`` and its kin leave on a tensor."""
MACHINERY = ("fx/", "_dynamo/")
"""Folders of torch whose code runs a model under the compiler: its lines say nothing of the model."""

_OVERFLOWED = "storage size calculation overflowed"
_OUT_OF_MEMORY = ("can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc",
                  "out of memory", "unable to mmap", "can't start new thread", _OVERFLOWED)  # fmt: skip
_ASKED = re.compile(r"tried to allocate (\d+) bytes")
_OF_A_DTYPE = ("not implemented for", "expected scalar type", "dtype")
_SIZES = (
    (-1, r"cannot be multiplied \(\d+x(?P<got>\d+) and (?P<wanted>\d+)x\d+\)"),
    (-1, r"normalized_shape=\[(?P<wanted>\d+)\].* got input of size\s?\[(?:\d+, )*(?P<got>\d+)\]"),
    (1, r"to have (?P<wanted>\d+) channels, but got (?P<got>\d+) channels"),
)
_OVERWRITTEN = "CUDAGraphs that has been overwritten"
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")


class UnfitSize(NamedTuple):
    """A size of an operand that fits nothing: the dimension, counted as torch's message does, and both sizes."""

    dim: int
    got: int
    wanted: int


def tells_out_of_memory(message: str) -> bool:
    """Whether an error says that memory ran out: the machine's, a device's, or what can be addressed."""
    return any(text in message.lower() for text in _OUT_OF_MEMORY)


def bytes_told(message: str) -> int | None:
    """The bytes that a failed allocation asked for: ``2**63`` where torch can't count them, None where none are."""
    found = _ASKED.search(message)
    if found:
        return int(found[1])
    return 2**63 if _OVERFLOWED in message.lower() else None


def is_about_dtype(message: str) -> bool:
    """Whether an error is about a dtype: one that an operation does not take, or two that differ."""
    return any(text in message for text in _OF_A_DTYPE)


def is_overwritten_graph_output(message: str) -> bool:
    """Whether an error says that a CUDA graph's next replay took an output's memory, as its contract lets it."""
    return _OVERWRITTEN in message


def unfit_sizes(message: str) -> list[UnfitSize]:
    """The sizes that an error calls wrong, each with the one that would fit."""
    found = [(dim, re.search(pattern, message)) for dim, pattern in _SIZES]
    return [UnfitSize(dim, int(match["got"]), int(match["wanted"])) for dim, match in found if match is not None]


def function_name(name: str) -> str:
    """The user's name of a function: Dynamo's resume functions get that of the function they resume."""
    match = _RESUMED.match(name)
    return match["function"] if match else name
