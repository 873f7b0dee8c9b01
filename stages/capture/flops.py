"""Floating-point operations of one aten call, from torch's own formulas. A multiply-add counts as two."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter


def _attention(query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    return flop_counter.sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    return flop_counter.sdpa_backward_flop_count(gradient.shape, query.shape, key.shape, value.shape)


def _missing_formulas() -> dict[Any, Callable[..., int]]:
    """Packets that torch's registry lacks; the formulas are those it uses for the CUDA flash kernels."""
    names: dict[str, Callable[..., int]] = {
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    }
    return {getattr(torch.ops.aten, name): formula for name, formula in names.items() if hasattr(torch.ops.aten, name)}


_MISSING = _missing_formulas()


def count_flops(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int | None:
    """FLOPs of ``target(*args, **kwargs)``, a multiply-add being two.

    Args:
        target: an ``OpOverload``; anything else has no formula.
        args, kwargs: with concrete tensors (real, fake or meta) in the nodes' places.
        output: the call's value, likewise.

    Returns:
        The count, or None where torch has no formula (pointwise operations and reductions among them).
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    packet = target.overloadpacket
    formula = flop_counter.flop_registry.get(packet) or _MISSING.get(packet)
    return None if formula is None else int(formula(*args, **kwargs, out_val=output))


def has_formula(target: Any) -> bool:
    """True where :func:`count_flops` knows ``target``."""
    packet = getattr(target, "overloadpacket", None)
    return packet is not None and (packet in flop_counter.flop_registry or packet in _MISSING)
