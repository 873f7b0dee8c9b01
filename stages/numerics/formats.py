"""Number formats as the comparison needs them: roundoff, tolerances, and integers whose order is the format's own."""

import functools
from collections.abc import Sequence

import numpy
import torch

DEFAULT_TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex32: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""dtype → (rtol, atol): the table in the documentation of ``torch.testing.assert_close``. Others: (0, 0)."""

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_INTEGERS = {4: numpy.int32, 8: numpy.int64}
_INT64_MIN = -(2**63)
_UNSIGNED_FLOATS = ("torch.float8_e8m0fnu",)
_ARRAYS = {
    *(torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8),
    *(torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64),
}
"""dtypes that NumPy has, but for float16, which torch widens faster."""

_HALF = numpy.array(16, numpy.int32)
"""What NumPy takes for a number in half the time of one of Python's."""

EXACT = 2.0**53
"""float64 holds every integer below it."""


def is_inexact(dtype: torch.dtype) -> bool:
    """True for floating and complex dtypes."""
    return dtype.is_floating_point or dtype.is_complex


def number(dtype: torch.dtype) -> type:
    """What an element of a dtype is in Python."""
    if is_inexact(dtype):
        return complex if dtype.is_complex else float
    return bool if dtype == torch.bool else int


@functools.cache
def kinds(reference: torch.dtype, test: torch.dtype) -> tuple[bool, bool, tuple[type, type]]:
    """Whether two dtypes are one, whether neither is inexact, and what their elements are in Python."""
    return reference == test, not (is_inexact(reference) or is_inexact(test)), (number(reference), number(test))


def widen(values: torch.Tensor) -> torch.Tensor:
    """``values`` in float64, or complex128."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


@functools.cache
def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number (Higham, Accuracy and Stability, 2.1); 0 for integers and bool."""
    return torch.finfo(dtype).eps / 2 if is_inexact(dtype) else 0.0


def default_tolerances(reference: torch.dtype, test: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) of ``torch.testing.assert_close``: the looser of the two dtypes' defaults."""
    pairs = [DEFAULT_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in (reference, test)]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def _as_bits(values: torch.Tensor) -> torch.Tensor:
    """The bit patterns of a floating tensor, as a signed integer tensor of its width."""
    return values.resolve_neg().contiguous().view(_BITS[values.element_size()])


def same_bits(reference: torch.Tensor, test: torch.Tensor) -> torch.Tensor:
    """Elementwise, for tensors of one dtype: True where the stored bits are equal (so -0.0 differs from 0.0)."""
    if reference.dtype.is_complex:
        return same_bits(*(torch.view_as_real(side.resolve_conj()) for side in (reference, test))).all(-1)
    return _as_bits(reference) == _as_bits(test)


def array(values: torch.Tensor) -> numpy.ndarray:
    """The values for NumPy, 1-D: in their own dtype and memory where that can be, else in a wider one.

    That is float32 for bfloat16, whose bits are the upper half of it, else float64 or complex128.
    """
    narrow = values.dtype == torch.bfloat16
    if not narrow and values.dtype not in _ARRAYS:
        values = widen(values)
    if values.requires_grad or not values.is_cpu or values.is_neg() or values.is_conj():
        values = values.detach().cpu().resolve_neg().resolve_conj()
    if not narrow:
        return values.numpy().reshape(-1)
    wide = values.view(torch.int16).numpy().reshape(-1).astype(numpy.int32)  # on few elements faster than torch
    return numpy.left_shift(wide, _HALF, out=wide).view(numpy.float32)


def modulus(values: numpy.ndarray) -> numpy.ndarray:
    """Absolute values, in float64; of complex numbers those that torch gives, which may end in another bit."""
    return numpy.abs(values) if values.dtype.kind != "c" else torch.from_numpy(values).abs().numpy()


def bits(tensor: torch.Tensor, values: numpy.ndarray) -> numpy.ndarray:
    """The bit patterns of floats, or of the parts of complex numbers, as signed integers of their width.

    Args:
        tensor: on the host.
        values: :func:`array` of it.
    """
    if tensor.dtype in _ARRAYS:
        return values.view(_INTEGERS[values.dtype.itemsize // (2 if values.dtype.kind == "c" else 1)])
    if tensor.dtype == torch.bfloat16:
        return (values.view(numpy.int32) >> 16).astype(numpy.int16)
    tensor = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    if str(tensor.dtype) in _UNSIGNED_FLOATS:
        return tensor.view(torch.uint8).numpy().astype(numpy.int16)
    return _as_bits(torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor).numpy()


def finite_distance(tensors: Sequence[torch.Tensor], values: Sequence[numpy.ndarray]) -> int:
    """The most representable numbers between two sides of finite floats of one dtype.

    Args:
        tensors: on the host, at least one element.
        values: :func:`array` of each.
    """
    if tensors[0].dtype != torch.bfloat16:
        return largest_distance(bits(tensors[0], values[0]), bits(tensors[1], values[1]))
    return largest_distance(values[0].view(numpy.int32), values[1].view(numpy.int32)) >> 16  # the lower halves are 0


def exact_integers(values: torch.Tensor) -> torch.Tensor:
    """Integers or bools as int64 in the same order. uint64 is shifted by -2**63, which leaves differences alone."""
    if values.dtype == torch.uint64:
        return values.contiguous().view(torch.int64) ^ _INT64_MIN
    return values.to(torch.int64)


def distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """|left - right| of int64 tensors, exact: the int64 result holds the *unsigned* 64-bit distance (it may wrap)."""
    return torch.maximum(left, right) - torch.minimum(left, right)


def largest_unsigned(values: torch.Tensor) -> int:
    """The largest of int64 values read as unsigned; 0 for none."""
    return int((values ^ _INT64_MIN).max().item()) + 2**63 if values.numel() else 0


def largest_distance(left: numpy.ndarray, right: numpy.ndarray) -> int:
    """The most representable numbers between two sides, given as their :func:`bits`; none NaN, at least one element.

    Both zeros are one number, so that signs meet there (Bruce Dawson, "Comparing Floating Point Numbers", 2012).
    """
    gap, unlike = left - right, left ^ right
    numpy.abs(gap, out=gap)
    if unlike.item(unlike.argmin()) < 0:  # the way leads through zero: the sum of both magnitudes, unsigned
        magnitude = numpy.iinfo(left.dtype).max
        gap = numpy.where(unlike < 0, (left & magnitude) + (right & magnitude), gap)
    gap = gap.view(f"u{gap.itemsize}")
    return gap.item(gap.argmax())


def unsigned_to_float64(values: torch.Tensor) -> torch.Tensor:
    """int64 values read as unsigned, as float64 (rounded above 2**53)."""
    converted = values.to(torch.float64)
    return torch.where(values < 0, converted + 2.0**64, converted)
