"""Attention by its formula, for what torch computes in fused kernels without float64 or without a derivative.

The results and gradients are those of FlashAttention-2 (arXiv 2307.08691): the forward leaves the logarithm of each
query's sum of exponentials, and the backward takes it, and the result, in place of the scores. Each formula has the
signature of its operator. With dropout it gives NotImplemented: the kernels draw their masks from a counter.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

aten = torch.ops.aten

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Of query, key, value and bias."""

BLOCK = 32
"""Queries to a multiple of which the memory-efficient kernel pads the logarithms, with infinity."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, [B, H, L, Ev], and the logarithm of each query's sum of exponentials, [B, H, L].

    Args:
        query: [B, H, L, E].
        key: [B, G, S, E]; H is a multiple of G, and neighbouring queries' heads share one.
        value: [B, G, S, Ev].
        bias: added to the scores, or a mask of those that count; broadcast to [B, H, L, S].
        causal: whether query i sees keys up to i alone.
        scale: of the scores; 1/√E if None.
    """
    key, value = (_repeated(item, query) for item in (key, value))
    scores = _scores(query, key, bias, causal, scale)
    return aten._safe_softmax.default(scores, -1) @ value, scores.logsumexp(-1)


def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    result: torch.Tensor,
    logarithms: torch.Tensor,
    bias: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Gradients:
    """The gradients of what :func:`attention` takes; of the bias, [B, H, L, S].

    Args:
        gradient: of the result, [B, H, L, Ev].
        query, key, value, bias, causal, scale: as the forward took them.
        result: that of the forward.
        logarithms: those of the forward, with further ones behind each row's.
    """
    groups = key.shape[-3]
    wide_key, wide_value = (_repeated(item, query) for item in (key, value))
    rows = query.shape[-2]
    logarithms = logarithms.reshape(*query.shape[:-2], -1)[..., :rows].unsqueeze(-1)
    shares = (_scores(query, wide_key, bias, causal, scale) - logarithms).exp()
    own = (gradient * result).sum(-1, keepdim=True)
    scores = shares * (gradient @ wide_value.mT - own)
    factor = _scale(query, scale)
    of_key, of_value = scores.mT @ query * factor, shares.mT @ gradient
    return scores @ wide_key * factor, _gathered(of_key, groups), _gathered(of_value, groups), scores


def _scale(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _repeated(item: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    heads = query.shape[-3]
    return item if item.shape[-3] == heads else item.repeat_interleave(heads // item.shape[-3], -3)


def _gathered(gradient: torch.Tensor, groups: int) -> torch.Tensor:
    return gradient if gradient.shape[-3] == groups else gradient.unflatten(-3, (groups, -1)).sum(-3)


def _scores(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, causal: bool, scale: float | None
) -> torch.Tensor:
    scores = query @ key.mT * _scale(query, scale)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if bias is not None:
        scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias
    return scores


@cache
def formulas() -> dict[Any, Callable[..., Any]]:
    """Overload → formula, of those operators that this torch has."""
    return {**_formulas(CPU), **without_float64()}


@cache
def without_float64() -> dict[Any, Callable[..., Any]]:
    """The same of the operators that lack float64, which they need not say: cuDNN's gives other numbers."""
    return _formulas(FUSED)


def _formulas(named: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    operators = {f"_scaled_dot_product_{name}": formula for name, formula in named.items()}
    return {getattr(aten, name).default: formula for name, formula in operators.items() if hasattr(aten, name)}


UNSET = (None, None)
"""In place of a generator's state, which nothing sets or reads without dropout."""


def _cpu(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *, attn_mask: Any = None,
         scale: float | None = None) -> Any:  # fmt: skip
    return NotImplemented if dropout else attention(query, key, value, attn_mask, causal, scale)


def _cpu_backward(
    gradient: Any, query: Any, key: Any, value: Any, result: Any, logarithms: Any, dropout: float, causal: bool, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    return attention_backward(gradient, query, key, value, result, logarithms, attn_mask, causal, scale)[:3]


def _flash(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, debug: bool = False, *,
           scale: float | None = None) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    found = attention(query, key, value, None, causal, scale)
    return *found, None, None, query.shape[-2], key.shape[-2], *UNSET, query.new_empty(0)


def _flash_backward(
    gradient: Any, query: Any, key: Any, value: Any, result: Any, logarithms: Any, first: Any, second: Any,
    queries: int, keys: int, dropout: float, causal: bool, seed: Any, offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    return attention_backward(gradient, query, key, value, result, logarithms, None, causal, scale)[:3]


def _efficient(
    query: Any, key: Any, value: Any, bias: Any, keep: bool, dropout: float = 0.0, causal: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    result, logarithms = attention(query, key, value, bias, causal, scale)
    padding = -logarithms.shape[-1] % BLOCK
    padded = torch.nn.functional.pad(logarithms, (0, padding), value=math.inf)
    return result, padded if keep else padded[..., :0], *UNSET


def _efficient_backward(
    gradient: Any, query: Any, key: Any, value: Any, bias: Any, result: Any, logarithms: Any, seed: Any, offset: Any,
    dropout: float, asked: Sequence[bool], causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    bias = None if bias is None or not bias.numel() else bias
    found = attention_backward(gradient, query, key, value, result, logarithms, bias, causal, scale)
    of_bias = None if bias is None else found[3].sum_to_size(bias.shape)
    return tuple(item if wanted else None for item, wanted in zip((*found[:3], of_bias), asked, strict=True))


def _cudnn(
    query: Any, key: Any, value: Any, bias: Any, keep: bool, dropout: float = 0.0, causal: bool = False,
    debug: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    result, logarithms = attention(query, key, value, bias, causal, scale)
    logarithms = logarithms.unsqueeze(-1) if keep else query.new_empty(0)
    return result, logarithms, None, None, query.shape[-2], key.shape[-2], *UNSET, query.new_empty(0)


def _cudnn_backward(
    gradient: Any, query: Any, key: Any, value: Any, result: Any, logarithms: Any, seed: Any, offset: Any, bias: Any,
    first: Any, second: Any, queries: int, keys: int, dropout: float, causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    bias = None if bias is None or not bias.numel() else bias
    return attention_backward(gradient, query, key, value, result, logarithms, bias, causal, scale)[:3]


def _vendors(
    query: Any, key: Any, value: Any, bias: Any = None, dropout: float = 0.0, causal: bool = False, debug: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    found = _cudnn(query, key, value, bias, True, dropout, causal, scale=scale)
    return found if dropout else (found[0], found[1].squeeze(-1), *found[2:])


def _vendors_backward(
    gradient: Any, query: Any, key: Any, value: Any, bias: Any, asked: Sequence[bool], result: Any, logarithms: Any,
    first: Any, second: Any, queries: int, keys: int, dropout: float, causal: bool, seed: Any, offset: Any, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return _efficient_backward(gradient, query, key, value, bias, result, logarithms, seed, offset, dropout, asked,
                               causal, scale=scale)  # fmt: skip


CPU: dict[str, Callable[..., Any]] = {
    "flash_attention_for_cpu": _cpu,
    "flash_attention_for_cpu_backward": _cpu_backward,
}

FUSED: dict[str, Callable[..., Any]] = {
    "flash_attention": _flash,
    "flash_attention_backward": _flash_backward,
    "efficient_attention": _efficient,
    "efficient_attention_backward": _efficient_backward,
    "cudnn_attention": _cudnn,
    "cudnn_attention_backward": _cudnn_backward,
    "fused_attention_overrideable": _vendors,
    "fused_attention_overrideable_backward": _vendors_backward,
}
