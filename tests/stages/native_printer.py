"""The native functions that AOTInductor's generated code calls to print and to save a tensor, called from here."""

import ctypes
from pathlib import Path

import torch

_LIBRARY = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def print_tensor(tensor: torch.Tensor, label: str) -> None:
    """As level 2 prints it: ``label`` is ``before_launch - KERNEL - BUFFER``."""
    _LIBRARY.aoti_torch_print_tensor_handle(_handle(tensor), label.encode())


def save_tensor(tensor: torch.Tensor, buffer: str, when: str, kernel: str) -> None:
    """As level 1 saves it, below the working directory: ``when`` is ``before_launch`` or ``after_launch``."""
    _LIBRARY.aoti_torch_save_tensor_handle(_handle(tensor), buffer.encode(), when.encode(), kernel.encode())


def _handle(tensor: torch.Tensor) -> ctypes.c_void_p:
    (capsule,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
    return ctypes.c_void_p(_POINTER(capsule, None))
