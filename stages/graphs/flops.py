"""Floating-point operations of one aten call, mostly from torch's own formulas. A multiply-add counts as two."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils import flop_counter

from inductor_debug.models.torch_private import OpOverload


def _attention(query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    return flop_counter.sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    return flop_counter.sdpa_backward_flop_count(gradient.shape, query.shape, key.shape, value.shape)


def _convolution_backward(gradient: Any, x: Any, weight: Any, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Each multiply-add of the forward gives one in the input's gradient and one in the weight's; the bias's are sums.

    ``weight``'s second dimension is that of one group, so that groups are counted as they are.
    """
    transposed, output_mask = args[4], args[7]
    positions = (x if transposed else gradient).shape[2:]
    return sum(output_mask[:2]) * 2 * x.shape[0] * prod(positions) * prod(weight.shape)


def _product(*tensors: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Of the last two tensors: ``(…, k) @ (k)``, ``(m, k) @ (k, n)`` or ``(b, m, k) @ (b, k, n)``."""
    left, right = [item for item in tensors if isinstance(item, torch.Tensor)][-2:]
    return 2 * prod(left.shape) * (right.shape[-1] if right.dim() > 1 else 1)


def _own_formulas() -> dict[Any, Callable[..., int]]:
    """Packets that torch's registry lacks, and the one whose formula there ignores groups.

    Attention's are those that it uses for the CUDA flash kernels.
    """
    names: dict[str, Callable[..., int]] = {
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "convolution_backward": _convolution_backward,
        **dict.fromkeys(("_addmm_activation", "_int_mm", "addbmm", "addmv", "dot", "mv", "vdot"), _product),
    }
    return {getattr(torch.ops.aten, name): formula for name, formula in names.items() if hasattr(torch.ops.aten, name)}


_OWN = _own_formulas()


def count_flops(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int | None:
    """FLOPs of ``target(*args, **kwargs)``, a multiply-add being two.

    Args:
        target: an ``OpOverload``; anything else has no formula.
        args, kwargs: with concrete tensors (real, fake or meta) in the nodes' places.
        output: the call's value, likewise.

    Returns:
        The count, or None where there is no formula (pointwise operations and reductions among them).
    """
    if not isinstance(target, OpOverload):
        return None
    packet = target.overloadpacket
    formula = _OWN.get(packet) or flop_counter.flop_registry.get(packet)
    return None if formula is None else int(formula(*args, **kwargs, out_val=output))


def has_formula(target: Any) -> bool:
    """True where :func:`count_flops` knows ``target``."""
    packet = getattr(target, "overloadpacket", None)
    return packet is not None and (packet in flop_counter.flop_registry or packet in _OWN)
