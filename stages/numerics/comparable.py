"""What a tensor of any kind is compared as."""

import torch

from inductor_debug.stages.numerics import quantized_reader
from inductor_debug.stages.numerics.one_pass import chunks
from inductor_debug.stages.numerics.quantized_reader import QuantizedReader
from inductor_debug.stages.numerics.readers import Reader, Side
from inductor_debug.stages.numerics.sparse_reader import LAYOUTS, SparseReader


class CannotCompare(Exception):
    """A tensor without values that can be compared."""


_PACKED = getattr(torch, "float4_e2m1fn_x2", None)
"""A dtype of two numbers a byte, which torch can't read: compared as bytes."""

_WITHOUT_ZERO = getattr(torch, "float8_e8m0fnu", None)
"""A dtype that can't hold what a sparse tensor leaves out."""


def comparable(tensor: Side) -> Side:
    """The tensor without its graph, as it is compared, never made dense or dequantized as a whole.

    A sparse tensor is compared as the dense one that it stands for: an explicit zero and a missing element are equal. A
    quantized one is compared as the numbers that it stands for. A jagged nested one is compared as its values, all rows
    after each other (:func:`stages.numerics.structure.flatten` gives its offsets apart). Quantized tensors of less than
    a byte an element, and mkldnn tensors, are made strided whole, since torch reads no part of them. A reader is its
    own.

    Raises:
        CannotCompare: a meta tensor, a strided nested one, or a sparse one of a dtype without a zero.
    """
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.requires_grad or type(tensor) is not torch.Tensor:
        tensor = tensor.detach()
    if tensor.is_meta or (tensor.is_nested and tensor.layout != torch.jagged):
        raise CannotCompare(f"a {'meta' if tensor.is_meta else 'strided nested'} tensor has no values to compare")
    if tensor.dtype == _PACKED:
        return tensor.view(torch.uint8)
    if tensor.is_quantized:
        return QuantizedReader(tensor) if quantized_reader.readable(tensor) else tensor.dequantize()
    if tensor.layout == torch.jagged:
        return tensor.values()
    if tensor.layout in LAYOUTS:
        if tensor.dtype == _WITHOUT_ZERO:
            raise CannotCompare(f"a sparse tensor of {tensor.dtype}, which has no zero")
        return SparseReader(tensor)
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as it is compared, whole, without its graph: strided as it is, else a contiguous copy.

    Raises:
        CannotCompare: see :func:`comparable`.
    """
    tensor = tensor.detach()
    side = tensor if tensor.layout == torch.strided and not tensor.is_quantized else comparable(tensor)
    if not isinstance(side, Reader):
        return side
    whole = torch.empty(side.shape, dtype=side.dtype, device=side.device)
    for offset, (piece,) in chunks([side]):
        whole.view(-1)[offset : offset + len(piece)] = piece
    return whole
