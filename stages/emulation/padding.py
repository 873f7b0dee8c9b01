"""Does what lies in the padding of a tile reach the result?

An accelerator that keeps tensors in tiles pads their last dimensions to the tile's sizes. A kernel that runs over whole
tiles and minds no mask reads the padding. So an operation whose result depends on more than its own position is run
twice: as it is, and over operands padded to whole tiles with NaN (``poison``) or zero. It leaks where the padded
result, cut to the unpadded one's shape, has a NaN that the unpadded one does not have. An operation that only chooses
values (sort, topk) leaks where a value differs. Zeros may change a value by only one part in the number of its terms,
less than another order of additions does in the result's dtype. So with zeros both are run in float64. The emulation
goes on with the unpadded result, so that one leak does not hide the next.

What can't leak is not run twice: elementwise operations read their own position alone; views, copies, concatenation
and look-ups move what is valid, and each result is padded anew. Of a matmul, only padding along the contraction can
reach the result. A convolution is taken as the matmul with unfolded patches that it equals; its zero padding is the
kernel's own.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from inductor_debug.models.torch_private import HigherOrderOperator, OpOverload, pytree
from inductor_debug.stages.emulation.products import PRODUCTS

aten = torch.ops.aten


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


REDUCTIONS = _names(
    "sum mean prod amax amin max min argmax argmin var std var_mean std_mean logsumexp linalg_vector_norm norm "
    "_softmax _safe_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data cumsum cumprod "
    "logcumsumexp sort topk kthvalue median mode native_layer_norm native_layer_norm_backward "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_batch_norm_backward avg_pool2d "
    "max_pool2d_with_indices "
)
"""Packets that read more than their own position, and run over padded operands as they do over unpadded ones."""

MOVING = _names(
    "_to_copy arange as_strided_scatter bernoulli cat clone constant_pad_nd copy copy_ detach embedding empty "
    "empty_like empty_permuted expand_copy eye fill flip floor_divide full full_like gather index index_fill "
    "index_put index_select lift_fresh_copy linspace masked_fill masked_select native_dropout native_dropout_backward "
    "new_empty new_empty_strided new_full new_ones new_zeros nonzero one_hot ones ones_like rand rand_like randint "
    "randn randn_like randperm repeat roll scalar_tensor scatter select_backward select_scatter slice_backward "
    "slice_scatter split_with_sizes_copy stack sym_size sym_stride sym_numel tril triu unfold_backward where zeros "
    "zeros_like "
)
"""Packets that make, move or choose values, and so read no padding, and elementwise ones that torch does not tag."""

SELECTING = _names("amax amin max min sort topk kthvalue median mode max_pool2d_with_indices")
"""Those of :data:`REDUCTIONS` that choose among their operand's values, and so round nothing."""

UNIT_ROUNDOFF = 2.0**-53
"""Of float64, in which an operation is run to see whether zeros in the padding change it."""

CHANGED = UNIT_ROUNDOFF**0.5
"""Change over the result's root mean square from which zeros are said to reach it. One zero more changes a mean of N
values by 1 / N of it; another order of N additions changes it by N unit roundoffs. This is half way between them on a
logarithmic scale, for every N."""

HALF_TO_FLOAT = ("_softmax", "_log_softmax")
"""Take as third argument whether half precision becomes float32, which float64 does not."""

LAYER_NORMS = ("native_layer_norm", "native_layer_norm_backward")
BATCH_NORMS = ("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
               "native_batch_norm_backward")  # fmt: skip


def packet_of(target: Any) -> str:
    """``mean`` of ``aten.mean.dim``; empty for what is no ATen operation."""
    packet = getattr(target, "overloadpacket", None)
    return "" if packet is None else str(packet.__name__)


def padded(tensor: Tensor, tile: Sequence[int], fill: float) -> Tensor:
    """The tensor with its last dimensions, as many as ``tile`` has sizes, filled up to multiples of those."""
    amounts: list[int] = []
    for size, unit in zip(reversed(tensor.shape), reversed(tile), strict=False):
        amounts += [0, -size % unit]
    return torch.nn.functional.pad(tensor, amounts, value=fill) if any(amounts) else tensor


def any_padded(arguments: Any, tile: Sequence[int]) -> bool:
    """Whether a floating tensor among (nested) arguments does not fill its tiles; integers are given no padding."""
    tensors = [item for item in pytree.tree_leaves(arguments) if isinstance(item, Tensor) and item.is_floating_point()]
    sizes = (pair for item in tensors for pair in zip(reversed(item.shape), reversed(tile), strict=False))
    return any(size % unit for size, unit in sizes)


def reads_beyond(target: Any) -> bool | None:
    """Whether an operation reads more than its own position and can be run over padding; None where that is unknown.

    Known are :data:`REDUCTIONS` and products, which do, and :data:`MOVING`, elementwise operations and views, which
    do not.
    """
    packet = packet_of(target)
    if target in PRODUCTS or packet in REDUCTIONS:
        return True
    if not isinstance(target, OpOverload):
        return None if isinstance(target, HigherOrderOperator) else False  # else a number is computed
    known = torch.Tag.pointwise in target.tags or packet in MOVING or target.is_view
    return False if known else None


def leaked(
    target: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    unpadded: Any,
    tile: Sequence[int],
    fill: float,
) -> int:
    """Elements of the result that what lies in the padding reaches.

    Args:
        target: an operation for which :func:`reads_beyond` is True.
        args, kwargs: its arguments, tensors in them unpadded.
        unpadded: what it gave with them.
        tile: sizes of the last dimensions' tiles.
        fill: what lies in the padding.

    Raises:
        RuntimeError, ValueError, IndexError, TypeError: the operation can't be run over padded operands.
    """
    if target in PRODUCTS:
        return _leaked_along_contraction(target, args, unpadded, tile, fill)
    if not any_padded((args, kwargs), tile):
        return 0
    packet = packet_of(target)
    if packet in ("argmax", "argmin") and (args[1] if len(args) > 1 else kwargs.get("dim")) is None:
        raise ValueError("it counts positions over all dimensions, which padding changes")
    exact = packet in SELECTING
    moved = 0.0
    if not exact and not math.isnan(fill):
        wide, kwargs = pytree.tree_map(_wide, (list(args), kwargs))
        args = [*wide[:2], False] if packet in HALF_TO_FLOAT else wide
        unpadded, moved = target(*args, **kwargs), _reordered((args, kwargs))
    new_args, new_kwargs = _padded_arguments(packet, args, kwargs, tile, fill)
    result = target(*new_args, **new_kwargs)
    pairs = list(zip(pytree.tree_leaves(result), pytree.tree_leaves(unpadded), strict=True))
    if packet == "max_pool2d_with_indices":
        pairs = pairs[:1]  # the indices count positions of the padded image
    return sum(
        _count_affected(found, wanted, fill, exact, moved) for found, wanted in pairs if isinstance(wanted, Tensor)
    )


def _wide(value: Any) -> Any:
    """An argument of an operation that is to run in float64."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _reordered(arguments: Any) -> float:
    """What another order of additions may move a result by: as many unit roundoffs of the largest operand as a result
    may have terms."""
    tensors = [item for item in pytree.tree_leaves(arguments) if isinstance(item, Tensor) and item.is_floating_point()]
    terms = max(item.numel() for item in tensors)
    finite = (torch.nan_to_num(item, nan=0.0, posinf=0.0, neginf=0.0) for item in tensors)
    return UNIT_ROUNDOFF * terms * max(float(item.abs().max()) if item.numel() else 0.0 for item in finite)


def _padded_arguments(
    packet: str, args: Sequence[Any], kwargs: dict[str, Any], tile: Sequence[int], fill: float
) -> tuple[list[Any], dict[str, Any]]:
    rank = args[0].dim()

    def pad(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() == 0:
            return value
        if packet in BATCH_NORMS and value.dim() == 1 and rank > 2:
            return value  # one value a channel, which is not among the tiled dimensions
        if packet in LAYER_NORMS and value.dim() == rank > 1 and value.shape[-1] == 1:
            return padded(value, (*tile[:-1], 1), fill)  # mean and deviation, one a row
        return padded(value, tile, fill)

    new = [pad(value) for value in args]
    if packet in LAYER_NORMS:
        at = 1 if packet == "native_layer_norm" else 2
        sizes = list(args[at])
        for back in range(1, min(len(sizes), len(tile)) + 1):
            sizes[-back] = math.ceil(sizes[-back] / tile[-back]) * tile[-back]
        new[at] = sizes
    return new, {key: pad(value) for key, value in kwargs.items()}


def _leaked_along_contraction(target: Any, args: Sequence[Any], unpadded: Any, tile: Sequence[int], fill: float) -> int:
    """The contraction's length is the same in all operands, so both are padded to the larger of their tiles' sizes."""
    terms = _contractions(target, args)
    unit = max(tile)
    short = [amount for amount in terms if amount % unit]
    if not short or not (math.isnan(fill) or math.isinf(fill)):
        return 0  # a zero in the padding adds nothing
    packet = packet_of(target)
    if packet in ("convolution", "convolution_backward"):
        # every element of the result sums over all terms of its contraction
        results = [item for item in pytree.tree_leaves(unpadded) if isinstance(item, Tensor)]
        affected = results[:2] if packet == "convolution_backward" else results
        return sum(int((~item.isnan()).sum()) for item, amount in zip(affected, terms, strict=False) if amount % unit)
    left, right = (args[position] for position in PRODUCTS[target].operands)
    if packet == "linear":
        right = right.t()
    right = right.unsqueeze(-1) if right.dim() == 1 else right
    extra = -terms[0] % unit
    wide = torch.nn.functional.pad(left, (0, extra), value=fill)
    high = torch.nn.functional.pad(right, (0, 0, 0, extra), value=fill)
    return _count_affected(torch.matmul(wide, high).reshape(unpadded.shape), unpadded, fill)


def _contractions(target: Any, args: Sequence[Any]) -> list[int]:
    """Terms that each result sums over: one for a product, two (input's and weight's gradient) for a backward."""
    packet = packet_of(target)
    if packet == "convolution":
        weight = args[1]
        return [weight.shape[0] // args[8] if args[6] else weight[0].numel()]
    if packet == "convolution_backward":
        gradient, _, weight = args[:3]
        mask, groups = args[10], args[9]
        both = [weight.shape[0] // groups, gradient[0, 0].numel()]
        return [amount for amount, wanted in zip(both, mask, strict=False) if wanted]
    return [args[PRODUCTS[target].operands[0]].shape[-1]]


def _count_affected(found: Tensor, unpadded: Tensor, fill: float, exact: bool = False, moved: float = 0.0) -> int:
    """Elements of ``unpadded`` for which ``found``, of the same or larger sizes, has another value.

    Args:
        found, unpadded: with padded operands and without; in float64 where ``fill`` is no NaN.
        fill: what lies in the padding.
        exact: every other value counts; else NaN alone, or with another fill what is no other order of additions.
        moved: what that may move an element by.
    """
    for dim, size in enumerate(unpadded.shape):
        found = found.narrow(dim, 0, size)
    if not unpadded.is_floating_point():
        return int((found != unpadded).sum())
    if exact:
        return int(((found != unpadded) & ~(found.isnan() & unpadded.isnan())).sum())
    if math.isnan(fill):
        return int((found.isnan() & ~unpadded.isnan()).sum())
    if unpadded.numel() == 0:
        return 0
    difference = torch.nan_to_num(found - unpadded).abs()
    scale = float(torch.nan_to_num(unpadded, posinf=0.0, neginf=0.0).square().mean().sqrt())
    return int((difference > CHANGED * scale + moved).sum())
