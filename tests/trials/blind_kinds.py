"""Kinds of faults that compilers and vendors' kernels have, each a wrong value for one node of an AOT graph.

They were written without a look at how this project compares, so that what it misses is not known beforehand.
"""

import math
from typing import Any

import torch
from blind_calls import Call, among, base, floating, is_backward, kind, shape
from torch import Tensor, fx
from torch.nn import functional as F

MATRIX = ("mm", "addmm", "bmm")
POINTWISE = ("add", "mul", "sub", "div", "relu", "gelu", "sigmoid", "tanh", "exp", "neg", "silu", "hardtanh", "clamp")
NORMS = ("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training",
         "_native_batch_norm_legit_functional")  # fmt: skip
TILE = 16


def _reduces(node: fx.Node) -> bool:
    if base(node) not in ("mean", "sum", "amax", "_softmax", "cumsum", "var") or len(node.args) < 2:
        return False
    sizes = shape(node.args[0])
    return len(sizes) > 1 and _other(node, sizes) is not None


def _other(node: fx.Node, sizes: tuple[int, ...]) -> tuple[int, int] | None:
    dims = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
    if len(dims) != 1 or not isinstance(dims[0], int):
        return None
    dim = dims[0] % len(sizes)
    other = dim - 1 if dim else 1
    return (dim, other) if min(sizes[dim], sizes[other]) > 1 else None


@kind(_reduces)
def reduction_axis(call: Call) -> Any:
    """The strides of two axes are swapped in what a reduction reads."""
    x = call.args[0].contiguous()
    found = _other(call.node, tuple(x.shape))
    assert found is not None
    return call.replaced(0, x.reshape(x.transpose(*found).shape).transpose(*found))


@kind(among(*MATRIX))
def matmul_tail(call: Call) -> Any:
    """In the last tile of columns, the last partial tile of the inner dimension is left out."""
    *bias, a, b = call.args
    inner, columns = a.shape[-1], b.shape[-1]
    keep = inner // TILE * TILE if inner % TILE and inner > TILE else inner - 1
    first = columns // TILE * TILE if columns % TILE else columns - 1
    wrong = call.right.clone()
    wrong[..., first:] = a[..., :keep] @ b[..., :keep, first:] + (bias[0][..., first:] if bias else 0)
    return wrong


@kind(among("max_pool2d_with_indices", "avg_pool2d", "max_pool2d_with_indices_backward", "avg_pool2d_backward"))
def pool_window(call: Call) -> Any:
    """The window is one column too narrow, and in the backward one element off."""
    name = base(call.node)
    if name.startswith("max") and name.endswith("backward"):
        return call.replaced(len(call.args) - 1, (call.args[-1] - 1).clamp(min=0))
    if name.endswith("backward"):
        wrong = call.right.clone()
        wrong[..., 1::2] = 0
        return wrong
    x, window, *rest = call.args
    narrow = call.again(x, [window[0], window[1] - 1], *rest, **call.kwargs)
    values = narrow[0] if name.startswith("max") else narrow
    right = call.right[0] if name.startswith("max") else call.right
    wrong = right.clone()
    wrong.copy_(values[..., : right.shape[-1]])
    return (wrong, call.right[1]) if name.startswith("max") else wrong


def _adds_eps(node: fx.Node) -> bool:
    small = len(node.args) > 1 and isinstance(node.args[1], float) and 0 < node.args[1] < 1e-3
    return base(node) in NORMS or (base(node) == "add" and small)


@kind(_adds_eps)
def eps_ignored(call: Call) -> Any:
    """A normalization without its epsilon."""
    if base(call.node) == "add":
        return call.args[0].clone()
    return call.replaced(len(call.args) - 1, 0.0)


@kind(among("var", "native_layer_norm", "_native_batch_norm_legit_functional"))
def variance_bias(call: Call) -> Any:
    """The variance divides by n - 1 in place of n, or the other way round."""
    if base(call.node) == "var":
        return call.again(*call.args, **call.kwargs | {"correction": 1 - (call.kwargs.get("correction") or 0)})
    if base(call.node) == "native_layer_norm":
        x, sizes, weight, bias, _ = call.args
        out, mean, rstd = call.right
        less = rstd * math.sqrt(1 - 1 / math.prod(sizes))
        wrong = ((x - mean) * less * (1 if weight is None else weight) + (0 if bias is None else bias)).to(out.dtype)
        return wrong, mean, less.to(rstd.dtype)
    count = call.args[0].numel() // call.args[0].shape[1]
    before = call.args[4]
    return (*call.right[:4], before + (call.right[4] - before) * (1 - 1 / count))


@kind(lambda node: base(node) in MATRIX and len(set(shape(node.args[-1])[-2:])) == 1)
def transposed_weight(call: Call) -> Any:
    """A square matrix is read transposed."""
    return call.replaced(len(call.args) - 1, call.args[-1].transpose(-1, -2))


def _broadcasts(node: fx.Node) -> bool:
    sizes = shape(node)
    if base(node) not in ("addmm", "add", "mul", "sub", "div") or len(sizes) < 2 or min(sizes[-2:]) < 2:
        return False
    operands = node.args[:1] if base(node) == "addmm" else node.args[:2]
    return any(1 < math.prod(shape(x)) < math.prod(sizes) for x in operands if shape(x))


@kind(_broadcasts)
def broadcast_axis(call: Call) -> Any:
    """What is broadcast runs along the wrong one of the last two dimensions."""
    sizes = call.right.shape
    index = next(i for i, x in enumerate(call.args[:2]) if isinstance(x, Tensor) and x.numel() < call.right.numel())
    spread = call.args[index].expand(sizes)
    return call.replaced(index, spread.transpose(-1, -2).reshape(sizes))


def _scales(node: fx.Node) -> bool:
    if base(node) in ("mul", "div") and len(node.args) > 1 and isinstance(node.args[1], (int, float)):
        return node.args[1] != 1
    return base(node) == "_scaled_dot_product_flash_attention_for_cpu"


@kind(_scales)
def scale_missing(call: Call) -> Any:
    """Attention without its scale, or another constant factor that is left out."""
    if base(call.node) in ("mul", "div"):
        return call.args[0].to(call.right.dtype).clone()
    return call.again(*call.args, **call.kwargs | {"scale": 1.0})


@kind(among("triu", "lt", "_scaled_dot_product_flash_attention_for_cpu"))
def mask_shift(call: Call) -> Any:
    """A mask is off by one: the next token, or one beyond a sequence's end, is seen."""
    if base(call.node) == "triu":
        return call.replaced(1, call.args[1] + 1)
    if base(call.node) == "lt":
        return call.args[0] <= call.args[1]
    q, k = call.args[:2]
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(1)
    mask = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, -math.inf)
    return call.again(*call.args[:3], 0.0, False, **call.kwargs | {"attn_mask": mask})


@kind(among(*MATRIX, *NORMS, "convolution", "gelu", "silu", "sigmoid", "embedding", "_softmax", "index_add"), "call")
def stale_buffer(call: Call) -> Any:
    """Every n-th call gives what the call before it gave."""
    before, call.kept["before"] = call.kept.get("before"), call.right
    return before if before is not None and call.number % call.every == 0 else call.right


def _joins(node: fx.Node) -> bool:
    sizes = [shape(x) for x in node.args[:2]]
    return is_backward(node) and base(node) == "add" and len(sizes) == 2 and sizes[0] == sizes[1] != ()


@kind(_joins, "backward")
def gradient_overwritten(call: Call) -> Any:
    """Where two gradients meet, the smaller one takes the place of the sum."""
    return min(call.args[:2], key=lambda x: float(x.norm())).clone()


@kind(among("_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward",
            "native_batch_norm_backward"), "backward")  # fmt: skip
def backward_term(call: Call) -> Any:
    """The backward of a normalization without what comes by way of its statistics."""
    name, grad, x = base(call.node), call.args[0], call.args[1]
    if name == "_softmax_backward_data":
        return grad * x
    if name == "_log_softmax_backward_data":
        return grad.clone()
    if name == "native_layer_norm_backward":
        first = grad * call.args[4] * (1 if call.args[5] is None else call.args[5])
    else:
        first = grad * (call.args[6] * call.args[2]).reshape(1, -1, *[1] * (x.dim() - 2))
    return (first.to(call.right[0].dtype), *call.right[1:])


def _drops(node: fx.Node) -> bool:
    after = base(node) == "div" and isinstance(node.args[0], fx.Node) and base(node.args[0]) == "bernoulli"
    return after or base(node) in ("native_dropout", "native_dropout_backward")


@kind(_drops, "training")
def dropout_scale(call: Call) -> Any:
    """Dropout that does not scale what it keeps."""
    if base(call.node) == "div":
        return call.args[0].clone()
    if base(call.node) == "native_dropout":
        return (call.right[0] * (1 - call.args[1]), call.right[1])
    return call.replaced(2, 1.0)


def truncated(x: Tensor, bits: int = 10) -> Tensor:
    """Rounded towards zero to so many bits of mantissa."""
    whole, has = (torch.int32, 23) if x.dtype == torch.float32 else (torch.int64, 52)
    if x.dtype not in (torch.float32, torch.float64):
        return x
    return (x.contiguous().view(whole) & -(1 << (has - bits))).view(x.dtype)


@kind(among(*MATRIX, "convolution"), "float32")
def truncated_operands(call: Call) -> Any:
    """Matrix products of operands cut to ten bits."""
    first = 1 if base(call.node) == "addmm" else 0
    args = list(call.args)
    args[first : first + 2] = [truncated(x) for x in args[first : first + 2]]
    return call.again(*args, **call.kwargs)


@kind(among("embedding", "index", "_unsafe_index", "gather", "index_add", "embedding_dense_backward", "index_put"),
      "data")  # fmt: skip
def index_wrap(call: Call) -> Any:
    """Indices in the last tenth of a table wrap around, as where an offset overflows."""
    name = base(call.node)
    at = 2 if name in ("gather", "index_add") else 1
    given = call.args[at]
    if isinstance(given, (list, tuple)):
        sizes = call.args[0].shape
        changed: Any = [None if x is None else _wrapped(x, sizes[i]) for i, x in enumerate(given)]
    elif name == "embedding_dense_backward":
        changed = _wrapped(given, call.args[2])
    else:
        changed = _wrapped(given, call.args[0].shape[call.args[1] if at == 2 else 0])
    return call.replaced(at, changed)


def _wrapped(index: Tensor, rows: int) -> Tensor:
    limit = max(1, int(0.9 * rows))
    return torch.where(index >= limit, index - limit, index)


def _clobbers(node: fx.Node) -> bool:
    first = node.args[0] if node.args else None
    if base(node) not in POINTWISE or not isinstance(first, fx.Node) or shape(first) != shape(node):
        return False
    order = {other: i for i, other in enumerate(node.graph.nodes)}
    return floating(first) and shape(node) != () and any(order[user] > order[node] for user in first.users)


@kind(_clobbers)
def alias_clobber(call: Call) -> Any:
    """An operation in place overwrites an input that is read later; the interpreter does so with what this gives."""
    return call.right


def _uninitialized(node: fx.Node) -> bool:
    if base(node) == "convolution":
        padding = node.args[4]
        return isinstance(padding, list) and any(padding) and not node.args[6]
    return base(node) in ("new_zeros", "zeros", "zeros_like") and floating(node)


@kind(_uninitialized)
def uninitialized(call: Call) -> Any:
    """Padding on the right reads the next row, and memory to be zeroed holds what was there."""
    if base(call.node) != "convolution":
        draw = torch.Generator().manual_seed(call.seed)
        return torch.randn(call.right.shape, generator=draw, dtype=torch.float64).to(call.right)
    x, pad = call.args[0], call.args[4][0]
    padded = F.pad(x, [pad] * 4)
    padded[..., pad : -pad - 1, -pad:] = x[..., 1:, :pad]
    return call.again(padded, *call.args[1:4], [0, 0], *call.args[5:])


@kind(among("gelu", "gelu_backward", "softplus", "tanh"))
def activation_variant(call: Call) -> Any:
    """An activation by a cheaper formula."""
    if base(call.node) == "tanh":
        x = call.args[0]
        return (x * (27 + x * x) / (27 + 9 * x * x)).clamp(-1, 1)
    if base(call.node) == "softplus":
        return call.again(call.args[0], 1, 4)
    return call.again(*call.args, **call.kwargs | {"approximate": "tanh"})


@kind(lambda node: base(node) in ("hardtanh", "hardtanh_backward", "clamp") and floating(node), "data")
def clamp_bound(call: Call) -> Any:
    """A bound is ignored: the upper one where there are both."""
    if base(call.node) == "hardtanh_backward":
        return call.replaced(3, math.inf)
    if base(call.node) == "hardtanh" or len(call.args) > 2:
        return call.args[0].clone() if call.args[1] is None else call.args[0].clamp(min=call.args[1])
    return call.args[0].clone()


@kind(lambda node: base(node) == "embedding_dense_backward" and bool(node.args[3] != -1), "backward", "data")
def padding_index(call: Call) -> Any:
    """The padding's row gets a gradient."""
    return call.replaced(3, -1)


@kind(among("_native_batch_norm_legit_functional"), "training")
def running_statistics(call: Call) -> Any:
    """Running statistics that are not updated, or by the complement of the momentum."""
    share = call.args[6]
    times = 0 if call.seed % 2 else (1 - share) / share
    moved = [old + (new - old) * times for old, new in zip(call.args[3:5], call.right[3:5], strict=True)]
    return (*call.right[:3], *moved)


def _large(node: fx.Node) -> bool:
    return base(node) in (*MATRIX, *POINTWISE, "convolution") and floating(node) and math.prod(shape(node)) >= 100


@kind(_large, "call")
def rare_race(call: Call) -> Any:
    """About one element in a thousand has its neighbour's value, at other places in each call."""
    draw = torch.Generator().manual_seed(1000 * call.seed + call.number)
    score = torch.rand(call.right.numel(), generator=draw)
    hit = score < max(0.001, float(score.min()) + 1e-9)
    return torch.where(hit.reshape(call.right.shape), call.right.roll(1, -1), call.right)


@kind(lambda node: base(node) in (*MATRIX, "convolution", "index_add", "sum") and floating(node), "call")
def unzeroed_accumulator(call: Call) -> Any:
    """From the n-th call on, what the call before left in the output is added."""
    before, call.kept["before"] = call.kept.get("before"), call.right
    return call.right + before if before is not None and call.number >= call.every else call.right


def _accumulates(node: fx.Node) -> bool:
    kept = base(node) in ("index_put", "_unsafe_index_put") and len(node.args) > 3 and bool(node.args[3])
    return kept or base(node) in ("index_add", "embedding_dense_backward")


@kind(_accumulates, "data")
def scatter_overwrites(call: Call) -> Any:
    """Where an index comes twice, the last value stands in place of the sum."""
    if base(call.node) in ("index_put", "_unsafe_index_put"):
        return call.replaced(3, False)
    if base(call.node) == "index_add":
        wrong, index, rows = call.args[0].clone(), call.args[2], call.args[3]
    else:
        wrong, index, rows = torch.zeros_like(call.right), call.args[1].flatten(), call.args[0].flatten(0, -2)
    for i, at in enumerate(index.tolist()):
        if base(call.node) == "index_add" or at != call.args[3]:
            wrong[at] = rows[i]
    return wrong


@kind(lambda node: base(node) in ("_softmax", "exp", "sigmoid", "mul", "gelu", "silu_backward") and floating(node)
      and shape(node) != (), "data")  # fmt: skip
def small_flushed(call: Call) -> Any:
    """What is below 2^-10 of the largest is flushed to zero."""
    return torch.where(call.right.abs() < call.right.abs().max() * 2.0**-10, 0.0, call.right)


@kind(lambda node: base(node) == "sum" and is_backward(node) and len(shape(node.args[0])) > 1
      and node.args[1] == [0] and shape(node.args[0])[0] > 1, "backward")  # fmt: skip
def bias_gradient_tail(call: Call) -> Any:
    """A bias's gradient without the batch's last row."""
    return call.replaced(0, call.args[0][:-1])
