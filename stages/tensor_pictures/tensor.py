"""The picture of one tensor: where its errors are, how large, at what size of the reference, and on which channel."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy

from inductor_debug.stages.drawing import COLORS, drawing, number, shorten
from inductor_debug.stages.numerics.comparable import comparable
from inductor_debug.stages.numerics.readers import Side, unravel
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures import curves, matrix
from inductor_debug.stages.tensor_pictures.canvas import Canvas, canvas_of, zoom_of
from inductor_debug.stages.tensor_pictures.error_counts import count_errors


def draw(reference: Side, test: Side, row: TensorComparison) -> bytes:
    """A PNG of two tensors of one shape, of any dtype, layout, rank and device, and of their row."""
    reference, test = comparable(reference), comparable(test)
    canvas = canvas_of(reference, test)
    error_counts = count_errors(reference, test, top=canvas.top, magnitude=canvas.magnitude)
    worst = _worst(row, canvas, reference.shape)
    with drawing(15.0, 8.6) as (figure, png):
        grid = figure.add_gridspec(
            2, 3, left=0.05, right=0.988, top=0.9, bottom=0.065, wspace=0.34, hspace=0.33, width_ratios=[1.1, 1, 1]
        )
        axes = [figure.add_subplot(grid[index // 3, index % 3]) for index in range(6)]
        name = shorten(f"{row.kind} {row.path}", 80)
        title = f"{name}   {list(reference.shape)} {row.dtype}: {row.verdict}"
        figure.suptitle(title, fontsize=11, color=COLORS.get(row.verdict, "black"), weight="bold")
        if reference.numel():
            matrix.whole(axes[0], canvas, reference.shape, worst)
            around = zoom_of(reference, test, worst or [0] * reference.ndim)
            matrix.close(axes[1], around, worst=worst is not None)
            matrix.legend(axes[2], [canvas, around], worst=worst is not None)
        else:
            for panel in axes[:2]:
                panel.set_axis_off()
            axes[0].text(0.5, 0.5, "no elements", ha="center", color="#666666")
        _words(axes[2], row, worst)
        bins = error_counts.bins if row.histogram is None else numpy.asarray(row.histogram)
        curves.sizes(axes[3], row, bins)
        curves.against_size(axes[4], row, error_counts)
        curves.by_index(axes[5], row, error_counts)
        return png()


def _worst(row: TensorComparison, canvas: Canvas, shape: Sequence[int]) -> list[int] | None:
    """The row's worst element, so that picture and table agree; the canvas's where the row names none."""
    index = row.worst_index
    if index is not None and len(index) == len(shape) and all(0 <= i < n for i, n in zip(index, shape, strict=True)):
        return index
    return None if canvas.worst is None else unravel(canvas.worst, shape)


def _words(axes: Any, row: TensorComparison, worst: list[int] | None) -> None:
    axes.set_axis_off()
    where = "–" if worst is None else str(worst)
    ratio = f"{number(row.ratio)}, limit {number(row.factor)}" if row.ratio is not None else "– (no floor was used)"
    lines = [
        ("decided by", row.bound or "–"),
        ("error over floor", ratio),
        ("against gold", f"error: RMS {number(row.error_rms)}, maximum {number(row.error_max)}"),
        ("", f"floor: RMS {number(row.floor_rms)}, maximum {number(row.floor_max)}"),
        ("against reference", f"RMS {number(row.rmse)}, maximum {number(row.max_abs)}"),
        ("relative", f"mean {number(row.mean_rel)}, maximum {number(row.max_rel)}"),
        ("ULP", number(row.max_ulp)),
        ("mismatched", f"{number(row.mismatched)} of {row.elements}"),
        ("", f"atol {number(row.atol)}, rtol {number(row.rtol)}"),
        ("worst at", shorten(where, 42)),
        ("", f"reference {number(row.worst_reference)}"),
        ("", f"test {number(row.worst_test)}"),
        ("NaN", f"reference {number(row.nan_reference)}, test {number(row.nan_test)}"),
        ("infinite", f"reference {number(row.inf_reference)}, test {number(row.inf_test)}"),
    ]
    wrapped = textwrap.wrap(shorten(row.message, 150), 46)
    for index, text in enumerate(wrapped):
        axes.text(0.0, 1.0 - 0.06 * index, text, transform=axes.transAxes, va="top", fontsize=9, weight="bold")
    top = 1.0 - 0.06 * len(wrapped) - 0.02
    for index, (name, value) in enumerate(lines):
        height = top - index * 0.05
        axes.text(0.0, height, name, transform=axes.transAxes, va="top", fontsize=8.5, color="#555555")
        axes.text(0.3, height, value, transform=axes.transAxes, va="top", fontsize=8.5)
