"""A right backend with worse kernels than eager's: operations decomposed, sums added one term after another.

On the CPU eager adds up normalizations in a wider format, and sums in blocks. A compiler may decompose those
operations, and add one term after another in float32. Nothing of the tool is used here but the list of decompositions.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inductor_debug.stages.torch_internals.operators import normalizations

aten = torch.ops.aten

_SUMS, _MEANS = (aten.sum.default, aten.sum.dim_IntList), (aten.mean.default, aten.mean.dim)

MOST_STEPS = 4096
"""Additions one after another in one sum on a device; of more terms so many running sums are kept that there are no
more. On the CPU code that is not vectorized adds all terms one after another."""

_PIECE = 1 << 22
"""Elements that are added up at a time."""


class Decomposed(TorchDispatchMode):
    """Runs each operation by its core ATen decomposition where it has one, and adds sums one term after another.

    Random operations stay whole, so that they draw what they draw in the reference.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        decomposition = _table().get(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if func is aten.var_mean.correction and _adds(args[0], result[0]):
            return _sequential_variance(args[0], args[1] if len(args) > 1 else None, result, **kwargs)
        if func in (*_SUMS, *_MEANS) and _adds(args[0], result):
            dims = args[1] if len(args) > 1 and args[1] else range(args[0].dim())
            total = sequential_sum(args[0], dims, result.dtype)
            count = args[0].numel() // result.numel() if func in _MEANS else 1
            return (total / count).to(result.dtype).view(result.shape)
        if func is aten.convolution_backward.default and result[2] is not None and _adds(args[0], result[2]):
            others = [dim for dim in range(args[0].dim()) if dim != 1]
            return *result[:2], sequential_sum(args[0], others).to(result[2].dtype)
        return result


def _adds(terms: torch.Tensor, total: torch.Tensor) -> bool:
    """Whether this is a sum of floating-point numbers, over more than one term."""
    return terms.is_floating_point() and total.is_floating_point() and 0 < total.numel() < terms.numel()


def _sequential_variance(
    terms: torch.Tensor, dims: Sequence[int] | None, like: Sequence[torch.Tensor], *, correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Variance and mean by two sequential sums, in the shapes and the dtype of ``like``, which eager gave."""
    dims = [dim % terms.dim() for dim in dims or range(terms.dim())]
    count = terms.numel() // like[0].numel()
    shape = [1 if dim in dims else size for dim, size in enumerate(terms.shape)]
    mean = sequential_sum(terms, dims).view(shape) / count
    squares = sequential_sum((terms.to(mean.dtype) - mean).square(), dims)
    degrees = max(count - (1 if correction is None else correction), 0)
    return (squares / degrees).to(like[0].dtype).view(like[0].shape), mean.to(like[1].dtype).view(like[1].shape)


def sequential_sum(terms: torch.Tensor, dims: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The sum of ``terms`` over ``dims`` one by one, in row-major order.

    Args:
        terms: floating, any shape, at least one element.
        dims: dimensions to sum over; negative ones count from the end.

    Returns:
        In the shape of the dimensions that stay, in the format that was added in: the widest of float32, the terms'
        and ``dtype``.
    """
    summed = [dim % terms.dim() for dim in dims]
    kept = [dim for dim in range(terms.dim()) if dim not in summed]
    shape = [terms.shape[dim] for dim in kept]
    wide = torch.promote_types(torch.promote_types(terms.dtype, torch.float32), dtype)
    rows = terms.detach().permute(*kept, *summed).reshape(*shape, -1).to(wide)
    if rows.device.type == "cpu":
        return _in_order(rows.reshape(-1, rows.shape[-1]).numpy()).view(shape)
    lanes = -(-rows.shape[-1] // MOST_STEPS)
    rows = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % lanes))
    return _running(_running(rows.view(*shape, -1, lanes)).unsqueeze(-1)).squeeze(-1)


def _in_order(rows: numpy.ndarray) -> torch.Tensor:
    """The sums over the last dimension. NumPy accumulates in the array's own format, torch in float64."""
    total = numpy.zeros(len(rows), rows.dtype)
    step = max(1, _PIECE // len(rows))
    for first in range(0, rows.shape[1], step):
        piece = rows[:, first : first + step].copy()
        piece[:, 0] += total
        total = numpy.add.accumulate(piece, axis=1)[:, -1]
    return torch.from_numpy(total.copy())


def _running(values: torch.Tensor) -> torch.Tensor:
    """The sum over the last but one dimension, one by one."""
    first, *others = values.unbind(-2)
    total = first.clone()
    for value in others:
        total += value
    return total


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Core ATen decompositions of operations that draw no random numbers."""
    table = {**torch.export.default_decompositions(), **normalizations()}
    drawing = torch.Tag.nondeterministic_seeded
    return {operator: found for operator, found in table.items() if drawing not in operator.tags}
