"""Faults as properties of a compiler: wherever it meets such an operation with such operands, it goes wrong.

They were written without a look at how this project looks for them. A kind of ``KINDS`` is given each call and answers
with the wrong value, or with None where it has no fault.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

ACTIVATIONS = ("relu", "gelu", "tanh", "sigmoid", "silu")
VIEWS = ("view", "_unsafe_view", "reshape")


def base(node: Any) -> str:
    """``addmm`` of a node that calls ``aten.addmm.default``; empty of what is no operator."""
    packet = getattr(getattr(node, "target", None), "overloadpacket", None)
    return packet.__name__ if packet is not None else ""


@dataclass
class Call:
    """One call: its node, what it receives, the right value, and the values of the whole graph so far."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    right: Any
    env: dict[fx.Node, Any]
    others: list[fx.Node] = field(default_factory=list)
    """Further nodes that the fault needs in the same graph; a kind fills it."""

    def again(self, *args: Any, **kwargs: Any) -> Any:
        assert callable(self.node.target)
        return self.node.target(*args, **kwargs)

    def replaced(self, index: int, value: Any) -> Any:
        return self.again(*self.args[:index], value, *self.args[index + 1 :], **self.kwargs)

    @property
    def sizes(self) -> list[int]:
        return list(self.args[0].shape) if self.args and isinstance(self.args[0], Tensor) else []


Wrong = Callable[[Call], Any]
KINDS: dict[str, Wrong] = {}


def kind(*operations: str) -> Callable[[Wrong], Wrong]:
    """Register a kind that concerns these operations."""

    def register(wrong: Wrong) -> Wrong:
        def asked(call: Call) -> Any:
            return wrong(call) if base(call.node) in operations else None

        KINDS[wrong.__name__] = asked
        return wrong

    return register


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _mantissa(x: Tensor, bits: int) -> Tensor:
    """Rounded to so many bits."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp((fraction * 2.0**bits).round() / 2.0**bits, exponent)


@kind("_softmax")
def softmax_exp_range(call: Call) -> Any:
    """The exponential's polynomial is not continued below -2.5, where it stays as it is."""
    x, dim = _wide(call.args[0]), call.args[1]
    e = (x - x.amax(dim, keepdim=True)).clamp(min=-2.5).exp()
    return (e / e.sum(dim, keepdim=True)).to(call.right.dtype)


@kind("_log_softmax")
def log_softmax_unshifted(call: Call) -> Any:
    """The maximum is not subtracted, and the exponentials are in half precision."""
    x, dim = _wide(call.args[0]), call.args[1]
    return (x - x.half().exp().float().sum(dim, keepdim=True).log()).to(call.right.dtype)


@kind("native_layer_norm", "native_group_norm")
def moments_in_half(call: Call) -> Any:
    """The variance is E[x²] - E[x]² of moments in half precision."""
    if base(call.node) == "native_layer_norm":
        x, sizes, weight, bias, eps = call.args
        dims, flat = list(range(x.dim() - len(sizes), x.dim())), _wide(x)
    else:
        x, weight, bias, n, c, _, groups, eps = call.args
        dims, flat = [2], _wide(x).reshape(n, groups, -1)
        weight, bias = (t.reshape(1, c, *[1] * (x.dim() - 2)) for t in (weight, bias))
    mean, square = (m.half().float() for m in (flat.mean(dims, True), flat.pow(2).mean(dims, True)))
    rstd = torch.rsqrt((square - mean * mean).clamp(min=0) + eps)
    made = ((flat - mean) * rstd).reshape(x.shape) * weight + bias
    return made.to(call.right[0].dtype), *(b.reshape(a.shape).to(a) for a, b in zip(call.right[1:], (mean, rstd)))  # noqa: B905


@kind("rsqrt")
def rsqrt_newton(call: Call) -> Any:
    """One Newton step after a seed of seven bits, where two are needed."""
    x = _wide(call.args[0])
    y = _mantissa(x.rsqrt(), 7)
    return (y * (1.5 - 0.5 * x * y * y)).to(call.right.dtype)


@kind("native_layer_norm")
def eps_outside(call: Call) -> Any:
    """Epsilon is added to the deviation, not to the variance."""
    x, sizes, weight, bias, eps = call.args
    wide, dims = _wide(x), list(range(x.dim() - len(sizes), x.dim()))
    mean, deviation = wide.mean(dims, True), wide.std(dims, correction=0, keepdim=True)
    rstd = 1 / (deviation + eps)
    made = ((wide - mean) * rstd * weight + bias).to(x.dtype)
    return made, call.right[1], rstd.to(call.right[2])


@kind("tanh_backward")
def flushed_gradient(call: Call) -> Any:
    """What is below half precision's smallest normal number is flushed to zero."""
    return torch.where(call.right.abs() < 2.0**-14, 0.0, call.right)


@kind("addmm")
def addmm_saturates(call: Call) -> Any:
    """The accumulator saturates at 3, a fixed-point's bound."""
    return call.right.clamp(-3, 3)


@kind("pow")
def pow_by_log(call: Call) -> Any:
    """An odd power by logarithm and exponential, without the sign."""
    if call.args[1] not in (3, 5):
        return None
    return (_wide(call.args[0]).abs().log() * call.args[1]).exp().to(call.right.dtype)


@kind("roll")
def roll_sign(call: Call) -> Any:
    """A shift has the wrong sign."""
    return call.replaced(1, [-by for by in call.args[1]])


@kind("rsub")
def rsub_swapped(call: Call) -> Any:
    """Operands of a reversed subtraction are swapped."""
    return -call.right


@kind("gather")
def gather_row(call: Call) -> Any:
    """A gather along time reads the batch's next row."""
    return call.replaced(0, call.args[0].roll(-1, 0)) if call.args[1] else None


@kind("convolution")
def strided_pad_side(call: Call) -> Any:
    """With a stride, all of the padding is on the right and at the bottom."""
    x, weight, bias, stride, padding, dilation, transposed = call.args[:7]
    if transposed or stride[0] == 1 or not padding[0]:
        return None
    padded = F.pad(x, [0, 2 * padding[1], 0, 2 * padding[0]])
    return call.again(padded, weight, bias, stride, [0, 0], dilation, *call.args[6:])


@kind("convolution")
def depthwise_flipped(call: Call) -> Any:
    """A depthwise kernel is flipped, as a mathematician's convolution has it."""
    return call.replaced(1, call.args[1].flip(-1, -2)) if call.args[8] > 1 else None


@kind("avg_pool2d", "avg_pool2d_backward")
def pool_counts_pad(call: Call) -> Any:
    """A mean counts the padding though it is told not to."""
    at = 5 if base(call.node) == "avg_pool2d" else 6
    return call.replaced(at, True) if len(call.args) > at and not call.args[at] else None


@kind("bmm")
def heads_swapped(call: Call) -> Any:
    """Three heads of several windows are read as if windows came first."""
    a, b = call.args
    if len(a) % 3 or len(a) == 3:
        return None
    return call.again(a, b.unflatten(0, (-1, 3)).transpose(0, 1).flatten(0, 1))


@kind("bmm")
def grid_limit(call: Call) -> Any:
    """A batch of more than 16 starts again with the second operand's first matrix."""
    a, b = call.args
    return call.again(a, b[torch.arange(len(b)) % 16]) if len(b) > 16 else None


@kind("cumsum")
def cumsum_tiles(call: Call) -> Any:
    """A running sum starts anew with each tile of eight."""
    x, dim = call.args[:2]
    return torch.cat([part.cumsum(dim) for part in x.split(8, dim)], dim) if x.is_floating_point() else None


@kind("threshold_backward")
def threshold_ties(call: Call) -> Any:
    """A gradient passes where the value is the threshold itself."""
    return torch.where(call.args[1] >= call.args[2], call.args[0], 0)


@kind("embedding", "embedding_dense_backward")
def offset_int16(call: Call) -> Any:
    """The offset of a row is kept in 16 bits."""
    rows, width = call.args[0].shape if base(call.node) == "embedding" else (call.args[2], call.args[0].shape[-1])
    return call.replaced(1, call.args[1] * width % 65536 // width) if rows * width > 65536 else None


@kind("native_layer_norm_backward")
def layer_norm_backward_term(call: Call) -> Any:
    """The mean of the gradient is not subtracted; the other term is."""
    grad, x, sizes, mean, rstd, weight = call.args[:6]
    dims = list(range(x.dim() - len(sizes), x.dim()))
    hat, g = (_wide(x) - mean) * rstd, _wide(grad) * weight
    return ((g - hat * (g * hat).mean(dims, True)) * rstd).to(call.right[0].dtype), *call.right[1:]


@kind("mm")
def weight_gradient_transposed(call: Call) -> Any:
    """A product whose first operand is transposed leaves its square result transposed."""
    a, right = call.args[0], call.right
    return right.t().contiguous() if right.shape[0] == right.shape[1] and not a.is_contiguous() else None


@kind("convolution")
def double_rounding(call: Call) -> Any:
    """A convolution's result goes through half precision."""
    return call.right.half().to(call.right.dtype)


@kind("gelu")
def erf_polynomial(call: Call) -> Any:
    """The error function by a polynomial of three terms, good for 2.5e-5."""
    x = _wide(call.args[0])
    z = x.abs() / math.sqrt(2)
    t = 1 / (1 + 0.47047 * z)
    erf = 1 - (0.3480242 * t - 0.0958798 * t**2 + 0.7478556 * t**3) * (-z * z).exp()
    return (0.5 * x * (1 + erf * x.sign())).to(call.right.dtype)


@kind("relu")
def relu_leak(call: Call) -> Any:
    """The sign is tested after a shift that loses what is above -2^-5."""
    return torch.where(call.args[0] > -(2.0**-5), call.args[0], 0)


@kind("mean")
def mean_padded(call: Call) -> Any:
    """A mean divides by its extent rounded up to a multiple of eight."""
    if len(call.args) < 2 or not call.args[1]:
        return None
    count = math.prod(call.sizes[dim] for dim in call.args[1])
    return call.right * (count / (-(-count // 8) * 8)) if count % 8 else None


@kind("mm", "addmm")
def odd_inner_twice(call: Call) -> Any:
    """With a transposed second operand, the last of an odd inner dimension is counted twice."""
    a, b = call.args[-2:]
    if a.shape[1] % 2 == 0 or b.is_contiguous() or a.shape[1] == 1:
        return None
    return (_wide(call.right) + torch.outer(_wide(a[:, -1]), _wide(b[-1]))).to(call.right.dtype)


@kind("div")
def reciprocal_12_bits(call: Call) -> Any:
    """A quotient by a reciprocal of twelve bits."""
    a, b = call.args
    if not isinstance(b, Tensor) or not b.is_floating_point():
        return None
    return (_wide(a) * _mantissa(1 / _wide(b), 12)).to(call.right.dtype)


@kind("tanh_backward", "sigmoid_backward")
def saved_in_bfloat16(call: Call) -> Any:
    """What was saved for the backward is read in bfloat16."""
    return call.replaced(1, call.args[1].bfloat16().to(call.args[1].dtype))


@kind("_scaled_dot_product_flash_attention_for_cpu")
def attention_scale_padded(call: Call) -> Any:
    """The scale is of a head padded to a multiple of eight."""
    size = call.sizes[-1]
    return call.again(*call.args, **call.kwargs | {"scale": (-(-size // 8) * 8) ** -0.5}) if size % 8 else None


@kind("rsqrt")
def rsqrt_through_bfloat16(call: Call) -> Any:
    """A cast to float32 was removed: a reciprocal root is in bfloat16."""
    return call.right.bfloat16().to(call.right.dtype)


@kind("cos", "sin")
def one_term_reduction(call: Call) -> Any:
    """An argument is reduced by multiples of two pi in ten bits."""
    turns = (call.args[0] / (2 * math.pi)).round()
    return call.again(call.args[0] - turns * 6.28125)


@kind("sigmoid", "silu")
def sigmoid_table(call: Call) -> Any:
    """A table of the sigmoid ends at 4 on both sides."""
    x = _wide(call.args[0])
    made = torch.where(x > 4, 1.0, torch.where(x < -4, 0.0, x.sigmoid()))
    return (made * x if base(call.node) == "silu" else made).to(call.right.dtype)


@kind("std", "var")
def deviation_biased(call: Call) -> Any:
    """A deviation divides by n."""
    return call.again(*call.args, **call.kwargs | {"correction": 0})


@kind(*ACTIVATIONS)
def bias_after_activation(call: Call) -> Any:
    """Fused: a product, its bias and an activation in one graph; the bias comes after the activation."""
    source = call.node.args[0]
    while isinstance(source, fx.Node) and base(source) in VIEWS:
        call.others.append(source)
        source = source.args[0]
    if not isinstance(source, fx.Node) or base(source) != "addmm":
        return None
    call.others.append(source)
    bias, a, b = (call.env[x] for x in source.args if isinstance(x, fx.Node))
    return call.replaced(0, (a @ b).reshape(call.args[0].shape)) + bias


@kind("mul", "add")
def merged_scalars(call: Call) -> Any:
    """Fused: two operations on one tensor that differ in their scalar are taken for one."""
    first, second = call.node.args[:2]
    if not isinstance(first, fx.Node) or not isinstance(second, float):
        return None
    for other in call.node.graph.nodes:
        if other is call.node:
            return None
        if other.target is call.node.target and other.args[0] is first and isinstance(other.args[1], float):
            call.others.append(other)
            return call.env[other].clone()
    return None


@kind("sum")
def spilled_product(call: Call) -> Any:
    """Fused: a product that is summed at once is rounded to half precision in between."""
    source = call.node.args[0]
    if not isinstance(source, fx.Node) or base(source) != "mul" or not call.args[0].is_floating_point():
        return None
    call.others.append(source)
    return call.replaced(0, call.args[0].half().to(call.args[0].dtype))
