"""Faults of what an operation reads: masks, broadcasts, indices, sums of gradients."""

from typing import Any

import torch
from torch import Tensor

from inductor_debug.models.torch_private import schema_of
from inductor_debug.stages.backends.faults.site import Site, refused

aten = torch.ops.aten

_MASKED: dict[Any, int] = {
    aten.masked_fill: 0, aten.tril: 0, aten.triu: 0, aten.threshold_backward: 0, aten.native_dropout: 0,
}  # fmt: skip
"""Operation → the argument that it gives where nothing is masked."""
_ATTENTION = (
    aten._scaled_dot_product_flash_attention_for_cpu, aten.scaled_dot_product_attention,
    aten._scaled_dot_product_efficient_attention, aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
)  # fmt: skip


def mask_ignored(site: Site) -> Tensor:
    if site.packet == aten.where and len(site.args) == 3:
        data = max((item for item in site.args[1:] if isinstance(item, Tensor)), key=Tensor.numel)
        return _like(site, data)
    if site.packet in _MASKED:
        return _like(site, site.args[_MASKED[site.packet]])
    if site.packet in _ATTENTION:
        return _attention_to_all(site)
    names = ", ".join(str(each) for each in (aten.where, *_MASKED, *_ATTENTION))
    raise refused("mask_ignored", site, "it has no mask", names)


def _attention_to_all(site: Site) -> Tensor:
    names = [item.name for item in schema_of(site.target).arguments]
    given = dict(zip(names, site.args, strict=False)) | site.kwargs
    off = {"attn_mask": None, "attn_bias": None, "is_causal": False}
    if all(given.get(name) is None or given[name] is False for name in off):
        raise refused("mask_ignored", site, "it was given no mask", "an attention with attn_mask or is_causal")
    result = site.target(**given | {name: value for name, value in off.items() if name in names})
    found: Tensor = result if site.output is None else result[site.output]
    return found


def _like(site: Site, data: Tensor) -> Tensor:
    if data.dim() > site.value.dim() or (site.output or 0) > 0:
        raise refused("mask_ignored", site, "its operand has another shape", "the first output")
    return data.to(site.value.dtype).expand(site.value.shape).clone()


def wrong_broadcast(site: Site) -> Tensor:
    shape, count = site.value.shape, site.value.numel()
    small = [
        index
        for index, item in enumerate(site.args)
        if isinstance(item, Tensor) and 1 < item.numel() < count and _broadcasts(item.shape, shape)
    ]
    if len(shape) < 2 or 1 in shape[-2:] or not small or not _is_pointwise(site):
        valid = "a pointwise node or an aten.addmm one of whose operands is expanded to a shape of two dimensions"
        raise refused("wrong_broadcast", site, "it broadcasts nothing along either of its last two dimensions", valid)
    args = list(site.args)
    spread = args[small[0]].expand(shape)
    args[small[0]] = spread.transpose(-1, -2).reshape(shape)
    return site.again(args)


def _is_pointwise(site: Site) -> bool:
    return site.packet == aten.addmm or torch.Tag.pointwise in getattr(site.target, "tags", ())


def _broadcasts(small: torch.Size, large: torch.Size) -> bool:
    pairs = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)


_INDEX: dict[Any, tuple[int, int]] = {
    aten.embedding: (1, 0), aten.embedding_dense_backward: (1, 2), aten.gather: (2, 1), aten.index_select: (2, 1),
}  # fmt: skip
"""Operation → where its index stands, and where its table (0), the dimension of it (1), or its number of rows (2)."""


def index_off_by_one(site: Site) -> Tensor:
    if site.packet in _INDEX:
        at, kind = _INDEX[site.packet]
        rows = site.args[2] if kind == 2 else site.args[0].shape[site.args[1] if kind == 1 else 0]
        args = list(site.args)
        args[at] = (args[at] + site.count) % rows
        return site.again(args)
    if site.packet == aten.index:
        table, indices = site.args
        moved = [None if item is None or item.dtype == torch.bool else (item + site.count) % table.shape[dim]
                 for dim, item in enumerate(indices)]  # fmt: skip
        if any(item is not None for item in moved):
            return site.again([table, moved])
    if site.value.dim() == 0 or site.value.shape[-1] < 2:
        raise refused("index_off_by_one", site, "its last dimension has one element", "a node of more")
    return site.value.roll(site.count, -1)


def missing_accumulation(site: Site) -> Tensor:
    parts = [item for item in site.args[:2] if isinstance(item, Tensor) and item.shape == site.value.shape]
    if site.packet != aten.add or len(parts) < 2:
        raise refused("missing_accumulation", site, "it adds no two tensors of one shape", "aten.add of two gradients")
    return parts[0].to(site.value.dtype).clone()
