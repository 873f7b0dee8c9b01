"""Panels that show how large errors are: their histogram, against the reference's size, and by index on a dim."""

import math
from typing import Any

import numpy
from matplotlib.colors import LogNorm

from inductor_debug.stages.drawing import decades, log_axis, number, power
from inductor_debug.stages.numerics import histogram
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures.error_counts import SIDE, ErrorCounts, log10_of

_GAP = 0.35
"""Decades between the bins of a density and the strips for zeros and for what is not finite, and their width."""


def levels(row: TensorComparison) -> list[tuple[float, str, str]]:
    """Floors: size, name and line style, of those that can be drawn on a logarithmic axis."""
    found = ((row.floor_max, "floor (maximum)", "--"), (row.floor_rms, "floor (RMS)", ":"))
    return [(level, name, style) for level, name, style in found if level is not None and 0 < level < math.inf]


def tolerance(row: TensorComparison, size: float | numpy.ndarray | None) -> Any:
    """atol + rtol·size; None where there is no tolerance."""
    if not (row.atol or row.rtol) or size is None:
        return None
    return (row.atol or 0.0) + (row.rtol or 0.0) * size


def sizes(axes: Any, row: TensorComparison, bins: numpy.ndarray) -> None:
    """Elements by size of their error, with floors and tolerance.

    Args:
        bins: counts in the bins of :mod:`stages.numerics.histogram`.
    """
    counts, edges = bins[:-1], numpy.array(histogram.edges())
    filled = numpy.nonzero(counts)[0]
    axes.set_title(f"size of the errors; {bins[-1]} of {bins.sum()} are 0 or not finite")
    axes.set_xlabel("|test − reference|")
    axes.set_ylabel("elements")
    if not filled.size:
        _nothing(axes, "no finite error but 0" if bins.sum() else "no elements")
        return
    first, last = filled[0], filled[-1]
    axes.stairs(counts[first : last + 1], edges[first : last + 2], fill=True, color="#4477aa", baseline=0.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    lines = levels(row)
    limit = tolerance(row, row.reference_rms)
    if limit and math.isfinite(limit):
        lines.append((limit, "atol + rtol·RMS(reference)", "-."))
    low, high = edges[first], edges[last + 1]
    for level, name, style in lines:
        axes.axvline(level, color="black", linestyle=style, linewidth=1.1, label=f"{name} {number(level)}")
        low, high = min(low, level), max(high, level)
    wider = max(2.0, 10.0 / math.sqrt(high / low))
    axes.set_xlim(low / wider, high * wider)
    most = max(counts.max(), 10)
    axes.set_ylim(0.5, 2 * most * (2 * most) ** (0.12 * len(lines)))  # the legend is above the highest bar
    if lines:
        axes.legend(loc="upper left", framealpha=0.8)
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)


class _Side:
    """One axis of a density: its bins in decades, cropped to what is filled, and strips at the ends.

    Attributes:
        edges: of the columns, in decades.
        columns: which bin each shows; None for a gap.
        low, high: the range of numbers between the strips; None where there is none.
        ends: where the strips are, and their names.
    """

    def __init__(self, counts: numpy.ndarray, lowest: int, more: list[float]) -> None:
        """
        Args:
            more: further places, in decades, that the range shall hold.
        """
        filled = numpy.nonzero(counts[1:-1])[0] + 1
        bins = list(range(filled[0], filled[-1] + 1)) if filled.size else []
        self.columns: list[int | None] = [*bins]
        self.edges = [log10_of(lowest + column - 1) for column in (*bins, bins[-1] + 1)] if bins else []
        self.ends: list[tuple[float, str]] = []
        inner = self.edges + more
        low, high = (min(inner) - _GAP, max(inner) + _GAP) if inner else (0.0, 0.0)
        missing = max(0.0, 2.0 - (high - low)) / 2 if inner else 0.0
        self.low, self.high = low - missing, high + missing
        if counts[0]:
            self._strip([self.low - 2 * _GAP, self.low - _GAP], 0, "0")
        if counts[-1]:
            self._strip([self.high + _GAP, self.high + 2 * _GAP], SIDE - 1, "NaN, ∞")
        outer = [self.low, self.high, *self.edges] if inner else self.edges
        self.limits = min(outer), max(outer)

    def _strip(self, edges: list[float], column: int, name: str) -> None:
        between: list[int | None] = [None] if self.edges else []
        if column:
            self.edges, self.columns = self.edges + edges, [*self.columns, *between, column]
        else:
            self.edges, self.columns = edges + self.edges, [column, *between, *self.columns]
        self.ends.append((sum(edges) / 2, name))

    def label(self, axis: Any, most: int) -> None:
        ticks = decades(self.low, self.high, most) if self.high > self.low else []
        names = [name for _, name in self.ends] + [power(tick) for tick in ticks]
        axis.set_ticks([place for place, _ in self.ends] + [float(tick) for tick in ticks], labels=names)

    def pick(self, density: numpy.ndarray) -> numpy.ndarray:
        """Rows of ``density`` in the order of the edges; zeros in the gaps."""
        empty = numpy.zeros(density.shape[1], dtype=density.dtype)
        return numpy.stack([empty if column is None else density[column] for column in self.columns])


def against_size(axes: Any, row: TensorComparison, error_counts: ErrorCounts) -> None:
    """How many elements have which error at which size of the reference, both logarithmic; zeros have strips."""
    axes.set_title("error against size of the reference")
    axes.set_xlabel("|reference|")
    axes.set_ylabel("|test − reference|")
    if not error_counts.density.any():
        _nothing(axes, "no elements")
        return
    x = _Side(error_counts.density.sum(0), error_counts.lowest[1], [])
    some = x.high > x.limits[0]
    across = numpy.linspace(x.limits[0], x.high if some else x.limits[1], 64)
    lines = [(numpy.full(64, math.log10(level)), "black", style, name) for level, name, style in levels(row)]
    limit = tolerance(row, numpy.where(across < x.low, 0.0, 10.0 ** numpy.minimum(across, 300.0)))
    if limit is not None and (limit > 0).all() and some:
        lines.append((numpy.log10(limit), "red", "-.", "atol + rtol·|reference|"))
    more = [place for places, *_ in lines for place in (float(places.min()), float(places.max()))]
    y = _Side(error_counts.density.sum(1), error_counts.lowest[0], more)
    counts = x.pick(y.pick(error_counts.density).T).T
    mesh = axes.pcolormesh(
        x.edges, y.edges, numpy.ma.masked_equal(counts, 0), norm=LogNorm(1, max(counts.max(), 10)), cmap="viridis_r"
    )
    bar = axes.figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.06)
    log_axis(bar.ax.yaxis)
    for places, color, style, name in lines:
        axes.plot(across, places, color=color, linestyle=style, linewidth=1.1, label=name)
    axes.set_xlim(x.limits)
    low, high = y.limits
    axes.set_ylim(low, high + (high - low) * 0.08 * len(lines))  # the legend is above the cells
    x.label(axes.xaxis, 5)
    y.label(axes.yaxis, 7)
    if lines:
        axes.legend(loc="upper left", framealpha=0.8, fontsize=7)


def by_index(axes: Any, row: TensorComparison, error_counts: ErrorCounts) -> None:
    """RMS error by index on the dim where it is the most unequal; the worst index is marked.

    An index whose error is not finite has no RMS: a hatched band of full height stands for it.
    """
    dim = error_counts.uneven
    axes.set_ylabel("RMS error")
    if dim is None:
        axes.set_title("error by index")
        reason = (
            "no difference by index" if error_counts.channels else "no dim of rank 2 and more\nwith 2 to 4096 entries"
        )
        _nothing(axes, reason)
        return
    rms = error_counts.channels[dim]
    others = "" if len(error_counts.channels) == 1 else f", the most uneven of {len(error_counts.channels)}"
    axes.set_title(f"RMS error by index on dim {dim}{others}")
    equal = int((rms == 0).sum())
    note = f" ({equal} without a difference, at the bottom)" if equal else ""
    axes.set_xlabel(f"index on dim {dim}: 0 … {len(rms) - 1}{note}")
    missing = numpy.isinf(rms)
    if missing.any():
        _bands(axes, missing)
    if (rms[~missing] > 0).any():
        _heights(axes, row, numpy.ma.array(rms, mask=missing))
    else:
        axes.set_yticks([])
    axes.set_xlim(-0.5 - len(rms) * 0.01, len(rms) - 0.5 + len(rms) * 0.01)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="upper left", framealpha=0.8)


def _heights(axes: Any, row: TensorComparison, rms: numpy.ma.MaskedArray) -> None:
    """Bars, of many a line; not of what is masked. At least one is above 0."""
    found = rms.compressed()
    found = found[found > 0]
    bottom, top = found.min() / (2.0 if (rms == 0).any() else 1.3), found.max() * 1.6
    index, values = numpy.arange(len(rms)), numpy.ma.maximum(rms, bottom)
    if len(rms) <= 128:
        shown = ~numpy.ma.getmaskarray(rms)
        width = max(0.8, min(6.0, 180 / len(rms)))
        axes.vlines(index[shown], bottom, values.compressed(), color="#4477aa", linewidth=width)
    else:
        axes.plot(index, values, color="#4477aa", linewidth=0.7, marker=",")
    worst = int(rms.argmax())
    which = "largest that is finite" if numpy.ma.is_masked(rms) else "worst"
    label = f"{which}: index {worst}, {number(float(rms[worst]))}"
    axes.scatter([worst], [rms[worst]], s=70, facecolors="none", edgecolors="red", linewidths=1.4, label=label)
    for level, name, style in levels(row):
        if "RMS" in name and bottom / 1e3 < level < top * 1e3:
            axes.axhline(level, color="black", linestyle=style, linewidth=1.1, label=name)
            bottom, top = min(bottom, level / 1.3), max(top, level * 1.3)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top * (top / bottom) ** 0.25)
    log_axis(axes.yaxis)


def _bands(axes: Any, missing: numpy.ndarray) -> None:
    """Hatched bands over the indices that are ``missing``, at least one, as wide as they and as high as the panel."""
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[False], missing, [False]]).astype(int)))
    runs = [(first - 0.5, stop - first) for first, stop in edges.reshape(-1, 2)]
    where = f"index {edges[0]}" if missing.sum() == 1 else f"{missing.sum()} indices from {edges[0]}"
    label = f"no RMS, NaN or ∞ on one side: {where}"
    axes.broken_barh(
        runs, (0, 1), transform=axes.get_xaxis_transform(), facecolor="#ff00cc22", edgecolor="#ff00cc",
        hatch="////", linewidth=0.8, label=label,
    )  # fmt: skip


def _nothing(axes: Any, reason: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, color="#666666", fontsize=9)
