"""Panels that show errors where they are: the whole tensor as a matrix, and the surroundings of the worst element."""

from collections.abc import Sequence
from typing import Any

import numpy
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from inductor_debug.stages.drawing import log_axis, shorten
from inductor_debug.stages.tensor_pictures.canvas import Canvas, Zoom

MARKS = {
    "nan": ("#ff00cc", "NaN on one side"),
    "infinite": ("#ff7700", "infinity on one side"),
    "both_nan": ("#b9a6e8", "NaN on both sides"),
    "equal": ("#dddddd", "no difference"),
}
"""What has no place on the scale of errors → its color, and what it is."""

_FEW = 150
"""Up to so many cells that are not finite get a ring each, because one cell alone is a pixel or two."""


def whole(axes: Any, canvas: Canvas, shape: Sequence[int], worst: list[int] | None) -> None:
    """The canvas in true indices of the matrix; the worst element gets a ring.

    Args:
        axes: matplotlib's.
        canvas: the errors by cell.
        shape: the tensor's.
        worst: index of the worst element, one number a dimension; None for no ring.
    """
    height, width = canvas.error.shape
    rows, columns = height * canvas.block[0], width * canvas.block[1]
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    _matrix(axes, canvas, extent)
    axes.set_xlim(-0.5, canvas.matrix_shape.columns - 0.5)
    axes.set_ylim(canvas.matrix_shape.rows - 0.5, -0.5)
    if worst is not None:
        flat = int(numpy.ravel_multi_index(tuple(worst), tuple(shape))) if worst else 0
        row, column = divmod(flat, canvas.matrix_shape.columns)
        axes.scatter([column], [row], marker="o", s=150, facecolors="none", edgecolors="red", clip_on=False)
    row_label, column_label = canvas.matrix_shape.labels(shape)
    axes.set_ylabel(row_label)
    axes.set_xlabel(column_label)
    cell = "an element" if canvas.block == (1, 1) else f"the largest of {canvas.block[0]}×{canvas.block[1]}"
    axes.set_title(f"|test − reference|, whole; a cell is {cell}")


def close(axes: Any, zoom: Zoom, *, worst: bool) -> None:
    """The elements around an element, the worst one if there is one, in their own indices."""
    row, column = [0, 0, *zoom.starts][-2:]
    height, width = zoom.error.shape
    _matrix(axes, zoom, (column - 0.5, column + width - 0.5, row + height - 0.5, row - 0.5))
    spans = zip(zoom.dims, zoom.starts, zoom.sizes, strict=True)
    names = [f"dim {dim}: {start} … {start + size - 1}" for dim, start, size in spans]
    axes.set_xlabel(names[-1] if names else "the one element")
    if len(names) > 1:
        axes.set_ylabel(names[0])
    else:
        axes.set_yticks([])
    if worst:
        at = [0, 0, *(zoom.index[dim] for dim in zoom.dims)][-2:]
        axes.scatter([at[1]], [at[0]], marker="s", s=60, facecolors="none", edgecolors="red", linewidths=1.5)
    axes.set_title(
        shorten(f"{'around the worst' if worst else 'no difference, the first elements'}: {zoom.slices}", 70)
    )


def _matrix(axes: Any, found: Canvas | Zoom, extent: tuple[float, float, float, float]) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    error = found.error
    base = numpy.ones((*error.shape, 4))
    equal = error == 0
    cells = {"equal": equal, "both_nan": equal & found.both_nan, "infinite": found.infinite, "nan": found.nan}
    for name, where in cells.items():
        base[where] = to_rgba(MARKS[name][0])
    axes.imshow(base, extent=extent, aspect="auto", interpolation="nearest")
    shown = numpy.isfinite(error) & (error > 0)
    if shown.any():
        top = error[shown].max()
        norm = LogNorm(max(min(error[shown].min(), top / 10), top * 1e-12), top)
        image = axes.imshow(
            numpy.ma.masked_where(~shown, error), norm=norm, extent=extent, aspect="auto", interpolation="nearest"
        )
        bar = axes.figure.colorbar(image, ax=axes, pad=0.02, fraction=0.06)
        log_axis(bar.ax.yaxis)
    for name in ("nan", "infinite"):
        rows, columns = numpy.nonzero(getattr(found, name))
        if 0 < rows.size <= _FEW:
            left, right, bottom, top = extent
            x = left + (columns + 0.5) * (right - left) / error.shape[1]
            y = top + (rows + 0.5) * (bottom - top) / error.shape[0]
            axes.scatter(x, y, s=30, facecolors="none", edgecolors=MARKS[name][0], linewidths=1.2)


def legend(axes: Any, found: Sequence[Canvas | Zoom], *, worst: bool) -> None:
    """What the colors outside the scale mean; only those that are there."""
    present = {name: any(getattr(each, name).any() for each in found) for name in MARKS if name != "equal"}
    present["equal"] = any(((each.error == 0) & ~each.both_nan).any() for each in found)
    handles: list[Any] = [Patch(color=MARKS[name][0], label=MARKS[name][1]) for name in MARKS if present[name]]
    if worst:
        ring = Line2D([], [], marker="o", color="none", markeredgecolor="red", markersize=8, label="the worst element")
        handles.append(ring)
    if handles:
        axes.legend(handles=handles, loc="lower left", ncols=2, frameon=False, borderaxespad=0.0)
