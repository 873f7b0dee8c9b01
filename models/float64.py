"""Operations that lack float64: gold takes their decomposition, or an equal formula.

Most kernels have float64, but not all: grouped matrix products (mixture-of-experts models), scaled ones of 8-bit
formats, fused attention. Where one of them raises, :class:`Substituted` computes the same function from operations that
have it: by a formula of ours, or by torch's own decomposition into core ATen. Forward and backward are covered, for
autograd's formulas call these operations again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from inductor_debug.models import attention
from inductor_debug.models.torch_private import OpOverload, TorchDispatchMode, has_decomposition, pytree

aten = torch.ops.aten


class LacksFloat64(RuntimeError):
    """An operation raised on float64 tensors, and there is neither a decomposition nor a formula for it."""


@contextmanager
def substituted() -> Iterator[None]:
    """Inside, an operation that lacks float64 is computed otherwise.

    Raises:
        LacksFloat64: an operation raised for which there is nothing equal; the message names it.
    """
    with _MathAttention(), Substituted():
        yield


class Substituted(TorchDispatchMode):
    """See :func:`substituted`."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        wide = _has_float64(args, kwargs)
        if wide and func in attention.without_float64():
            error: Exception = RuntimeError("its kernels do not compute in it")
        else:
            try:
                return func(*args, **kwargs)
            except (RuntimeError, TypeError, ValueError) as raised:  # so do torch's checks of dtypes
                if isinstance(raised, (torch.OutOfMemoryError, LacksFloat64)) or not wide:
                    raise
                error = raised
        with self:
            for substitute in _substitutes(func):
                result = substitute(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        raise LacksFloat64(f"{func} has no float64: {error}")


class _MathAttention(TorchFunctionMode):
    """Attention for which a model allows fused kernels alone takes the unfused formula where none has float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention or not _has_float64(args, kwargs):
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **kwargs)


def grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``torch.nn.functional.grouped_mm`` as one matrix product a group.

    Args:
        left: [M, K], or [G, M, K].
        right: [K, N], or [G, K, N].
        offs: [G], where each group ends: along M where only ``left`` has no group dimension, along N where only
            ``right`` has none, along K where neither has one. None where both have one.
        bias: added to the result.

    Returns:
        [M, N], or [G, M, N] where both operands have a group dimension or neither has. Rows, or columns, that are of no
        group are 0.
    """
    dtype = out_dtype or left.dtype
    if left.dim() == right.dim() == 3:
        result = torch.bmm(left, right)
    else:
        assert offs is not None, "a grouped product of matrices has offsets"
        ends = offs.tolist()
        groups = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        if left.dim() == right.dim() == 2:
            result = torch.stack([left[:, group] @ right[group] for group in groups])
        elif left.dim() == 2:
            result = left.new_zeros(left.shape[0], right.shape[2])
            for number, group in enumerate(groups):
                result[group] = left[group] @ right[number]
        else:
            result = left.new_zeros(left.shape[1], right.shape[1])
            for number, group in enumerate(groups):
                result[:, group] = left[number] @ right[:, group]
    return (result if bias is None else result + bias).to(dtype)


def scaled_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    scale_left: torch.Tensor,
    scale_right: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """``torch._scaled_mm``, computed in float64. Gives NotImplemented for scales of other shapes.

    Args:
        left, right: [M, K] and [K, N], floating-point.
        scale_left, scale_right: floating-point, one element each, or [M, 1] and [1, N].
        bias: [N], or None.
        scale_result: has an effect on 8-bit results alone, and none here.
        out_dtype: of the result, [M, N]; float64 if None.
        use_fast_accum: has no effect here.
    """
    rowwise = scale_left.shape == (left.shape[0], 1) and scale_right.shape == (1, right.shape[1])
    if scale_left.numel() != 1 and not rowwise:
        return NotImplemented
    if scale_right.numel() != 1 and not rowwise:
        return NotImplemented
    product = (left.double() * scale_left.double()) @ (right.double() * scale_right.double())
    result = product if bias is None else product + bias.double()
    return result.to(torch.float64 if out_dtype is None else out_dtype)


def weight_int8pack_mm(left: torch.Tensor, right: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``torch._weight_int8pack_mm``: [M, K] and int8 [N, K] with a scale a row, as [M, N]."""
    return (left @ right.to(left.dtype).t()) * scales.to(left.dtype)


def _has_float64(*values: Any) -> bool:
    wide = (torch.float64, torch.complex128)
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in wide for leaf in pytree.tree_leaves(values))


def _substitutes(func: Any) -> Iterator[Callable[..., Any]]:
    """What computes the same as ``func``, the more exact first."""
    known = formulas()
    if func in known:
        yield known[func]
    decompositions = _decompositions()
    if func in decompositions:
        yield decompositions[func]
    if isinstance(func, OpOverload) and has_decomposition(func):
        yield func.decompose


@cache
def formulas() -> dict[Any, Callable[..., Any]]:
    """Overload → formula, of those operations that this torch has."""
    named: dict[str, Callable[..., Any]] = {
        "_grouped_mm": grouped_mm,
        "_scaled_mm": scaled_mm,
        "_weight_int8pack_mm": weight_int8pack_mm,
    }
    found = {getattr(aten, name).default: formula for name, formula in named.items() if hasattr(aten, name)}
    return {**found, **attention.without_float64()}


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return {**torch.export.default_decompositions()}
