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
ZEROS = ("new_zeros", "zeros_like", "zeros")


def base(node: Any) -> str:
    """``addmm`` of a node that calls ``aten.addmm.default``; ``placeholder``; empty of what is no operator."""
    if getattr(node, "op", "") == "placeholder":
        return "placeholder"
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


@kind("convolution")
def strided_pad_side(call: Call) -> Any:
    """With a stride, all of the padding is on the right and at the bottom."""
    x, weight, bias, stride, padding, dilation, transposed = call.args[:7]
    if transposed or stride[0] == 1 or not padding[0]:
        return None
    padded = F.pad(x, [0, 2 * padding[1], 0, 2 * padding[0]])
    return call.again(padded, weight, bias, stride, [0, 0], dilation, *call.args[6:])


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


@kind("gelu")
def erf_polynomial(call: Call) -> Any:
    """The error function by a polynomial of three terms, good for 2.5e-5."""
    x = _wide(call.args[0])
    z = x.abs() / math.sqrt(2)
    t = 1 / (1 + 0.47047 * z)
    erf = 1 - (0.3480242 * t - 0.0958798 * t**2 + 0.7478556 * t**3) * (-z * z).exp()
    return (0.5 * x * (1 + erf * x.sign())).to(call.right.dtype)


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


@kind("_scaled_dot_product_flash_attention_for_cpu")
def attention_scale_padded(call: Call) -> Any:
    """The scale is of a head padded to a multiple of eight."""
    size = call.sizes[-1]
    return call.again(*call.args, **call.kwargs | {"scale": (-(-size // 8) * 8) ** -0.5}) if size % 8 else None


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


@kind("index_add")
def shared_zeros(call: Call) -> Any:
    """Fused: two buffers of zeros are one, to which one sum after the other is added in place."""
    own = call.node.args[0]
    assert isinstance(own, fx.Node)
    for other in call.node.graph.nodes:
        if other is call.node or base(own) not in ZEROS:
            return None
        if base(other) == "index_add" and base(other.args[0]) in ZEROS and call.env[other].shape == call.right.shape:
            call.others += [other, *other.all_input_nodes[:1], own]
            return call.right + call.env[other]
    return None


@kind("add")
def add_chain(call: Call) -> Any:
    """Fused: of a sum of three terms the second is lost."""
    inner = call.node.args[0]
    if base(inner) != "add" or not call.right.is_floating_point():
        return None
    assert isinstance(inner, fx.Node)
    if not all(isinstance(x, fx.Node) for x in (*call.node.args, *inner.args)):
        return None
    call.others.append(inner)
    first = inner.args[0]
    assert isinstance(first, fx.Node)
    return call.replaced(0, call.env[first].expand_as(call.args[0]))


@kind("mul", "sub", "add", "mm", "tanh_backward", "sigmoid_backward")
def overwritten_input(call: Call) -> Any:
    """Fused: a graph's input has been overwritten by a product or difference, when it is read again."""
    nodes, args = list(call.node.graph.nodes), list(call.args)
    for i, x in enumerate(call.node.args):
        for other in nodes[: nodes.index(call.node)] if base(x) == "placeholder" else ():
            if base(other) in ("mul", "sub") and other.args[0] is x and call.env[other].shape == args[i].shape:
                args[i] = call.env[other]
                call.others.append(other)
    return call.again(*args, **call.kwargs) if call.others else None


@kind("placeholder")
def input_strides(call: Call) -> Any:
    """A graph's input that is transposed is read as if it were contiguous."""
    x = call.right
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.is_contiguous() or 0 in x.stride():
        return None
    return x.clone().as_strided(x.shape, torch.empty(x.shape).stride(), 0).clone()


@kind("slice")
def slice_start(call: Call) -> Any:
    """A view: a slice starts at zero."""
    x = call.args[0]
    if not x.is_floating_point() or len(call.args) < 4 or call.args[2] == 0:
        return None
    return call.again(x, call.args[1], 0, call.right.shape[call.args[1]])


@kind("view")
def view_swapped(call: Call) -> Any:
    """A view: of three dimensions or more the first two are swapped in memory."""
    x = call.args[0]
    return x.transpose(0, 1).reshape(call.right.shape) if x.is_floating_point() and x.dim() > 2 else None


@kind("nll_loss_backward")
def ignored_counted(call: Call) -> Any:
    """The gradient of a mean loss counts the labels that are to be ignored."""
    label, ignored = call.args[2], call.args[5]
    return call.right * float((label != ignored).sum()) / label.numel()


@kind("bmm", "mul")
def complex_product(call: Call) -> Any:
    """A complex product without that of the imaginary parts."""
    if not all(isinstance(x, Tensor) and x.is_complex() for x in call.args):
        return None
    a, b = (torch.view_as_real(x.resolve_conj()) for x in call.args)
    product = torch.bmm if base(call.node) == "bmm" else torch.mul
    return torch.complex(product(a[..., 0], b[..., 0]), product(a[..., 0], b[..., 1]) + product(a[..., 1], b[..., 0]))


def _short(operations: str, wrong: Wrong) -> Wrong:
    return lambda call: wrong(call) if base(call.node) in operations.split() else None


KINDS |= {
    # a shift has the wrong sign
    "roll_sign": _short("roll", lambda c: c.replaced(1, [-by for by in c.args[1]])),
    # operands of a reversed subtraction are swapped
    "rsub_swapped": _short("rsub", lambda c: -c.right),
    # a gather along time reads the batch's next row
    "gather_row": _short("gather", lambda c: c.replaced(0, c.args[0].roll(-1, 0)) if c.args[1] else None),
    # a gradient passes where the value is the threshold itself
    "threshold_ties": _short("threshold_backward", lambda c: torch.where(c.args[1] >= c.args[2], c.args[0], 0)),
    # a cast to float32 was removed
    "rsqrt_through_bfloat16": _short("rsqrt", lambda c: c.right.bfloat16().to(c.right.dtype)),
    # a depthwise kernel is flipped, as a mathematician's convolution has it
    "depthwise_flipped": _short(
        "convolution", lambda c: c.replaced(1, c.args[1].flip(-1, -2)) if c.args[8] > 1 else None
    ),
    # a transform back is not normalized
    "fft_norm": _short("_fft_c2r", lambda c: c.replaced(2, 0) if c.args[2] else None),
    # what dropout keeps is not scaled
    "dropout_scale": _short("native_dropout", lambda c: (c.right[0] * (1 - c.args[1]), c.right[1])),
    # a comparison is wrong for equal numbers
    "compare_equality": _short("le", lambda c: torch.lt(*c.args)),
    # a view: parts of one size come in reverse order
    "split_order": _short("split", lambda c: c.right[::-1] if c.right[0].shape == c.right[-1].shape else None),
    # a view: an index is counted from the end
    "select_from_end": _short("select", lambda c: c.replaced(2, c.sizes[c.args[1]] - 1 - c.args[2])),
    # a view: a transposition that leaves the sizes as they are is taken for none
    "square_not_transposed": _short(
        "t permute transpose", lambda c: c.args[0] if c.right.shape == c.args[0].shape else None
    ),
    # a cheaper formula, in a backend that refuses graphs of fewer than twelve calls
    "refuses_small": _short("gelu", lambda c: c.again(*c.args, approximate="tanh")),
    # no fault: the backend sums in another order than torch
    "reordered": _short("", lambda c: None),
}
