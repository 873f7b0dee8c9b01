"""What the pictures show, against plain NumPy, and that everything that is compared can be drawn."""

import io
import math
import random
import subprocess
import sys

import matplotlib
import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.numerics import histogram
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.readers import span, unravel
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures.canvas import CELLS, canvas_of, matrix_shape, zoom_of
from inductor_debug.stages.tensor_pictures.error_counts import SIDE, count_errors
from inductor_debug.stages.tensor_pictures.plots import draw, draw_summary, pictures
from inductor_debug.stages.tensor_pictures.summary import LINES, apart, lines_of

SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=5).map(tuple) | st.sampled_from(
    [(70_001,), (3, 40_000), (40_000, 3), (2, 300, 257), (600, 3, 5, 7), (257, 258), (1, 1, 999, 1), (5000, 2, 4)]
)
LAYOUTS = st.sampled_from(["contiguous", "transposed", "strided", "expanded"])


def pair_of(shape, layout="contiguous", seed=0):
    """Reference and test in float32; some elements are equal, some references 0."""
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(shape, generator=generator)
    reference[torch.rand(shape, generator=generator) < 0.1] = 0.0
    noise = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-12, 3, shape, generator=generator)
    test = reference + torch.where(torch.rand(shape, generator=generator) < 0.2, 0.0, noise)
    if layout == "transposed":
        back = list(reversed(range(len(shape))))
        reference = reference.permute(back).contiguous().permute(back)
    elif layout == "strided":
        reference = torch.stack([reference, reference + 1], -1)[..., 0]
    elif layout == "expanded" and shape:
        reference = reference[:1].expand(shape)
    return reference, test


def error_of(reference, test):
    return numpy.asarray(numpy.abs(test.numpy() - reference.numpy()))


def blocks_by_hand(error, canvas):
    """Largest errors by block of the matrix_shape; NaN where it has no element."""
    rows, columns, _ = canvas.matrix_shape
    matrix = numpy.full(rows * columns, -1.0)
    matrix[: error.size] = error.reshape(-1)
    matrix = numpy.maximum.reduceat(matrix.reshape(rows, columns), range(0, rows, canvas.block[0]), axis=0)
    matrix = numpy.maximum.reduceat(matrix, range(0, columns, canvas.block[1]), axis=1)
    return numpy.where(matrix < 0, numpy.nan, matrix)


def counted_errors(reference, test):
    canvas = canvas_of(reference, test)
    return count_errors(reference, test, top=canvas.top, magnitude=canvas.magnitude)


@settings(max_examples=60, deadline=None)
@given(SHAPES, LAYOUTS, st.integers(0, 5))
def test_a_canvas_holds_every_blocks_largest_error(shape, layout, seed):
    reference, test = pair_of(shape, layout, seed)
    canvas, error = canvas_of(reference, test), error_of(reference, test)
    assert max(canvas.error.shape) <= CELLS
    numpy.testing.assert_array_equal(canvas.error, blocks_by_hand(error, canvas))
    assert canvas.top == error.max() and canvas.magnitude == reference.abs().max()
    assert canvas.worst == (error.argmax() if error.any() else None)


@settings(max_examples=60, deadline=None)
@given(SHAPES, LAYOUTS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_zoom_shows_the_elements_that_it_names_and_the_worst_one(shape, layout, seed, randoms):
    reference, test = pair_of(shape, layout, seed)
    index = [randoms.randrange(size) for size in shape]
    for where in (index, unravel(canvas_of(reference, test).worst or 0, shape)):
        zoom = zoom_of(reference, test, where)
        error = error_of(reference, test)
        named = eval(f"error{zoom.slices}") if shape else error
        numpy.testing.assert_array_equal(zoom.error.reshape(-1), named.reshape(-1))
        at = [where[dim] - start for dim, start in zip(zoom.dims, zoom.starts, strict=True)]
        assert all(0 <= i < n for i, n in zip(reversed(at), reversed(zoom.error.shape), strict=False))
        assert zoom.error[tuple([0, 0, *at][-2:])] == (error[tuple(where)] if shape else error)


@settings(max_examples=60, deadline=None)
@given(SHAPES, LAYOUTS, st.integers(0, 5))
def test_counts_are_those_of_every_element(shape, layout, seed):
    reference, test = pair_of(shape, layout, seed)
    error_counts, error, size = counted_errors(reference, test), error_of(reference, test), reference.abs().numpy()

    def code(values, lowest):
        mantissa, exponent = numpy.frexp(values)
        half = 2 * (exponent - 1) + (mantissa >= 0.75)
        return numpy.where(values > 0, numpy.clip(half - lowest + 1, 0, SIDE - 2), 0)

    expected = numpy.zeros((SIDE, SIDE), dtype=int)
    numpy.add.at(expected, (code(error, error_counts.lowest[0]).ravel(), code(size, error_counts.lowest[1]).ravel()), 1)
    numpy.testing.assert_array_equal(error_counts.density, expected)
    bins = torch.bincount(histogram.bins_of(torch.from_numpy(error).double().reshape(-1)), minlength=histogram.BINS)
    numpy.testing.assert_array_equal(error_counts.bins, bins.numpy())
    assert error_counts.density.sum() == error_counts.bins.sum() == reference.numel()


@settings(max_examples=60, deadline=None)
@given(SHAPES, LAYOUTS, st.integers(0, 5))
def test_errors_by_index_are_those_of_every_dim(shape, layout, seed):
    reference, test = pair_of(shape, layout, seed)
    error_counts, error = counted_errors(reference, test), error_of(reference, test).astype(float)
    wanted = [dim for dim, size in enumerate(shape) if len(shape) > 1 and 2 <= size <= 4096]
    assert list(error_counts.channels) == wanted
    for dim in wanted:
        others = tuple(other for other in range(len(shape)) if other != dim)
        numpy.testing.assert_allclose(error_counts.channels[dim], numpy.sqrt((error**2).mean(others)), rtol=1e-5)


@pytest.mark.parametrize("exponent", [-295, -30, 0, 30, 300])
def test_no_size_of_float64_vanishes(exponent):
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(40, 50, dtype=torch.float64, generator=generator) * 10.0**exponent
    test = reference * (1 + 1e-9 * torch.rand(40, 50, dtype=torch.float64, generator=generator))
    canvas, error_counts = canvas_of(reference, test), counted_errors(reference, test)
    error = (test - reference).abs()
    assert canvas.top == error.max() > 0
    assert error_counts.density[1:-1, 1:-1].sum() == 2000  # none among zeros, none among infinities
    expected = numpy.sqrt(((error / error.max()).numpy() ** 2).mean(1)) * error.max().item()
    numpy.testing.assert_allclose(error_counts.channels[0], expected, rtol=1e-6)


def test_the_most_uneven_dim_is_the_one_with_the_bad_index():
    reference = torch.zeros(6, 7, 8)
    for dim, index in ((0, 3), (1, 5), (2, 0)):
        test = reference + 1e-3 * torch.rand(6, 7, 8, generator=torch.Generator().manual_seed(dim))
        test.select(dim, index).add_(1.0)
        error_counts = counted_errors(reference, test)
        assert error_counts.uneven == dim and error_counts.channels[dim].argmax() == index
        test.select(dim, index).fill_(math.nan)
        error_counts = counted_errors(reference, test)
        assert error_counts.uneven == dim and math.isinf(error_counts.channels[dim][index])


def test_what_is_not_finite_is_marked_by_kind_and_counted_apart():
    reference = torch.ones(20, 30)
    test = reference + 0.5
    reference[0, 0] = test[0, 0] = math.nan
    reference[0, 1] = test[0, 1] = math.inf
    test[1, 2] = math.nan
    reference[2, 3] = -math.inf
    reference[3, 4], test[3, 4] = math.inf, math.nan
    canvas, error_counts = canvas_of(reference, test), counted_errors(reference, test)
    assert numpy.argwhere(canvas.nan).tolist() == [[1, 2], [3, 4]]
    assert numpy.argwhere(canvas.infinite).tolist() == [[2, 3]]
    assert numpy.argwhere(canvas.both_nan).tolist() == [[0, 0]]
    assert canvas.error[0, :2].tolist() == [0.0, 0.0] and canvas.top == 0.5 and canvas.worst == 32
    assert error_counts.density[-1].sum() == 3 and error_counts.density[:, -1].sum() == 4 and error_counts.bins[-1] == 5
    assert error_counts.density.sum() == error_counts.bins.sum() == 600


def test_integers_are_subtracted_exactly_and_finite_numbers_never_look_infinite():
    big = torch.tensor([2**62 + 1, 5, -(2**63)])
    assert canvas_of(big, torch.tensor([2**62, 5, 2**63 - 1])).error.ravel().tolist() == [1.0, 0.0, 2.0**64]
    assert (
        canvas_of(torch.tensor([2**64 - 1], dtype=torch.uint64), torch.tensor([0], dtype=torch.uint64)).top == 2.0**64
    )
    extreme = torch.tensor([[3e38, math.nan]])
    canvas = canvas_of(extreme, -extreme)
    assert canvas.top == pytest.approx(6e38) and not canvas.infinite.any()


DTYPES = [
    *(torch.bool, torch.uint8, torch.int32, torch.int64, torch.uint16, torch.uint64, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]


def is_png(data):
    return matplotlib.image.imread(io.BytesIO(data)).shape[2] == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_drawn_and_nothing_is_lost(dtype):
    values = torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) * 3
    reference, test = values.to(dtype), values.flip(0).to(dtype)
    canvas, error_counts = canvas_of(reference, test), counted_errors(reference, test)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    expected = (test.to(wide) - reference.to(wide)).abs()
    numpy.testing.assert_allclose(canvas.error, expected.numpy(), rtol=1e-6)
    assert error_counts.density.sum() == error_counts.bins.sum() == 30
    assert is_png(draw(reference, test, compare_tensors(reference, test)))


def nan_like(*shape):
    return torch.full(shape, math.nan), torch.full(shape, math.nan)


@pytest.mark.parametrize(
    ("reference", "test"),
    [
        (torch.tensor(1.0), torch.tensor(2.0)),
        (torch.tensor(3), torch.tensor(3)),
        (torch.zeros(0), torch.zeros(0)),
        (torch.zeros(3, 0, 2), torch.zeros(3, 0, 2)),
        nan_like(5, 4),
        (torch.ones(5, 4), nan_like(5, 4)[1]),
        (torch.zeros(4, 4), torch.full((4, 4), math.inf)),
        (torch.ones(1).expand(300, 300), torch.zeros(300, 300)),
        (torch.ones(6, 4, 5, 3).contiguous(memory_format=torch.channels_last), torch.zeros(6, 4, 5, 3)),
        (torch.ones(4, 4), torch.zeros(4, 4, dtype=torch.int64)),
        (torch.ones(4, 4, dtype=torch.complex64).conj(), torch.zeros(4, 4)),
        (torch.eye(4).to_sparse(), torch.zeros(4, 4)),
        (torch.ones(4, 2, requires_grad=True), torch.full((4, 2), 1e-42)),
        (torch.full((2, 2), 1e-300, dtype=torch.float64), torch.full((2, 2), 1e300, dtype=torch.float64)),
        (torch.zeros(2, 5000), torch.ones(2, 5000)),
    ],
)
def test_every_kind_of_tensor_is_drawn(reference, test):
    assert is_png(draw(reference, test, compare_tensors(reference, test)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_sides_on_different_devices_are_drawn():
    reference, test = pair_of((30, 40))
    row = compare_tensors(reference, test)
    assert draw(reference.cuda(), test, row) == draw(reference, test.cuda(), row) == draw(reference, test, row)


@settings(max_examples=40, deadline=None)
@given(SHAPES, LAYOUTS, st.randoms(use_true_random=False))
def test_a_span_is_a_part_of_the_tensor(shape, layout, randoms):
    tensor = pair_of(shape, layout)[0]
    flat = tensor.reshape(-1)
    start = randoms.randrange(tensor.numel())
    stop = randoms.randint(start + 1, tensor.numel())
    assert torch.equal(span(tensor, start, stop), flat[start:stop])


@given(SHAPES)
def test_a_fold_has_room_for_every_element(shape):
    found = matrix_shape(shape)
    assert found.rows * found.columns >= math.prod(shape) > (found.rows - 1) * found.columns
    assert all(isinstance(label, str) for label in found.labels(shape))


def test_a_histogram_of_the_row_is_drawn_instead_of_counted():
    reference, test = pair_of((30, 40))
    row = compare_tensors(reference, test, histogram=True)
    counted = draw(reference, test, row)
    row.histogram = None
    assert draw(reference, test, row) == counted
    row.histogram = [0, *([7] * 10), *([0] * 53)]
    assert draw(reference, test, row) != counted


def rows_of(count):
    chance = random.Random(0)
    rows = []
    for index in range(count):
        ratio = chance.choice([0.0, 0.5, 3.0, 40.0, math.inf])
        verdict = "defect" if ratio > 4 else "exact" if ratio == 0 else "within_floor"
        rows.append(
            TensorComparison("gradient", f"layer.{index}.weight", [2], "float32", verdict, ratio=ratio, factor=4.0)
        )
    return rows


def test_a_summary_keeps_every_tensor_in_order_and_names_the_worst_of_a_line():
    rows = rows_of(200)
    lines = lines_of(rows)
    assert len(lines) <= LINES and [row for line in lines for row in line.rows] == rows
    assert all(line.worst.ratio == max(row.ratio for row in line.rows) for line in lines)
    assert [line.name for line in lines_of(rows[:60])] == [f"gradient layer.{index}.weight" for index in range(60)]


def test_tensors_without_a_ratio_are_told_apart_with_the_reason():
    rows = [
        *rows_of(3),
        TensorComparison("output", "a", verdict="within_tolerance", bound="tolerance"),
        TensorComparison("output", "b", verdict="defect", bound="shape", message="shape is [1] and [2]"),
        TensorComparison("output", "c", verdict="not_established", message="nobody looked"),
        TensorComparison("output", "d", verdict="within_tolerance", bound="tolerance", ratio=math.nan),
    ]
    found = [(verdict, why, [row.path for row in members]) for verdict, why, members in apart(rows)]
    assert found == [
        ("defect", "shapes differ", ["b"]),
        ("not_established", "nobody looked", ["c"]),
        ("within_tolerance", "judged by tolerance, not by a floor", ["a", "d"]),
    ]


def test_pictures_are_named_valid_and_of_what_can_be_drawn():
    reference, test = pair_of((12, 13))
    rows = [compare_tensors(reference, test, path="a/b $x_{"), compare_tensors(reference, test[1:], path="short")]
    leaves = {"output": {row.path: reference for row in rows}}
    others = {"output": {rows[0].path: test, rows[1].path: test[1:]}}
    found = pictures(rows, rows, leaves, others)
    summary, picture = found
    assert summary == "kerneldiff/plots/summary.png" and picture.startswith("kerneldiff/plots/00-output-a_b_x_")
    assert all(is_png(data) for data in found.values())
    assert pictures([], [], {}, {}) == {}


@pytest.mark.parametrize("rows", [[], rows_of(1), rows_of(200), [TensorComparison("output", "a")]])
def test_a_summary_of_any_rows_is_drawn(rows):
    assert is_png(draw_summary(rows))


DETERMINISTIC = """
import hashlib, matplotlib, torch
{before}
from inductor_debug import compare_tensors
from inductor_debug.stages.tensor_pictures.plots import draw, draw_summary
torch.manual_seed(0)
x = torch.randn(30, 40); y = x + 1e-3 * torch.randn(30, 40); y[3, 4] = float("nan")
row = compare_tensors(x, y)
print(hashlib.sha256(draw(x, y, row) + draw_summary([row])).hexdigest())
"""


def test_the_same_tensors_give_the_same_bytes_whatever_the_users_matplotlib_is_set_to():
    changed = "matplotlib.rcParams.update({'font.size': 30, 'image.cmap': 'gray', 'text.parse_math': True})"
    found = {
        subprocess.run(
            [sys.executable, "-c", DETERMINISTIC.format(before=before)], check=True, capture_output=True, text=True
        ).stdout
        for before in ("", changed)
    }
    assert len(found) == 1 and len(found.pop().strip()) == 64
