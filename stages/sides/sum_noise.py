"""The rounding noise of sums that are added up in float32: of products, convolutions and reductions.

n additions one after another, of terms t in no particular order, round n partial sums s. Each leaves an error of the
variance s² u² / 5.5, where u = 2**-24 (rounding to nearest; 5.5 is the mean over mantissas spread as by Benford). The
partial sums' squares add up to n (sum(t²) / 6 + sum(t)² / 3). Compilers and libraries add in blocks and lanes, or in a
wider format, and have less.

Terms that come in runs of one value round alike, and their errors add up: a loop over the gradient behind a pooling was
measured at eight times that. So on the CPU, where code may add one term after another, the sums of reductions are also
made by such a loop. Where it is farther off, the noise is as large.

A factorization of a matrix has no such sums for each result. Its algorithms are backward stable: what they give is
exact for a matrix that differs by their rounding (Higham 2002, "Accuracy and Stability of Numerical Algorithms", ch. 9,
10, 19). So the noise is in what it receives, :func:`deviation`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy
import torch

aten = torch.ops.aten

ROUNDOFF = 2.0**-24
"""Unit roundoff of float32, in which sums are added up whatever the dtype."""

UNLIKELY = 1e-6
"""How seldom a draw of the noise may be smaller than is assumed."""

PIECE = 1 << 22
"""Elements that a loop adds up at a time."""

Noise = dict[int, tuple[Any, ...]]
"""By the number of a result: the sum of the squared terms of each of its elements, how many those are, and what a loop
makes of them less their sum, where that is known."""


def added(total: torch.Tensor, squares: torch.Tensor, count: Any, apart: torch.Tensor | None = None) -> torch.Tensor:
    """Standard deviation of the noise of sums.

    Args:
        total: the sums, float64.
        squares: the sums of the squared terms, in the shape of ``total``; any floating dtype.
        count: terms of a sum: a number, or a tensor that can be expanded to that shape.
        apart: the error of a loop at each element; where its RMS is above the deviation's, the deviation is as large.

    Returns:
        In the shape of ``total``; 0 where the squares overflow.
    """
    deviation = _variance_of(squares.double(), total.square(), count).sqrt().nan_to_num(nan=0.0, posinf=0.0)
    if apart is None:
        return deviation
    return deviation * (apart.norm() / deviation.norm()).nan_to_num(nan=1.0, posinf=1.0).clamp(min=1.0)


def _variance_of(squares: Any, total_squared: Any, count: Any) -> Any:
    return (ROUNDOFF**2 / 5.5) * (count - 1) * (squares / 6 + total_squared / 3)


@dataclass(frozen=True)
class Sums:
    """The sums that a product of matrices is made of.

    Attributes:
        squares: the mean of their sums of squared terms.
        largest: that of the row or column where it is largest.
        count: terms of each.
        elements: how many sums there are in all, and in a row or column at least.
    """

    squares: float
    largest: float
    count: int
    elements: tuple[int, int]

    def floors(self, total_squared: float) -> tuple[float, float]:
        """RMS of the noise, and what the maximum of a draw of it is not below; 0 where squares overflow.

        Args:
            total_squared: the mean square of the sums.
        """
        rms, part = (float(_variance_of(*squares, self.count)) ** 0.5
                     for squares in ((self.squares, total_squared), (self.largest, 0.0)))  # fmt: skip
        most = max(size * _least_maximum(count) for size, count in zip((rms, part), self.elements, strict=True))
        return (rms, most) if math.isfinite(rms + most) else (0.0, 0.0)


def _least_maximum(count: int) -> float:
    """Standard deviations that the largest of as many normal numbers has, but for once in a million; where they have
    several, of the RMS of these: it is larger then."""
    share = math.log(UNLIKELY) / -(2 * count)
    return max(1.0, NormalDist().inv_cdf(1 - share)) if share < 1 else 1.0


def sums_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sums | None:
    """The sums of a product of matrices, or of batches of them, from its arguments; None of anything else."""
    places = PRODUCTS.get(func)
    if places is None or not all(args[place].numel() for place in places):
        return None
    left, right = _squares(*(args[place].detach() for place in places))
    rows = (left @ right.mean(-1, keepdim=True)).double()
    columns = (left.mean(-2, keepdim=True) @ right).double()
    alpha = kwargs.get("alpha", 1) ** 2
    each = rows.numel() * right.shape[-1], min(left.shape[-2], right.shape[-1])
    largest = max(float(rows.max()), float(columns.max()))
    return Sums(alpha * float(rows.mean()), alpha * largest, left.shape[-1], each)


def _squares(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """In float32, which is enough for a size of noise and has fast kernels."""
    return [tensor.float().square() for tensor in tensors]


def _product(left: torch.Tensor, right: torch.Tensor) -> Noise:
    first, second = _squares(left, right)
    return {0: (first @ second, left.shape[-1])}


def _product_and_more(
    _: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Noise:
    squares, count = _product(left, right)[0]
    return {0: (squares * alpha**2, count)}


def _dims(x: torch.Tensor, dims: Any) -> list[int]:
    given = [dims] if isinstance(dims, int) else list(dims or [])
    return given or list(range(x.dim()))


def _count(x: torch.Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _apart(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor | None:
    """The sum over ``dims`` in float32, one term after another in row-major order, less the exact one; flattened.

    None on a device, where no code adds so, and of a single term.
    """
    if x.device.type != "cpu" or _count(x, dims) < 2:
        return None
    summed = sorted(dim % x.dim() for dim in dims)
    kept = [dim for dim in range(x.dim()) if dim not in summed]
    rows = x.permute(*kept, *summed).reshape(-1, _count(x, dims))
    total = numpy.zeros(len(rows), numpy.float32)
    with numpy.errstate(all="ignore"):
        for piece in rows.split(max(1, PIECE // max(len(rows), 1)), 1):
            terms = piece.to(torch.float32, copy=True).numpy()
            terms[:, 0] += total
            total = numpy.add.accumulate(terms, axis=1)[:, -1]
    return torch.from_numpy(total.copy()).double() - rows.sum(1)


def _sum(x: torch.Tensor, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Noise:
    dims = _dims(x, dims)
    squares = x.square().sum(dims, keepdim)
    apart = _apart(x, dims)
    return {0: (squares, _count(x, dims), None if apart is None else apart.view(squares.shape))}


def _mean(x: torch.Tensor, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Noise:
    squares, count, apart = _sum(x, dims, keepdim)[0]
    return {0: (squares / count**2, count, None if apart is None else apart / count)}


def _variance(x: torch.Tensor, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Noise:
    dims = _dims(x, dims)
    free = max(_count(x, dims) - (1 if correction is None else correction), 1)
    squares, count, apart = _sum((x - x.mean(dims, keepdim=True)).square(), dims, keepdim)[0]
    return {0: (squares / free**2, count, None if apart is None else apart / free)}


def _variance_and_mean(x: torch.Tensor, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Noise:
    return {**_variance(x, dims, correction=correction, keepdim=keepdim), 1: _mean(x, dims, keepdim)[0]}


def _cumulative(x: torch.Tensor, dim: int, *, dtype: Any = None) -> Noise:
    if not x.dim():
        return {}
    shape = [1] * x.dim()
    shape[dim] = -1
    return {0: (x.square().cumsum(dim), torch.arange(1, x.shape[dim] + 1, device=x.device).view(shape))}


def _convolution(x: torch.Tensor, weight: torch.Tensor, _: Any, *rest: Any) -> Noise:
    transposed, groups = rest[3], rest[5]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    squares = aten.convolution.default(*_squares(x, weight), None, *rest)
    return {0: (squares, weight.numel() // channels)}


def _convolution_backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> Noise:
    transposed, groups = rest[3], rest[5]
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    places = grad.numel() // grad.shape[1]
    found = aten.convolution_backward.default(*_squares(grad, x, weight), bias, *rest)
    counts = (weight.numel() // channels, places, places)
    return {number: (squares, counts[number]) for number, squares in enumerate(found) if squares is not None}


TERMS: dict[Any, Callable[..., Noise]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.mv.default: _product,
    aten.dot.default: _product,
    aten.addmm.default: _product_and_more,
    aten.baddbmm.default: _product_and_more,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.var.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
    aten.cumsum.default: _cumulative,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
"""Operation → the squared terms of its sums, from its arguments in float64."""

PRODUCTS = {aten.mm.default: (0, 1), aten.bmm.default: (0, 1), aten.addmm.default: (1, 2), aten.baddbmm.default: (1, 2)}
"""Product → the places of the two that are multiplied."""

FACTORIZATIONS = {
    *(aten._linalg_svd.default, aten._linalg_eigh.default, aten._linalg_eigvals.default, aten.linalg_eig.default),
    *(aten.linalg_qr.default, aten.geqrf.default, aten.linalg_householder_product.default, aten.ormqr.default),
    *(aten.linalg_cholesky_ex.default, aten._cholesky_solve_helper.default, aten.cholesky_inverse.default),
    *(aten.linalg_lu_factor_ex.default, aten.linalg_lu.default, aten.linalg_lu_solve.default),
    *(aten.linalg_ldl_factor_ex.default, aten.linalg_ldl_solve.default, aten._linalg_det.default),
    *(aten._linalg_slogdet.default, aten._linalg_solve_ex.default, aten.linalg_inv_ex.default),
    *(aten.linalg_solve_triangular.default, aten.triangular_solve.default, aten.linalg_lstsq.default),
    aten.linalg_matrix_exp.default,
}
"""Operations whose noise is in the matrices that they receive."""


def deviation(matrices: torch.Tensor) -> torch.Tensor:
    """Standard deviation of a factorization's noise in the matrices that it receives.

    As many roundings as the matrix has rows add up in each element, in no particular direction, of values of the size
    that the matrix's elements have.

    Args:
        matrices: [..., rows, columns], float64.

    Returns:
        Of every element of a matrix the same, [..., 1, 1].
    """
    size = matrices.square().mean((-2, -1), keepdim=True).sqrt()
    return ROUNDOFF * max(matrices.shape[-2:]) ** 0.5 * size
