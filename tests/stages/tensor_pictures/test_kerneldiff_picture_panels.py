"""What is drawn in a tensor's picture, read from the figure itself."""

import itertools
import math
from contextlib import contextmanager

import numpy
import pytest
import torch

from inductor_debug.stages.drawing import drawing
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures import summary, tensor


def drawn(monkeypatch, reference, test):
    """The figure of a picture, and its last panel: errors by index."""
    figures = []

    @contextmanager
    def keeping(*size):
        with drawing(*size) as (figure, png):
            figures.append(figure)
            yield figure, png

    monkeypatch.setattr(tensor, "drawing", keeping)
    tensor.draw(reference, test, compare_tensors(reference, test))
    (panel,) = (axes for axes in figures[0].axes if axes.get_title().startswith("RMS error by index"))
    return figures[0], panel


@pytest.mark.parametrize("length", [20, 300])
@pytest.mark.parametrize("finite", [True, False])
def test_an_index_without_an_rms_has_a_band_and_no_height(finite, length, monkeypatch):
    reference = torch.ones(length, 4)
    test = reference * (1.5 if finite else 1.0)
    test[5, 1], test[6], test[9, 2] = math.nan, math.inf, math.nan
    _, panel = drawn(monkeypatch, reference, test)
    (band,) = (found for found in panel.collections if found.get_hatch())
    spans = [path.get_extents().intervalx.tolist() for path in band.get_paths()]
    assert spans == [[4.5, 6.5], [8.5, 9.5]] and band.get_paths()[0].get_extents().intervaly.tolist() == [0, 1]
    words = [text.get_text() for text in panel.get_legend().get_texts()]
    assert "no RMS, NaN or ∞ on one side: 3 indices from 5" in words
    if not finite:
        assert len(words) == 1 and not panel.get_yticks().size and panel.collections[:] == [band]
        return
    assert "largest that is finite: index 0, 0.5" in words
    if length == 20:
        bars = [float(line[0, 0]) for found in panel.collections for line in getattr(found, "get_segments", list)()]
        assert bars == [index for index in range(length) if index not in (5, 6, 9)]
    else:
        heights = numpy.ma.filled(panel.lines[0].get_ydata(), math.nan)
        assert numpy.flatnonzero(numpy.isnan(heights)).tolist() == [5, 6, 9]


@pytest.mark.parametrize(("shape", "scale"), [((300, 5000), 1e-2), ((2, 3, 2, 3, 4, 5), 1e-5), ((64, 4096), 123.0)])
def test_no_words_beside_a_panel_lie_on_anothers(shape, scale, monkeypatch):
    reference = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    test = reference.clone()
    test.view(-1)[-7] += scale
    figure, panel = drawn(monkeypatch, reference, test)
    beside = [
        [
            label.get_window_extent()
            for label in (axes.yaxis.label, axes.title, *axes.get_yticklabels())
            if label.get_text()
        ]
        for axes in figure.axes
    ]
    for left, right in itertools.combinations(beside, 2):
        assert not any(one.overlaps(other) for one in left for other in right)
    assert panel.title.get_window_extent().x1 < figure.bbox.x1


def test_a_picture_of_a_tensor_fits_a_screen(monkeypatch):
    figure, _ = drawn(monkeypatch, torch.zeros(20, 4), torch.ones(20, 4))
    width, height = figure.get_size_inches()
    assert 1.5 < width / height < 2 and width <= 16


@pytest.mark.parametrize("ratios", [[0.5, 1.0, 3.9], [0.085, 3.0], [0.0, 1e-9, 7.5], [1e6, math.inf, 0.1], [1.0]])
def test_every_ratio_and_the_limit_lie_inside_the_summarys_panel(ratios, monkeypatch):
    figures = []

    @contextmanager
    def keeping(*size):
        with drawing(*size) as (figure, png):
            figures.append(figure)
            yield figure, png

    monkeypatch.setattr(summary, "drawing", keeping)
    rows = [
        TensorComparison("output", f"o{index}", verdict="defect" if ratio > 4 else "within_floor", bound="floor_rms",
                         ratio=ratio, factor=4.0) for index, ratio in enumerate(ratios)
    ]  # fmt: skip
    summary.draw_summary(rows)
    (panel,) = (axes for axes in figures[0].axes if axes.collections)
    low, high = panel.get_xlim()
    points = sorted(x for found in panel.collections for x, _ in found.get_offsets())
    assert len(points) == len(ratios) and all(low < x < high for x in [*points, math.log10(4)])
    exact = [math.log10(ratio) for ratio in ratios if 0 < ratio < math.inf]
    assert low < math.floor(min(exact)) and math.ceil(max(exact)) < high  # whole decades
    assert all(any(math.isclose(x, place) for x in points) for place in exact)
    ends = [x for x in points if not any(math.isclose(x, place) for place in exact)]
    assert all(x < min(exact) or x > max(exact) for x in ends)
