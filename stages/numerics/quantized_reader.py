"""Quantized tensors as the float32 numbers that they stand for, a piece at a time."""

import torch

from inductor_debug.stages.numerics.readers import Reader, span

_INTEGERS = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}


def readable(tensor: torch.Tensor) -> bool:
    """False for the packed dtypes (quint4x2, quint2x4), whose elements share bytes."""
    return tensor.dtype in _INTEGERS


class QuantizedReader(Reader):
    """A quantized tensor of any scheme and stride; its numbers are bit for bit those of ``dequantize()`` on a CPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """``tensor``: quantized, of a dtype that is :func:`readable`."""
        super().__init__(tensor.shape, torch.float32, tensor.device)
        # int_repr() is a copy, and what is quantized by channel can't be narrowed: its integers can, where they lie.
        integers = torch.empty(0, dtype=_INTEGERS[tensor.dtype], device=tensor.device)
        place = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._integers = integers.set_(tensor.untyped_storage(), *place)
        if tensor.qscheme() == torch.per_tensor_affine:
            self._scale = torch.tensor(tensor.q_scale(), dtype=torch.float32)
            self._zero = torch.tensor(tensor.q_zero_point(), dtype=torch.int32)
        else:
            sizes = [1] * tensor.ndim
            sizes[tensor.q_per_channel_axis()] = -1
            self._scale, self._zero = (
                side.to(tensor.device).view(sizes).expand(tensor.shape)
                for side in (tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points().to(torch.float32))
            )

    def read(self, offset: int, count: int) -> torch.Tensor:
        if not count:
            return torch.empty(0, device=self.device)
        integers, stop = span(self._integers, offset, offset + count), offset + count
        scale, zero = (side if side.ndim == 0 else span(side, offset, stop) for side in (self._scale, self._zero))
        return _numbers(integers, scale, zero)

    def at(self, flat: torch.Tensor) -> torch.Tensor:
        index = torch.unravel_index(flat.to(self.device), self.shape)
        scale, zero = (side if side.ndim == 0 else side[index] for side in (self._scale, self._zero))
        return _numbers(self._integers[index], scale, zero)


def _numbers(integers: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """As torch does it: by tensor in 32-bit integers, by channel in float32, times a scale that may be float64."""
    if scale.ndim == 0:
        return (integers.to(torch.int32) - zero).to(torch.float32) * scale
    return ((integers.to(torch.float32) - zero).to(scale.dtype) * scale).to(torch.float32)
