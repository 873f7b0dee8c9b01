"""Faults of what runs along a dimension: reductions, normalizations, products."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from inductor_debug.stages.backends.faults.site import Site, refused, require_floating

aten = torch.ops.aten

MOST_BLOCKS = 32
"""Blocks that an accumulation is cut into at most: each becomes operations of the graph."""

_SHAPE_KEPT: dict[Any, int] = {
    aten._softmax: 1, aten._log_softmax: 1, aten._softmax_backward_data: 2, aten._log_softmax_backward_data: 2,
    aten.cumsum: 1,
}  # fmt: skip
_REDUCING: dict[Any, int] = {
    aten.sum: 1, aten.mean: 1, aten.amax: 1, aten.amin: 1, aten.max: 1, aten.min: 1, aten.argmax: 1, aten.argmin: 1,
    aten.any: 1, aten.prod: 1, aten.var: 1, aten.var_mean: 1, aten.logsumexp: 1, aten.linalg_vector_norm: 2,
}  # fmt: skip
"""Operation → which argument is the dimension, or the list of dimensions."""


def wrong_axis(site: Site) -> Tensor:
    packet = site.packet
    if packet == aten.native_layer_norm:
        return _normalized_over_another(site)
    position = (_SHAPE_KEPT | _REDUCING).get(packet)
    if position is None:
        names = ", ".join(str(each) for each in (*_SHAPE_KEPT, *_REDUCING, aten.native_layer_norm))
        raise refused("wrong_axis", site, "it works along no dimension of its own", names)
    given = site.args[position] if len(site.args) > position else None
    if given is None or (isinstance(given, Sequence) and not given):
        raise refused("wrong_axis", site, "it covers all dimensions", "a node that works along some of them")
    old = given[-1] if isinstance(given, Sequence) else given
    if packet in _SHAPE_KEPT:
        new = _another_dimension(site, [old], equal=False)
        return site.again([*site.args[:position], new, *site.args[position + 1 :]])
    new = _another_dimension(site, given if isinstance(given, Sequence) else [given], equal=True)
    return site.again([site.args[0].transpose(old, new), *site.args[1:]])


def _normalized_over_another(site: Site) -> Tensor:
    x, normalized, *rest = site.args
    if len(normalized) != 1:
        raise refused("wrong_axis", site, f"it normalizes over {len(normalized)} dimensions", "a node with one")
    dim = _another_dimension(site, [-1], equal=True)
    result = site.again([x.transpose(dim, -1), normalized, *rest])
    return result if site.output else result.transpose(dim, -1)  # mean and deviation have size 1 there


def _another_dimension(site: Site, dims: Sequence[int], *, equal: bool) -> int:
    """The last dimension of the first argument that is not in ``dims`` and is larger than 1. Where ``equal``, it has
    the size of the last of ``dims``: the result keeps its shape."""
    shape = site.args[0].shape
    taken = {dim % len(shape) for dim in dims}
    size = shape[dims[-1]]
    for dim in reversed(range(len(shape))):
        if dim not in taken and shape[dim] > 1 and (not equal or shape[dim] == size):
            return dim
    need = f"of size {size}" if equal else "larger than 1"
    raise refused("wrong_axis", site, f"its input {list(shape)} has no other dimension {need}", "a node with one")


_FACTORS: dict[Any, dict[int, int]] = {
    aten.mm: {0: 1, 1: 0},
    aten.bmm: {0: 2, 1: 1},
    aten.addmm: {1: 1, 2: 0},
    aten.baddbmm: {1: 2, 2: 1},
    aten.convolution: {0: 1, 1: 1},
}
"""Operation → argument → its dimension that is summed over."""
_BACKWARD_FACTORS: tuple[dict[int, int], ...] = ({0: 1, 2: 0}, {0: 0, 1: 0}, {0: 0, 1: 0})
"""The same for convolution_backward, by output: of the input, of the weight, of the bias."""
_BIAS = {aten.addmm: 0, aten.baddbmm: 0, aten.convolution: 2}
_GROUPS = {aten.convolution: (6, 8), aten.convolution_backward: (7, 9)}
"""Where ``transposed`` and ``groups`` stand."""


def narrow_accumulation(site: Site) -> Tensor:
    require_floating("narrow_accumulation", site)
    packet = site.packet
    if packet in (aten.sum, aten.mean):
        return _narrow_sum(site, mean=packet == aten.mean)
    factors = _BACKWARD_FACTORS[site.output or 0] if packet == aten.convolution_backward else _FACTORS.get(packet)
    if factors is None:
        names = ", ".join(str(each) for each in (*_FACTORS, aten.convolution_backward, aten.sum, aten.mean))
        raise refused("narrow_accumulation", site, "it accumulates nothing", names)
    if packet in _GROUPS and (site.args[_GROUPS[packet][0]] or site.args[_GROUPS[packet][1]] != 1):
        raise refused("narrow_accumulation", site, "it is grouped or transposed", "a plain convolution")
    args = [arg.to(torch.float32) if isinstance(arg, Tensor) else arg for arg in site.args]
    first, dim = next(iter(factors.items()))
    total = None
    for start, length in _blocks(args[first].shape[dim], site.strength):
        block = list(args)
        for index, along in factors.items():
            block[index] = args[index].narrow(along, start, length)
        if total is not None and packet in _BIAS and isinstance(args[_BIAS[packet]], Tensor):
            block[_BIAS[packet]] = torch.zeros_like(args[_BIAS[packet]])
        part = site.again(block)
        total = to_bfloat16_values(part if total is None else total + part)
    assert total is not None
    return total.to(site.value.dtype)


def _narrow_sum(site: Site, *, mean: bool) -> Tensor:
    x = site.args[0].to(torch.float32)
    given = site.args[1] if len(site.args) > 1 else None
    dims = [dim % x.dim() for dim in given] if given else list(range(x.dim()))
    keep = bool(site.args[2]) if len(site.args) > 2 else False
    if not dims:
        raise refused("narrow_accumulation", site, "it adds up one element", "a node that sums several")
    along = max(dims, key=lambda dim: x.shape[dim])
    total = torch.zeros_like(site.value, dtype=torch.float32)
    for start, length in _blocks(x.shape[along], site.strength):
        total = to_bfloat16_values(total + x.narrow(along, start, length).sum(dims, keepdim=keep))
    return (total / math.prod(x.shape[dim] for dim in dims) if mean else total).to(site.value.dtype)


def _blocks(size: int, length: float) -> list[tuple[int, int]]:
    step = max(int(length), math.ceil(size / MOST_BLOCKS))
    return [(start, min(step, size - start)) for start in range(0, size, step)]


def to_bfloat16_values(x: Tensor) -> Tensor:
    """float32 rounded to bfloat16's values, to nearest even, by its bits: a pair of casts a compiler may cancel."""
    bits = x.view(torch.int32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).view(torch.float32)


_ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu


def _covered(fault: str, site: Site) -> dict[int, int]:
    """Argument → its dimension that the operation runs over: of several the last."""
    if site.packet in _REDUCING:
        position, dims = _REDUCING[site.packet], list(range(site.args[0].dim()))
        given = site.args[position] if len(site.args) > position else None
        dims = dims if given in (None, []) else [given] if isinstance(given, int) else list(given)
        large = [dim for dim in dims if site.args[0].shape[dim] > 1]
        if large:
            return {0: large[-1]}
    elif site.packet == _ATTENTION and site.kwargs.get("attn_mask") is None:
        return {1: 2, 2: 2}
    elif site.packet == aten.convolution_backward and site.output is not None and site.args[9] == 1:
        return _BACKWARD_FACTORS[site.output] if site.output == 0 and not site.args[7] else {0: 0, 1: 0}
    elif site.packet in _FACTORS and not (site.packet == aten.convolution and (site.args[6] or site.args[8] != 1)):
        return _FACTORS[site.packet]
    names = ", ".join(str(each) for each in (*_REDUCING, *_FACTORS, aten.convolution_backward, aten._softmax))
    raise refused(fault, site, "it runs over no dimension, or one of size 1, is grouped, transposed or masked", names)


def _over(site: Site, factors: dict[int, int], change: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The operation with some of its arguments changed along the dimension that it runs over."""
    args = list(site.args)
    for index, dim in factors.items():
        args[index] = change(args[index], dim)
    return site.again(args)


def wrong_extent(site: Site) -> Tensor:
    if site.packet == aten._softmax:
        kept = _shortened(site.value, site.args[1], site.count)
        return site.value / kept.sum(site.args[1], keepdim=True)
    if site.packet == aten.native_layer_norm:
        return _normalized_by_less(site)
    return _over(site, _covered("wrong_extent", site), lambda item, dim: _shortened(item, dim, site.count))


def _shortened(x: Tensor, dim: int, count: int) -> Tensor:
    return x.narrow(dim, 0, max(1, x.shape[dim] - count))


def _normalized_by_less(site: Site) -> Tensor:
    x, normalized, weight, bias, eps = site.args
    if len(normalized) != 1 or site.output:
        raise refused("wrong_extent", site, "it is no normalization over one dimension", "its output 0, over one")
    variance, mean = torch.var_mean(_shortened(x, -1, site.count).float(), -1, correction=0, keepdim=True)
    found = (x.float() - mean) * torch.rsqrt(variance + eps)
    found = found if weight is None else found * weight
    return (found if bias is None else found + bias).to(site.value.dtype)


def padding_as_data(site: Site) -> Tensor:
    """What lies behind each row is its own beginning over again, as where a row is padded in place of the next."""
    if site.packet == aten._softmax:
        dim = site.args[1]
        long = site.again([_lengthened(site.args[0], dim, site.count), *site.args[1:]])
        return long.narrow(dim, 0, site.value.shape[dim])
    if site.packet == aten.convolution and any(site.args[4]) and not site.args[6]:
        return _convolved_around(site)
    factors = _covered("padding_as_data", site)
    if site.packet == aten.convolution or (site.packet == aten.convolution_backward and site.output == 0):
        raise refused("padding_as_data", site, "it pads nothing", "a convolution with padding")
    return _over(site, factors, lambda item, dim: _lengthened(item, dim, site.count))


def _lengthened(x: Tensor, dim: int, count: int) -> Tensor:
    return torch.cat([x, x.narrow(dim, 0, min(count, x.shape[dim]))], dim)


def _convolved_around(site: Site) -> Tensor:
    """A convolution whose padding holds the other end of each row, in place of zero."""
    x, padding = site.args[0], list(site.args[4])
    for dim, size in zip(range(2, x.dim()), padding, strict=True):
        if size > x.shape[dim]:
            raise refused("padding_as_data", site, f"its padding {size} is beyond {x.shape[dim]}", "a smaller padding")
        x = torch.cat([x.narrow(dim, x.shape[dim] - size, size), x, x.narrow(dim, 0, size)], dim)
    return site.again([x, *site.args[1:4], [0] * len(padding), *site.args[5:]])


_SWAPPED = {aten.sum: aten.amax, aten.mean: aten.amax, aten.amax: aten.sum, aten.amin: aten.sum}


def swapped_reduction(site: Site) -> Tensor:
    """A largest value in the place of a sum or mean, or the other way round."""
    if site.packet == aten._softmax:
        return site.value / site.value.amax(site.args[1], keepdim=True)
    if site.packet == aten.max_pool2d_with_indices and not site.output:
        return _summed_windows(site)
    if site.packet not in _SWAPPED:
        names = ", ".join(str(each) for each in (*_SWAPPED, aten._softmax, aten.max_pool2d_with_indices))
        raise refused("swapped_reduction", site, "it takes no sum and no largest value", names)
    x, *rest = site.args
    dims = rest[0] if rest and rest[0] is not None else []
    found: Tensor = _SWAPPED[site.packet](x, dims or list(range(x.dim())), *rest[1:2])
    return found.to(site.value.dtype)


def _summed_windows(site: Site) -> Tensor:
    defaults: list[Any] = [[], 0, 1, False]
    x, window, stride, padding, dilation, ceil = [*site.args, *defaults[len(site.args) - 2 :]]
    if any(step != 1 for step in ([dilation] if isinstance(dilation, int) else dilation)):
        raise refused("swapped_reduction", site, "its window is dilated", "a pooling without dilation")
    found: Tensor = aten.avg_pool2d(x, window, stride, padding, ceil) * math.prod(window)
    return found
