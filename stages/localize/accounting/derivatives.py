"""The derivative of one node of a graph, in float64; see :mod:`stages.localize.accounting.linear` for many."""

from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch import fx

from inductor_debug.models import attention
from inductor_debug.models.float64 import formulas
from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.localize.judging.evaluation import Unknown, exactly, is_floating, taken_by, value_of
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.sides.rounded import MANTISSA, decompositions, widened

aten = torch.ops.aten


class NoDerivative(Exception):
    """An operation can't be differentiated; the message says why."""


def derivative(
    node: fx.Node,
    values: Mapping[fx.Node, Any],
    seen: Seen,
    cotangents: Mapping[int, torch.Tensor],
    asked: Container[fx.Node],
) -> dict[fx.Node, torch.Tensor]:
    """What cotangents of an operation's results become for what it takes.

    Args:
        node: a call.
        values: of the nodes that it takes.
        seen: the run that it is of.
        cotangents: by number of the result.
        asked: nodes whose cotangents are wanted.

    Returns:
        Of each of those that it takes.

    Raises:
        NoDerivative: torch has none, or it stops within the operation.
        Unknown: the operation can't be computed.
    """
    given = {source: widened(values[source]) for source in taken_by(node)}
    leaves = {source: value.detach().requires_grad_() for source, value in given.items() if is_floating(value)}
    given |= leaves
    with torch.enable_grad():
        results = pytree.tree_leaves(value_of(node, given, seen.owner, _differentiably, seen.drawn))
    pairs = [(results[place], cotangent) for place, cotangent in cotangents.items() if is_floating(results[place])]
    wanted = [source for source in leaves if source in asked]
    if not wanted or not pairs:
        return {}
    stopped = [result for result, _ in pairs if not result.requires_grad]
    if stopped:
        if node.target in CONSTANT:
            return {}
        raise NoDerivative("its results do not lead back to what it takes")
    try:
        gradients = torch.autograd.grad(
            [result for result, _ in pairs],
            [leaves[source] for source in wanted],
            [cotangent.reshape(result.shape) for result, cotangent in pairs],
            allow_unused=True,
        )
    except RuntimeError as error:
        raise NoDerivative(str(error).partition("\n")[0]) from error
    return {source: gradient for source, gradient in zip(wanted, gradients, strict=True) if gradient is not None}


CONSTANT = {
    *(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.sign.default),
    *(aten.new_zeros.default, aten.new_full.default, aten.new_empty.default, aten.empty_like.default),
    *(aten.floor.default, aten.ceil.default, aten.round.default, aten.trunc.default),
}
"""Operations whose results do not change with a value that they take, or only where they jump."""


def _differentiably(target: Any, args: Any, kwargs: Any) -> Any:
    formula = FORMULAS.get(target) or decompositions().get(target) or getattr(target, "impl_aten", None)
    if formula is None:
        return exactly(target, args, kwargs)
    args, kwargs = pytree.tree_map(lambda item: torch.float64 if _narrow(item) else item, (args, kwargs))
    args = [list(item) if isinstance(item, list) else item for item in args]  # of a graph they can't be written into
    try:
        result = formula(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unknown(f"{target} raised {str(error).partition(chr(10))[0]}") from error
    return exactly(target, args, kwargs) if result is NotImplemented else result


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in MANTISSA


def _itself(x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    return x


def _copied(target: torch.Tensor, source: torch.Tensor, *rest: Any) -> torch.Tensor:
    return source.expand_as(target)


def _converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


def _normalized(
    x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, variance: torch.Tensor, momentum: float, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Batch norm by running statistics, of which torch's own has no gradient."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    result = (x - mean.view(shape)) * (variance.view(shape) + eps).rsqrt()
    result = result if weight is None else result * weight.view(shape)
    return result if bias is None else result + bias.view(shape), x.new_empty(0), x.new_empty(0)


FORMULAS: dict[Any, Callable[..., Any]] = {
    aten.detach.default: _itself,
    aten.alias.default: _itself,
    aten.lift_fresh_copy.default: _itself,
    aten.copy_.default: _copied,
    aten.copy.default: _copied,
    torch.ops.prims.convert_element_type.default: _converted,
    aten._native_batch_norm_legit_no_training.default: _normalized,
    **formulas(),
    **attention.formulas(),
}
"""What autograd stops at, or has no derivative of."""
