"""Tensors rounded to a format, in place. :mod:`stages.accelerators.number_formats` says what each format means.

The values stay in their *container*, a float32 or float64 tensor that can hold every number of the format. One of
three ways, each of which rounds once, to nearest, ties to even:

- torch's own cast there and back, for float32 to bfloat16, float16 or float32;
- on the bits, where the format has the container's exponent: a carry out of the mantissa is then the next exponent;
- else by adding and subtracting 1.5·2^(c-m)·2^e (c and m: mantissa bits of container and format). Its last place is the
  format's last place at exponent e, so the addition rounds as the container does. e is not less than the exponent of
  the format's subnormals.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inductor_debug.stages.accelerators.number_formats import BlockFormat, FloatFormat, Format

_BITS = {torch.float32: (torch.int32, 8, 23), torch.float64: (torch.int64, 11, 52)}
"""Container → integers of its width, exponent bits, mantissa bits."""

_CASTS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Loss:
    """What rounding a tensor lost beyond digits.

    Attributes:
        overflowed: finite elements too large for the format.
        underflowed: elements that became zero; not counted (0) for formats with float32's exponent.
        largest: the largest magnitude among the overflowed.
    """

    overflowed: int = 0
    underflowed: int = 0
    largest: float = 0.0


NO_LOSS = Loss()


def changes(format: Format, container: torch.dtype) -> bool:
    """Whether rounding a tensor of that dtype to the format can change it."""
    widths = _BITS.get(container, (None, None, None))[1:]
    return not (isinstance(format, FloatFormat) and (format.exponent, format.mantissa) == widths)


def round_(values: Tensor, format: Format, *, saturate: bool = False) -> Loss:
    """Round in place.

    Args:
        values: float32 or float64, of any shape and stride, no element twice; float64 not for a block format.
        format: one that ``values``'s dtype can hold.
        saturate: what is too large becomes the format's largest number.
    """
    assert values.dtype in _BITS, values.dtype
    if values.numel() == 0 or not changes(format, values.dtype):
        return NO_LOSS
    if isinstance(format, BlockFormat):
        return _round_blocks(values, format)
    loss = NO_LOSS
    outside = _outside(values, format.largest)
    if outside:
        loss = _overflow(values, format)
        if saturate:
            values.clamp_(-format.largest, format.largest)
    zeros = None
    _, exponent_bits, mantissa_bits = _BITS[values.dtype]
    if format.exponent < exponent_bits:
        zeros = int(values.numel() - torch.count_nonzero(values))
    if values.dtype == torch.float32 and format.name in _CASTS:
        values.copy_(values.to(_CASTS[format.name]))
    elif format.exponent == exponent_bits:
        _round_bits(values, mantissa_bits - format.mantissa)
    elif mantissa_bits - format.mantissa < 2:
        wider = values.to(torch.float64)
        _round_by_addition(wider, format, outside)
        values.copy_(wider)
    else:
        _round_by_addition(values, format, outside)
    if zeros is not None:
        found = int(values.numel() - torch.count_nonzero(values)) - zeros
        loss = Loss(loss.overflowed, found, loss.largest)
    return loss


def rounded(values: Tensor, format: Format, *, saturate: bool = False) -> Tensor:
    """A rounded copy; a dtype that is no container (float16, bfloat16) is returned as float32."""
    container = values.dtype if values.dtype in _BITS else torch.float32
    copy = values.detach().to(container, copy=True)
    round_(copy, format, saturate=saturate)
    return copy


def _outside(values: Tensor, largest: float) -> bool:
    """Whether an element is beyond ``largest``, or NaN."""
    return not (float(values.amax()) <= largest and float(values.amin()) >= -largest)


def _overflow(values: Tensor, format: FloatFormat) -> Loss:
    magnitude = values.abs()
    limit = format.largest + 2.0 ** (format.largest_exponent - format.mantissa - 1)  # half a last place beyond it
    even = not format.finite  # a tie goes away from the largest number where that is odd
    beyond = (magnitude >= limit) if even else (magnitude > limit)
    beyond &= magnitude != float("inf")
    count = int(beyond.sum())
    return Loss(count, 0, float(magnitude[beyond].max())) if count else NO_LOSS


def _round_bits(values: Tensor, dropped: int) -> None:
    """Drop that many mantissa bits; infinity and what the carry takes there are infinity, NaN stays NaN."""
    bits = values.view(_BITS[values.dtype][0])
    nan = values.isnan() if bool(values.amax().isnan()) else None
    odd = (bits >> dropped).bitwise_and_(1)
    bits += odd.add_((1 << (dropped - 1)) - 1)
    bits &= -(1 << dropped)
    if nan is not None:
        values.masked_fill_(nan, float("nan"))


def _round_by_addition(values: Tensor, format: FloatFormat, outside: bool) -> None:
    """For a format whose exponent is narrower than the container's."""
    integers, exponent_bits, mantissa_bits = _BITS[values.dtype]
    if outside:
        beyond = 2.0 ** (format.largest_exponent + 1)
        values.clamp_(-beyond, beyond)
    exponent_mask = ((1 << exponent_bits) - 1) << mantissa_bits
    bits = values.view(integers)
    sign = bits.bitwise_and(torch.iinfo(integers).min)
    shift = bits.bitwise_and(exponent_mask).view(values.dtype)
    shift.clamp_(min=2.0**format.least_exponent).mul_(1.5 * 2.0 ** (mantissa_bits - format.mantissa))
    values.add_(shift).sub_(shift)
    bits |= sign  # a small negative number rounds to -0
    if outside:
        instead = float("nan") if format.finite else float("inf")
        too_large = values.abs() > format.largest
        values.copy_(torch.where(too_large, values.sign() * instead, values))


def _round_blocks(values: Tensor, format: BlockFormat) -> Loss:
    """Share the exponent of the block's largest magnitude; what would round up beyond the magnitude's bits stays at
    the largest. A block whose largest exponent is 0 (float32's subnormals) becomes zero. In a block that holds an
    infinity or NaN these stay and the rest becomes zero: the shared exponent is theirs.
    """
    if values.dim() == 0:
        values_1d = values.reshape(1)
        loss = _round_blocks(values_1d, format)
        values.copy_(values_1d[0])
        return loss
    axis = format.axis if -values.dim() <= format.axis < values.dim() else -1
    lanes = values.movedim(axis, -1)
    length = lanes.shape[-1]
    padded = torch.nn.functional.pad(lanes, (0, -length % format.size))
    blocks = padded.reshape(*padded.shape[:-1], -1, format.size)
    zeros = int(blocks.numel() - torch.count_nonzero(blocks))
    largest = blocks.abs().amax(-1, keepdim=True)
    scale = largest.view(torch.int32).bitwise_and(0x7F800000).view(torch.float32)
    most = 2 ** (format.bits - 1) - 1
    units = 2.0 ** (format.bits - 2)
    fine = torch.where(scale > 0, scale, 1.0)
    result = (blocks / fine).mul_(units).round_().clamp_(-most, most).mul_(1 / units).mul_(fine).add_(0.0)
    result = torch.where(scale > 0, result, 0.0)
    if not bool(scale.isfinite().all()):
        result = torch.where(scale.isfinite(), result, torch.where(blocks.isfinite(), 0.0, blocks))
    found = int(result.numel() - torch.count_nonzero(result)) - zeros
    lanes.copy_(result.reshape(padded.shape)[..., :length])
    return Loss(underflowed=found)
