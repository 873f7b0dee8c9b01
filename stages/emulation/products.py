"""Matmuls and convolutions whose partial sums are rounded.

A product's terms along the contraction (K) are taken in blocks of ``accumulate_block``. A block's terms are multiplied
and added up in the container (float32). The block's sum is added to the running sum, which is then rounded to
``accumulate``. A convolution's K is its weight's input channels, kernel rows and kernel columns, in that order, as in
the matmul with unfolded patches that it equals. A bias, and beta times addmm's first operand, is added to the last
running sum, and the result rounded once more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inductor_debug.stages.accelerators.number_formats import FloatFormat
from inductor_debug.stages.emulation.rounding import round_

aten = torch.ops.aten


@dataclass(frozen=True)
class Accumulation:
    """``format`` of the running sum; ``block``: terms between two roundings, None for all of them at once."""

    format: FloatFormat
    block: int | None
    saturate: bool

    def round_(self, values: Tensor) -> Tensor:
        """Round a running sum, in place."""
        round_(values, self.format, saturate=self.saturate)
        return values

    def matmul(self, left: Tensor, right: Tensor) -> Tensor:
        """``left @ right``: (…, M, K) and (…, K, N) of one dtype to (…, M, N)."""
        terms = left.shape[-1]
        block = min(self.block or terms, terms) or 1
        total = self.round_(torch.matmul(left[..., :block], right[..., :block, :]))
        for start in range(block, terms, block):
            part = torch.matmul(left[..., start : start + block], right[..., start : start + block, :])
            self.round_(total.add_(part))
        return total

    def plus(self, total: Tensor, other: Tensor | None, beta: float = 1, alpha: float = 1) -> Tensor:
        """``alpha * total + beta * other``, rounded after each step that changes anything.

        Args:
            total: the running sum, floating-point, of any shape; changed in place.
            other: floating-point, of a shape that broadcasts to it; None adds nothing.
            beta, alpha: as of ``torch.addmm``.
        """
        if alpha != 1:
            self.round_(total.mul_(alpha))
        if other is None or beta == 0:
            return total
        return self.round_(total.add_(other, alpha=beta))


class NotEmulated(Exception):
    """A product whose partial sums are torch's own; the message names it. No error of torch's is one."""


def _addmm(
    sums: Accumulation, bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return sums.plus(sums.matmul(left, right), bias, beta, alpha)


def _mv(sums: Accumulation, matrix: Tensor, vector: Tensor) -> Tensor:
    return sums.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def _dot(sums: Accumulation, left: Tensor, right: Tensor) -> Tensor:
    return sums.matmul(left.unsqueeze(0), right.unsqueeze(-1)).reshape(())


def _linear(sums: Accumulation, value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return sums.plus(sums.matmul(value, weight.t()), bias)


def _unfolded(value: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """(B, C, H, W) → patches (B, C·h·w, positions)."""
    kernel = tuple(weight.shape[2:])
    return functional.unfold(value, kernel, tuple(dilation), tuple(padding), tuple(stride))


def _convolution(
    sums: Accumulation,
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    if transposed or weight.dim() not in (3, 4):
        raise NotEmulated("a transposed or three-dimensional convolution")
    if weight.dim() == 3:
        value, weight = value.unsqueeze(2), weight.unsqueeze(2)
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        flat = _convolution(sums, value, weight, bias, stride, padding, dilation, False, (0, 0), groups)
        return flat.squeeze(2)
    patches = _unfolded(value, weight, stride, padding, dilation)
    batch, terms, positions = patches.shape
    grouped = patches.reshape(batch, groups, terms // groups, positions)
    weights = weight.reshape(groups, weight.shape[0] // groups, terms // groups)
    total = sums.matmul(weights, grouped).reshape(batch, weight.shape[0], positions)
    total = sums.plus(total, None if bias is None else bias.reshape(-1, 1))
    size = [
        (value.shape[i + 2] + 2 * padding[i] - dilation[i] * (weight.shape[i + 2] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    ]
    return total.reshape(batch, weight.shape[0], *size)


def _convolution_backward(
    sums: Accumulation,
    gradient: Tensor,
    value: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The weight's gradient sums over positions of one image, then over images. The input's gradient sums over output
    channels. Patches that overlap are added up wide, as the bias's gradient is."""
    if transposed or weight.dim() != 4:
        raise NotEmulated("the backward of a convolution that is not two-dimensional, or is transposed")
    batch, outputs = gradient.shape[:2]
    flat = gradient.reshape(batch, groups, outputs // groups, -1)
    found: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        weights = weight.reshape(groups, outputs // groups, -1)
        patches = sums.matmul(weights.transpose(-1, -2), flat).reshape(batch, -1, flat.shape[-1])
        kernel, places = tuple(weight.shape[2:]), (tuple(dilation), tuple(padding), tuple(stride))
        found[0] = sums.round_(functional.fold(patches, tuple(value.shape[2:]), kernel, *places))
    if output_mask[1]:
        patches = _unfolded(value, weight, stride, padding, dilation)
        grouped = patches.reshape(batch, groups, -1, patches.shape[-1])
        total = None
        for image in range(batch):
            part = sums.matmul(flat[image], grouped[image].transpose(-1, -2))
            total = part if total is None else sums.round_(total.add_(part))
        found[1] = torch.zeros_like(weight) if total is None else total.reshape(weight.shape)
    if output_mask[2]:
        found[2] = gradient.sum((0, 2, 3))
    return tuple(found)


class Product(NamedTuple):
    """An operation that multiplies.

    Attributes:
        operands: positions of the arguments that it multiplies.
        narrow: the same with rounded partial sums; called with an :class:`Accumulation` before its own arguments.
    """

    operands: tuple[int, ...]
    narrow: Callable[..., Any]


PRODUCTS: dict[Any, Product] = {
    aten.mm.default: Product((0, 1), Accumulation.matmul),
    aten.bmm.default: Product((0, 1), Accumulation.matmul),
    aten.mv.default: Product((0, 1), _mv),
    aten.dot.default: Product((0, 1), _dot),
    aten.addmm.default: Product((1, 2), _addmm),
    aten.baddbmm.default: Product((1, 2), _addmm),
    aten.linear.default: Product((0, 1), _linear),
    aten.convolution.default: Product((0, 1), _convolution),
    aten.convolution_backward.default: Product((0, 1, 2), _convolution_backward),
}

FUSED = ("attention", "rnn", "lstm", "gru", "_trilinear", "addmv", "addbmm", "addr", "cdist", "grouped_mm", "scaled_mm")
"""Parts of the names of operations that multiply inside, of which nothing is known here."""


def multiplies_inside(target: Any) -> bool:
    """Whether an operation has products in it that are not in :data:`PRODUCTS`."""
    return target not in PRODUCTS and any(part in str(target) for part in FUSED)
