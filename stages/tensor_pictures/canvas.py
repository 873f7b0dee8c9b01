"""The errors of a tensor of any rank as a matrix of block maxima, and the true neighborhood of its worst element."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch

from inductor_debug.stages.numerics.comparable import comparable
from inductor_debug.stages.numerics.one_pass import chunks
from inductor_debug.stages.numerics.readers import Side, region
from inductor_debug.stages.tensor_pictures.errors import CHUNK, Piece, errors_of

CELLS = 256
"""Rows and columns of a canvas at most; a cell shows the largest error of the block that it stands for."""

ZOOM = 32
"""Rows and columns of a zoom at most; a zoom along one dim shows twice as many elements."""


class MatrixShape(NamedTuple):
    """A matrix for a tensor, row-major: dims before ``cut`` are its rows, the others its columns.

    ``cut`` is None where the flat tensor is cut into rows of ``columns`` elements instead, the last perhaps partial.
    """

    rows: int
    columns: int
    cut: int | None

    def labels(self, shape: Iterable[int]) -> tuple[str, str]:
        """What the rows and the columns stand for, in words."""
        sizes = list(shape)
        if self.cut is None:
            return f"flat index ÷ {self.columns}", f"flat index mod {self.columns}"
        return _describe_dims(sizes, 0, self.cut), _describe_dims(sizes, self.cut, len(sizes))


def _describe_dims(sizes: list[int], first: int, stop: int) -> str:
    if first == stop:
        return ""
    if stop - first == 1:
        return f"dim {first}: 0 … {sizes[first] - 1}"
    names, lengths = "×".join(map(str, range(first, stop))), "×".join(map(str, sizes[first:stop]))
    return f"dims {names} flattened: {lengths}"


def matrix_shape(shape: Iterable[int]) -> MatrixShape:
    """The most nearly square matrix for ``shape``; a long vector, or one with very long rows, is cut flat."""
    sizes = list(shape)
    total = math.prod(sizes)
    options = [MatrixShape(math.prod(sizes[:cut]), math.prod(sizes[cut:]), cut) for cut in range(len(sizes) + 1)]
    best = min(options, key=lambda option: abs(math.log(max(option.rows, 1) / max(option.columns, 1))))
    vector = min(best.rows, best.columns) == 1 and max(best.rows, best.columns) > CELLS
    if total and (vector or best.columns > CHUNK):
        columns = min(math.ceil(math.sqrt(total)), CHUNK)
        return MatrixShape(math.ceil(total / columns), columns, None)
    return best


@dataclass
class Canvas:
    """Largest errors by block.

    Attributes:
        matrix_shape: the matrix that the cells are blocks of.
        block: rows and columns of a block; blocks at the end may be smaller.
        error: float64 ``[height, width]``, each at most :data:`CELLS`; infinite where an error is, NaN where the matrix
            has no element.
        nan, infinite: where a block has an element that is NaN, or infinite, on one side alone.
        both_nan: where it has one that is NaN on both sides.
        top: the largest finite error.
        magnitude: the largest finite |reference|.
        worst: flat index of the first of the largest errors, infinite ones included; None where no sides differ.
    """

    matrix_shape: MatrixShape
    block: tuple[int, int]
    error: numpy.ndarray
    nan: numpy.ndarray
    infinite: numpy.ndarray
    both_nan: numpy.ndarray
    top: float = 0.0
    magnitude: float = 0.0
    worst: int | None = None


def canvas_of(reference: Side, test: Side) -> Canvas:
    """One pass over two sides of one shape, in memory bounded by the chunk, the canvas and what readers keep."""
    reference, test = comparable(reference), comparable(test)
    found = matrix_shape(reference.shape)
    block = (math.ceil(found.rows / CELLS) or 1, math.ceil(found.columns / CELLS) or 1)
    size = (math.ceil(found.rows / block[0]), math.ceil(found.columns / block[1]))
    cells = torch.full((4, math.prod(size)), -1.0, dtype=torch.float64)  # errors, and where each kind of mark is
    top = magnitude = largest = 0.0
    worst = None
    for offset, pieces in chunks([reference, test], CHUNK):
        piece = errors_of(*pieces)
        flat = torch.arange(offset, offset + len(piece.error))
        cell = flat // found.columns // block[0] * size[1] + flat % found.columns // block[1]
        for layer, values in zip(cells, (piece.error, *piece.marks), strict=False):
            layer.scatter_reduce_(0, cell, values.double(), "amax")
        highest = piece.error.max().item()
        if highest > largest:
            largest, worst = highest, offset + int(piece.error.argmax().item())
        tops = _finite_tops(piece, highest)
        top, magnitude = max(top, tops[0]), max(magnitude, tops[1])
    cells = cells.view(4, *size)
    error = torch.where(cells[0] < 0, math.nan, cells[0]).numpy()
    nan, infinite, both_nan = (cells[1:] > 0).numpy()
    return Canvas(found, block, error, nan, infinite, both_nan, top, magnitude, worst)


def _finite_tops(piece: Piece, highest: float) -> tuple[float, float]:
    """The largest finite error and |reference|; ``highest`` is the largest error of all."""
    if piece.finite:
        return highest, piece.magnitude.max().item()
    if math.isinf(highest):
        highest = piece.error.nan_to_num(posinf=0.0).max().item()
    return highest, piece.magnitude.nan_to_num(0.0, 0.0).max().item()


@dataclass
class Zoom:
    """Errors around one element, along the one or two longest dims.

    Attributes:
        index: of that element.
        dims: what the rows and the columns are; one dim for a tensor with no other, none for a single element.
        starts: index of the first row and the first column on those dims.
        error, nan, infinite, both_nan: as of :class:`Canvas`, but by element; 2-D (one row for a single dim).
    """

    index: list[int]
    dims: list[int]
    starts: list[int]
    error: numpy.ndarray
    nan: numpy.ndarray
    infinite: numpy.ndarray
    both_nan: numpy.ndarray

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements along each of the dims."""
        return self.error.shape[-len(self.dims) :] if self.dims else ()

    @property
    def slices(self) -> str:
        """The region as one would index it, e.g. ``[3, 96:128, 40:72]``."""
        words = [str(position) for position in self.index]
        for dim, start, length in zip(self.dims, self.starts, self.sizes, strict=True):
            words[dim] = f"{start}:{start + length}"
        return f"[{', '.join(words)}]"


def zoom_of(reference: Side, test: Side, index: list[int]) -> Zoom:
    """The errors around ``index``, which is always inside."""
    reference, test = comparable(reference), comparable(test)
    sizes = reference.shape
    longest = sorted(range(len(sizes)), key=lambda dim: (sizes[dim], dim), reverse=True)[:2]
    dims = sorted(dim for dim in longest if sizes[dim] > 1)
    most = ZOOM if len(dims) == 2 else 2 * ZOOM
    where: list[int | slice] = list(index)
    starts = []
    for dim in dims:
        start = max(0, min(index[dim] - most // 2, sizes[dim] - most))
        where[dim] = slice(start, min(start + most, sizes[dim]))
        starts.append(start)
    left, right = region(reference, where), region(test, where)
    shape = (1, *left.shape)[-2:] if left.ndim else (1, 1)
    piece = errors_of(left.reshape(-1), right.reshape(-1))
    marks = [mark.view(shape).numpy() for mark in piece.marks or torch.zeros(3, *shape, dtype=torch.bool)]
    return Zoom(index, dims, starts, piece.error.double().view(shape).numpy(), *marks)
