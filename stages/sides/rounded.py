"""The reference computed as rightly, and rounded otherwise: each operation in float64, its result rounded at random.

Eager is one right computation of many, and its distance from gold is its kernels': some add up in a wider format,
some one term after another. A noise floor should not hang on that. So a case is run in its own dtypes with each
operation computed in float64 from what it received. What it gives is rounded stochastically to the dtype that eager
gives. That is up or down, with the probabilities that make the mean right; what the dtype holds stays as it is (Croci
et al. 2022, "Stochastic rounding: implementation, error analysis and applications"). Another seed is another draw of
the noise.

Sums inside an operation (products, convolutions, reductions) round as well, and factorizations of matrices; see
:mod:`stages.sides.sum_noise`.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.float64 import substituted
from inductor_debug.models.torch_private import TorchDispatchMode, pytree, schema_of
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.sum_noise import FACTORIZATIONS, TERMS, added, deviation
from inductor_debug.stages.torch_internals.operators import normalizations

MANTISSA = {torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
"""Stored bits of the formats that are rounded to."""

WIDE = {
    **dict.fromkeys(MANTISSA, torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}
"""Format → the one that stands for exact numbers."""

POOL = 1 << 18
"""Random numbers that are drawn once; elements take a run of them from a place that is drawn for it."""

_AS_IT_IS = {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view}

PIECE = 1 << 15
"""Elements that are rounded at a time, so that they stay in a core's cache."""


class Rounded(TorchDispatchMode):
    """Runs each operation in float64, and rounds its results stochastically to their dtypes.

    An operation that has a core ATen decomposition is run as that. Operations that draw random numbers run as they are,
    so that they draw what they draw in the reference; so do those that lack float64.

    Args:
        seed: of the rounding. No generator of the process or of the model is used.
        device: where the case is.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self._places = random.Random(seed)
        generator = torch.Generator(device).manual_seed(seed)
        self._bits = torch.empty(POOL, dtype=torch.int64, device=device).random_(generator=generator)
        self._masked: dict[int, torch.Tensor] = {}
        self._normal = torch.empty(POOL, dtype=torch.float64, device=device).normal_(generator=generator)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = schema_of(func)
        views = any(returned.alias_info is not None and not returned.alias_info.is_write for returned in schema.returns)
        if views or _AS_IT_IS.intersection(func.tags):
            return func(*args, **kwargs)
        decomposition = decompositions().get(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if schema.is_mutable:
            return self._in_place(func, args, kwargs)
        return self._functional(func, args, kwargs)

    def _functional(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = func(*args, **kwargs)
        results, form = pytree.tree_flatten(like)
        if not any(map(_is_rounded, results)):
            return like
        if func in FACTORIZATIONS:
            args, kwargs = pytree.tree_map(self._disturbed, (args, kwargs))
        exact = in_float64(func, args, kwargs)
        return like if exact is None else pytree.tree_unflatten(self._each(func, exact, results), form)

    def of_exact(self, func: Any, exact: tuple[Any, Any, Any], dtypes: Sequence[torch.dtype | None]) -> Any:
        """What an operation gives, rounded, where float64 of it is known.

        Args:
            func: one that :func:`rounds_once`.
            exact: its arguments, keywords and results in float64; left as they are.
            dtypes: what its results are rounded to; None for one that is no tensor.
        """
        wide, form = pytree.tree_flatten(exact[2])
        own = [result if dtype is None else result.clone(memory_format=torch.contiguous_format)
               for result, dtype in zip(wide, dtypes, strict=True)]  # fmt: skip
        like = [result if dtype is None else result.new_empty((), dtype=dtype).expand(result.shape)
                for result, dtype in zip(own, dtypes, strict=True)]  # fmt: skip
        return pytree.tree_unflatten(self._each(func, (*exact[:2], own), like), form)

    def _each(self, func: Any, exact: tuple[Any, Any, Any], results: Sequence[Any]) -> list[Any]:
        """The results of an operation, rounded to the dtypes of ``results``; those of ``exact`` are written into."""
        wide_args, wide_kwargs, wide = exact
        terms = TERMS.get(func)
        noise = {} if terms is None else terms(*wide_args, **wide_kwargs)
        return [
            self._rounded(result, other, noise.get(number))
            for number, (result, other) in enumerate(zip(results, pytree.tree_leaves(wide), strict=True))
        ]

    def _disturbed(self, value: Any) -> Any:
        """What a factorization receives, a matrix with the noise of its algorithm."""
        if not _is_rounded(value) or value.dim() < 2:
            return value
        exact = value.double().contiguous()
        self._add(exact, deviation(exact))
        return exact

    def _in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation that writes into one tensor and gives it back; any other runs as it is."""
        arguments = schema_of(func).arguments
        values = [
            args[number] if number < len(args) else kwargs.get(item.name) for number, item in enumerate(arguments)
        ]
        written = [
            value
            for item, value in zip(arguments, values, strict=True)
            if item.alias_info is not None and item.alias_info.is_write
        ]
        target = written[0] if len(written) == 1 and len(schema_of(func).returns) <= 1 else None
        exact = in_float64(func, args, kwargs) if _is_rounded(target) else None
        if target is None or exact is None or getattr(exact[2], "shape", None) != target.shape:
            return func(*args, **kwargs)
        target.copy_(self._rounded(target, exact[2], None))
        return target

    def _rounded(self, like: Any, exact: Any, sums: tuple[Any, ...] | None) -> Any:
        """``exact`` in the dtype and with the strides of ``like``, rounded; ``like`` where it is not rounded.

        Args:
            sums: what :mod:`stages.sides.sum_noise` tells of the sums inside.
        """
        if not _is_rounded(like) or not isinstance(exact, torch.Tensor) or exact.dtype != torch.float64:
            return like
        exact = exact.contiguous()  # of this operation alone, so that it may be written into
        if exact.is_cuda or not math.isfinite(float(exact.sum())):
            exact.masked_fill_(exact.isnan(), math.nan)  # CUDA's has every bit set: one more is -0
        if sums is not None:
            self._add_noise(exact, *sums)
        kept = -(1 << (52 - MANTISSA[like.dtype]))
        for piece, first in self._pieces(exact.view(torch.int64)):
            piece.add_(self._below(~kept)[first : first + len(piece)]).bitwise_and_(kept)
        return torch.empty_like(like).copy_(exact)

    def _add_noise(
        self, exact: torch.Tensor, squares: torch.Tensor, count: Any, apart: torch.Tensor | None = None
    ) -> None:
        """Add the noise of sums in place, see :func:`~stages.sides.sum_noise.added`."""
        if apart is not None or isinstance(count, torch.Tensor):
            self._add(exact, added(exact, squares, count, apart))
            return
        squares, done = squares.expand_as(exact).reshape(-1), 0
        for piece, first in self._pieces(exact):
            size = added(piece, squares[done : done + len(piece)], count)
            piece.addcmul_(self._normal[first : first + len(piece)], size)
            done += len(piece)

    def _add(self, exact: torch.Tensor, size: torch.Tensor) -> None:
        """Add normal noise of a standard deviation at each element, in place."""
        size = size.expand_as(exact).reshape(-1)
        done = 0
        for piece, first in self._pieces(exact):
            piece.addcmul_(self._normal[first : first + len(piece)], size[done : done + len(piece)])
            done += len(piece)

    def _below(self, most: int) -> torch.Tensor:
        """Random whole numbers from 0 to ``most``, which is one less than a power of two."""
        if most not in self._masked:
            self._masked[most] = self._bits & most
        return self._masked[most]

    def _pieces(self, exact: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
        """A tensor's elements in pieces, each with a place in a pool of random numbers that has as many."""
        for piece in exact.view(-1).split(PIECE):
            yield piece, self._places.randrange(POOL - len(piece) + 1)


def rounded_reference(base: Case, index: int, run: Callable[[str, Case], sides.Side]) -> sides.Side:
    """One draw of the noise; the case is left as found.

    Args:
        base: the reference's case.
        index: number of the draw, added to the case's seed.
        run: gives one side, from its name and the case to run as it stands.
    """
    with base.preserved(), Rounded(base.seed + index, base.device):
        return run("rounded reference", base)


def _is_rounded(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in MANTISSA
        and value.layout == torch.strided
        and value.numel() > 0
    )


def in_float64(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Arguments, keywords and results in float64; None for an operation that has neither that nor an equal formula."""
    wide_args, wide_kwargs = pytree.tree_map(widened, (args, kwargs))
    try:
        with substituted():
            return wide_args, wide_kwargs, func(*wide_args, **wide_kwargs)
    except torch.OutOfMemoryError:  # a RuntimeError too, and no sign of what the operation has
        raise
    except (RuntimeError, TypeError, ValueError):
        return None


def widened(value: Any) -> Any:
    """A copy of a floating tensor in float64, float64 for a floating dtype, likewise complex128; the rest as it is."""
    if isinstance(value, torch.Tensor):
        return value.to(WIDE[value.dtype], copy=True) if value.dtype in WIDE else value
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def rounds_once(func: Any) -> bool:
    """Whether :class:`Rounded` computes an operation in float64 from what it receives, and then rounds its results."""
    known = func in decompositions() or func in FACTORIZATIONS or schema_of(func).is_mutable
    return not known and not _AS_IT_IS.intersection(func.tags)


ONE_SUM = {torch.ops.aten.embedding_dense_backward.default}
"""Operations whose decomposition rounds once too, and takes several times the memory of a large result."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Core ATen decompositions of operations that draw no random numbers."""
    table = {**torch.export.default_decompositions(), **normalizations()}
    drawing = torch.Tag.nondeterministic_seeded
    return {
        operator: found for operator, found in table.items() if drawing not in operator.tags and operator not in ONE_SUM
    }
