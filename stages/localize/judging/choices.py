"""Indices that stand for the values they point at: among equal values each choice is right.

Which of equal values ``sort``, ``topk``, ``max`` and their like point at is left open by torch, and differs between
devices. So an index is held against the value that it chooses, and not against another index.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.torch_private import pytree, schema_of

FLAT = ("argmax", "argmin", "argsort")
"""Operators that give indices alone; others name that result."""

_SOURCE = "_chosen_from"


def noted(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> None:
    """Note with the indices that an operator gave what it chose from; of others nothing.

    Args:
        target: the operator.
        args, kwargs: what it took, floating tensors in float64.
        results: what it gave.
    """
    schema = schema_of(target)
    alone = schema.name.partition("::")[2] in FLAT
    places = [place for place, item in enumerate(schema.returns) if alone or item.name == "indices"]
    names = [argument.name for argument in schema.arguments]
    if not places or "dim" not in names or not isinstance(args[0], torch.Tensor):
        return
    dim = names.index("dim")
    along = args[dim] if dim < len(args) else kwargs.get("dim", schema.arguments[dim].default_value)
    leaves = pytree.tree_leaves(results)
    for place in places:
        setattr(leaves[place], _SOURCE, (args[0], along))


def settled(chosen: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Right indices: the chosen one wherever it points at a value that is equal to that of ``right``.

    Args:
        chosen: integers.
        right: as an operator gave it; unless :func:`noted` saw it, it is returned as it is.
    """
    if not hasattr(right, _SOURCE) or chosen.shape != right.shape or torch.equal(chosen, right):
        return right
    source, dim = getattr(right, _SOURCE)
    mine, other = chosen, right
    if dim is None or not source.dim():
        source, dim, mine, other = source.reshape(-1), 0, chosen.reshape(-1), right.reshape(-1)
    elif right.dim() < source.dim():
        mine, other = chosen.unsqueeze(dim), right.unsqueeze(dim)
    if mine.shape[dim] > 1 and bool((mine.sort(dim).values.diff(dim=dim) == 0).any()):
        return right  # it chose one of them twice
    size = source.shape[dim]
    values, wanted = source.gather(dim, mine.clamp(0, size - 1)), source.gather(dim, other)
    same = (mine >= 0) & (mine < size) & ((values == wanted) | (values.isnan() & wanted.isnan()))
    if mine.shape[dim] > 1 and not bool(same.all()):
        return right  # a mixture of two orders is none
    return torch.where(same, mine, other).reshape(right.shape)
