"""Number formats as the comparison needs them: roundoff, tolerances, and integers whose order is the format's own."""

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
_INT64_MIN = -(2**63)
_UNSIGNED_FLOATS = ("float8_e8m0fnu",)


def is_inexact(dtype: torch.dtype) -> bool:
    """True for floating and complex dtypes."""
    return dtype.is_floating_point or dtype.is_complex


def widen(values: torch.Tensor) -> torch.Tensor:
    """``values`` in float64, or complex128."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number (Higham, Accuracy and Stability, 2.1); 0 for integers and bool."""
    return torch.finfo(dtype).eps / 2 if is_inexact(dtype) else 0.0


def default_tolerances(reference: torch.dtype, test: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) of ``torch.testing.assert_close``: the looser of the two dtypes' defaults."""
    pairs = [DEFAULT_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in (reference, test)]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def _as_bits(values: torch.Tensor) -> torch.Tensor:
    """The bit patterns of a floating tensor, as a signed integer tensor of its width."""
    return values.contiguous().view(_BITS[values.element_size()])


def same_bits(reference: torch.Tensor, test: torch.Tensor) -> torch.Tensor:
    """Elementwise, for tensors of one dtype: True where the stored bits are equal (so -0.0 differs from 0.0)."""
    if reference.dtype.is_complex:
        return same_bits(torch.view_as_real(reference), torch.view_as_real(test)).all(-1)
    return _as_bits(reference) == _as_bits(test)


def identical(reference: torch.Tensor, test: torch.Tensor) -> bool:
    """True where every stored bit of two real floating tensors of one dtype is equal."""
    return torch.equal(_as_bits(reference), _as_bits(test))


def ordered(values: torch.Tensor) -> torch.Tensor:
    """Floats as int64 whose differences count representable numbers; both zeros are 0, so signs meet there.

    See Bruce Dawson, "Comparing Floating Point Numbers" (2012). NaN and infinities get values beyond the finite ones.
    """
    if str(values.dtype).removeprefix("torch.") in _UNSIGNED_FLOATS:
        return values.contiguous().view(torch.uint8).to(torch.int64)
    bits = _as_bits(values)
    width = 8 * values.element_size()
    sign = bits >> (width - 1)  # -1 where negative, else 0
    return ((bits ^ (sign & (2 ** (width - 1) - 1))) - sign).to(torch.int64)


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


def largest_distance(reference: torch.Tensor, test: torch.Tensor) -> int:
    """The most representable numbers between two real floating tensors of one dtype, all elements finite."""
    left, right = ordered(reference), ordered(test)
    if reference.element_size() == 8:
        return largest_unsigned(distance(left, right))
    lowest, highest = torch.aminmax(left.sub_(right))
    return max(-int(lowest.item()), int(highest.item()))


def unsigned_to_float64(values: torch.Tensor) -> torch.Tensor:
    """int64 values read as unsigned, as float64 (rounded above 2**53)."""
    converted = values.to(torch.float64)
    return torch.where(values < 0, converted + 2.0**64, converted)
