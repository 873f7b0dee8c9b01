"""Pictures of an error: a heatmap of any rank folded to two dimensions, and a histogram. PNG bytes, no display."""

import io
import math
import re
from collections.abc import Iterable

import numpy
import torch

from stages.kerneldiff.comparison import TensorComparison
from stages.kerneldiff.metrics import chunks

CELLS = 256
"""Rows and columns of a heatmap at most; a cell shows the largest error of the block that it stands for."""

DECADES = 12
"""A histogram reaches this many powers of ten below the largest error."""


def fold(shape: Iterable[int]) -> tuple[int, int, str]:
    """Rows, columns and a description of the most nearly square matrix for a tensor of ``shape``, row-major.

    Leading dimensions become rows, the rest columns. Where that is more lopsided than 16 to 1 (a vector, say) the
    flat tensor is cut into rows of about the square root of its length.
    """
    sizes = list(shape)
    total = math.prod(sizes)
    options = [(math.prod(sizes[:cut]), math.prod(sizes[cut:]), cut) for cut in range(len(sizes) + 1)]
    rows, columns, cut = min(options, key=lambda option: abs(math.log(max(option[0], 1) / max(option[1], 1))))
    if max(rows, columns) > 16 * max(min(rows, columns), 1):
        columns = math.ceil(math.sqrt(total))
        return math.ceil(total / columns), columns, f"flat, cut every {columns}"
    return rows, columns, f"rows: dims {list(range(cut))}, columns: dims {list(range(cut, len(sizes)))}"


def error_canvas(reference: torch.Tensor, test: torch.Tensor) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Largest error by block, and a histogram of the errors, in one pass and bounded memory.

    Returns:
        canvas: float64 ``[rows, columns]``, at most :data:`CELLS` each; inf where an error is not finite, NaN where
            the fold has no element.
        counts: how many errors fall between two edges; zeros and non-finite ones are in none.
        edges: of the histogram, one more than ``counts``; increasing, up to the largest finite error.
    """
    rows, columns, _ = fold(reference.shape)
    height, width = min(rows, CELLS), min(columns, CELLS)
    canvas = torch.full((height * width,), -1.0, dtype=torch.float64)
    errors = torch.zeros(60, dtype=torch.float64)
    top = 0.0
    for offset, (left, right) in chunks([reference.detach(), test.detach()]):
        error = _absolute_error(left, right)
        flat = torch.arange(offset, offset + error.numel())
        cell = (flat // columns * height // rows) * width + flat % columns * width // columns
        canvas.scatter_reduce_(0, cell, error, "amax")
        finite = error[error.isfinite()]
        top = max(top, finite.max().item() if finite.numel() else 0.0)
    edges = torch.logspace(math.log10(top) - DECADES, math.log10(top), 61, dtype=torch.float64) if top else None
    if edges is not None:
        for _, (left, right) in chunks([reference.detach(), test.detach()]):
            error = _absolute_error(left, right)
            inside = error[error.isfinite() & (error >= edges[0])]
            errors += torch.bincount(torch.bucketize(inside, edges[1:-1]), minlength=60)
    canvas = torch.where(canvas < 0, math.nan, canvas).reshape(height, width)
    return canvas.numpy(), errors.numpy(), (edges if edges is not None else torch.arange(61.0)).numpy()


def _absolute_error(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if left.dtype.is_complex or right.dtype.is_complex else torch.float64
    left, right = left.to("cpu", wide), right.to("cpu", wide)
    equal = (left == right) | (left.isnan() & right.isnan())
    return torch.where(equal, 0.0, (left - right).abs()).nan_to_num(math.inf, math.inf)


def draw(reference: torch.Tensor, test: torch.Tensor, row: TensorComparison) -> bytes:
    """A PNG for one row: heatmap of |test - reference| and its histogram. Shapes must agree."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    canvas, counts, edges = error_canvas(reference, test)
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    positive = canvas[numpy.isfinite(canvas) & (canvas > 0)]
    norm = LogNorm(max(positive.min(), positive.max() * 1e-12), positive.max()) if positive.size else None
    colors = "viridis"
    shown = numpy.ma.masked_where(~numpy.isfinite(canvas) | (canvas == 0), canvas)
    left.set_facecolor("#dddddd")
    image = left.imshow(
        shown if shown.size else numpy.zeros((1, 1)), norm=norm, cmap=colors, aspect="auto", interpolation="nearest"
    )
    if positive.size:
        figure.colorbar(image, ax=left, label="largest |test − reference| of the block")
    bad_rows, bad_columns = numpy.nonzero(numpy.isinf(canvas))
    if bad_rows.size:
        left.scatter(bad_columns, bad_rows, marker="x", color="red", s=14, label="NaN or infinity on one side")
        left.legend(loc="upper right", fontsize=7)
    left.set_title(f"{row.kind} {row.path}  {row.shape} {row.dtype}: {row.verdict}", fontsize=9)
    left.set_xlabel(fold(reference.shape)[2] + " (gray: no difference)", fontsize=8)
    right.set_xlabel("|test − reference|")
    right.set_ylabel("elements")
    if counts.sum():
        right.stairs(counts, edges, fill=True)
        right.set_xscale("log")
        right.set_yscale("log")
    for level, name in ((row.floor_max, "floor (max)"), (row.floor_rms, "floor (RMS)")):
        if level is not None and 0 < level < math.inf and counts.sum():
            right.axvline(level, color="black", linestyle="--" if "max" in name else ":", label=name)
    if right.get_legend_handles_labels()[1]:
        right.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()


def file_name(index: int, row: TensorComparison) -> str:
    """A safe file name for a row's picture, e.g. ``00-gradient-layer.0.weight.png``."""
    return f"{index:02d}-{row.kind}-{re.sub(r'[^A-Za-z0-9._-]+', '_', row.path)[:80]}.png"
