"""Faults of what runs along a dimension: reductions, normalizations, products."""

import math
from collections.abc import Sequence
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
    packet = getattr(site.target, "overloadpacket", None)
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
    packet = getattr(site.target, "overloadpacket", None)
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
