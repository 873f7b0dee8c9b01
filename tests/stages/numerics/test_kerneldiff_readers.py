"""What is not strided, read a piece at a time, against the whole tensor that torch makes of it."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.numerics import entries, one_pass, sparse_reader
from inductor_debug.stages.numerics.comparable import CannotCompare, comparable, dense
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.entries import entries_of
from inductor_debug.stages.numerics.readers import region
from inductor_debug.stages.sides import packing
from inductor_debug.stages.tensor_pictures.canvas import canvas_of, zoom_of
from inductor_debug.stages.tensor_pictures.error_counts import count_errors

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # CSR is in beta, ComplexHalf is experimental

LAYOUTS = ["coo", "duplicates", "csr", "csc", "bsr", "bsc"]
SHAPES = [(1, 1), (6, 4), (1, 120), (120, 1), (20, 15), (2, 3, 8, 6), (3, 1, 2, 4, 6)]
DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.bool, torch.int8, torch.int64, torch.uint8),
]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces and windows so small that small tensors cross many of them."""
    monkeypatch.setattr(entries, "PIECE", 11)
    monkeypatch.setattr(sparse_reader, "WINDOW", 53 * 8)


def whole_of(shape, dtype=torch.float32, seed=0):
    """About half of it zeros."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * 20
    values[torch.rand(shape, generator=generator) < 0.5] = 0
    return values.to(torch.int64).to(dtype) if not (dtype.is_floating_point or dtype.is_complex) else values.to(dtype)


def sparse_of(whole, layout, dense_dims=0, sparse_dims=None):
    if layout == "coo":
        return whole.to_sparse(sparse_dims or whole.ndim)
    if layout == "duplicates":  # out of order, each inexact value as its half twice, others twice
        half = whole.to_sparse(sparse_dims or whole.ndim)
        values = half.values() / 2 if whole.dtype.is_floating_point or whole.dtype.is_complex else half.values()
        index, values = torch.cat([half.indices()] * 2, 1), torch.cat([values, values])
        order = torch.randperm(index.shape[1], generator=torch.Generator().manual_seed(0))
        return torch.sparse_coo_tensor(index[:, order], values[order], whole.shape)
    if layout in ("csr", "csc"):
        return getattr(whole, f"to_sparse_{layout}")(dense_dim=dense_dims)
    rows, columns = whole.shape[whole.ndim - dense_dims - 2 : whole.ndim - dense_dims]
    block = 2 if rows % 2 == 0 else 1, 3 if columns % 3 == 0 else 2 if columns % 2 == 0 else 1
    return getattr(whole, f"to_sparse_{layout}")(block, dense_dim=dense_dims)


def read_through(side, limit):
    return torch.cat([torch.empty(0, dtype=side.dtype), *(piece for _, (piece,) in one_pass.chunks([side], limit))])


def assert_reads(tensor, expected):
    """Every way of reading ``tensor`` gives ``expected``, bit for bit."""
    side, flat = comparable(tensor), expected.reshape(-1)
    assert (side.shape, side.dtype, side.numel()) == (expected.shape, expected.dtype, expected.numel())
    for limit in (5, 64, 10_000):
        assert_same(read_through(side, limit), flat)
    for offset in range(0, flat.numel(), 11):  # not in ascending order
        assert_same(side.read(flat.numel() - offset - 1, 1), flat[flat.numel() - offset - 1 :][:1])
        assert_same(side.read(offset, min(37, flat.numel() - offset)), flat[offset : offset + 37])
    wanted = torch.arange(flat.numel())[1::3]
    assert_same(side.at(wanted), flat[wanted])
    assert_same(dense(tensor), expected)


def assert_same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.contiguous().view(-1).view(torch.uint8).equal(expected.contiguous().view(-1).view(torch.uint8))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_as_the_dense_tensor(layout, shape):
    tensor = sparse_of(whole_of(shape) if "sr" not in layout and "sc" not in layout else one_count(shape), layout)
    assert_reads(tensor, tensor.to_dense())


def one_count(shape):
    """Every matrix of a batch needs the same number of entries."""
    return whole_of(shape[-2:]).expand(shape) * torch.arange(1, math.prod(shape[:-2]) + 1).view(*shape[:-2], 1, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_is_read_as_the_dense_tensor(layout, dtype):
    tensor = sparse_of(whole_of((12, 6), dtype), layout)
    assert_reads(tensor, tensor.to_dense())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64, torch.float8_e4m3fn, torch.complex32], ids=str)
def test_dtypes_that_torch_does_not_make_dense_are_read(dtype):
    expected = torch.tensor([[0, 1, 0], [0, 2, 3]]).to(dtype)
    assert_reads(torch.sparse_coo_tensor([[0, 1, 1], [1, 1, 2]], torch.tensor([1, 2, 3]).to(dtype), (2, 3)), expected)
    assert_reads(torch.sparse_csr_tensor([0, 1, 3], [1, 1, 2], torch.tensor([1, 2, 3]).to(dtype), (2, 3)), expected)


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_dense_dims_behind_batches_and_blocks_are_read(layout):
    whole = one_count((2, 6, 4))[..., None] * torch.tensor([1.0, 0.0, -2.0])
    tensor = sparse_of(whole, layout, dense_dims=1)
    assert tensor.dense_dim() == 1
    assert_reads(tensor, tensor.to_dense())


@pytest.mark.parametrize("layout", ["coo", "duplicates"])
@pytest.mark.parametrize("sparse_dims", [1, 2])
def test_rows_of_a_hybrid_tensor_are_read_below_and_above_a_pieces_size(layout, sparse_dims):
    tensor = sparse_of(whole_of((8, 5, 9)), layout, sparse_dims=sparse_dims)
    assert tensor._values()[0].numel() in (9, 45)
    assert_reads(tensor, tensor.to_dense())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), st.integers(1, 60), st.data())
def test_blocks_of_any_size_and_place_are_read(rows, columns, high, wide, piece, data):
    """Blocks larger than a piece, and pieces that end inside a row of a block, included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "PIECE", piece)
        whole = torch.arange(1.0, rows * high * columns * wide + 1).view(rows * high, columns * wide)
        stored = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
        mask = torch.tensor(stored).view(rows, columns).repeat_interleave(high, 0).repeat_interleave(wide, 1)
        for layout in ("bsr", "bsc"):
            tensor = getattr(whole * mask, f"to_sparse_{layout}")((high, wide))
            assert_reads(tensor, whole * mask)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.sparse_coo_tensor(torch.empty(0, 3, dtype=torch.int64), torch.tensor([1.0, 2.0, 4.0]), ()),
        torch.sparse_coo_tensor(torch.empty(0, 2, dtype=torch.int64), torch.ones(2, 50), (50,)),
        torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (3, 4)),
        torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.int64), torch.ones(2, 0), (3, 0)),
        torch.sparse_csr_tensor([0, 0, 0], torch.empty(0, dtype=torch.int64), torch.empty(0), (2, 50)),
        torch.sparse_csc_tensor([0], torch.empty(0, dtype=torch.int64), torch.empty(0), (5, 0)),
        torch.sparse_csr_tensor(torch.zeros(0, 3).long(), torch.zeros(0, 0).long(), torch.empty(0, 0), (0, 2, 4)),
        torch.sparse_csr_tensor(torch.tensor([0, 2, 3]).int(), torch.tensor([1, 3, 0]).int(), torch.ones(3), (2, 50)),
        torch.sparse_csr_tensor([0, 3, 4], [40, 2, 40, 1], torch.tensor([1.0, 2.0, 4.0, 8.0]), (2, 50)),
        torch.sparse_csc_tensor([0, 3, 4], [40, 2, 40, 1], torch.tensor([1.0, 2.0, 4.0, 8.0]), (50, 2)),
    ],
    ids=["0-dim", "all dense", "nothing stored", "no elements", "empty rows", "no columns", "no matrices", "int32",
         "unsorted columns", "unsorted rows"],
)  # fmt: skip
def test_borders_of_the_formats_are_read(tensor):
    assert_reads(tensor, tensor.to_dense())


def test_parts_of_other_tensors_are_read_where_they_lie():
    """Indices and values that are not contiguous, in one matrix and in several."""
    crow, columns, values = torch.tensor([0, 9, 2, 9, 3, 9, 20]), torch.arange(40), torch.arange(1.0, 41.0)
    tensor = torch.sparse_csr_tensor(crow[::2], columns[::2], values[::2], (3, 60))
    assert not tensor.crow_indices().is_contiguous() and not tensor.values().is_contiguous()
    assert_reads(tensor, tensor.to_dense())
    crow, columns = torch.tensor([[0, 0], [1, 2], [3, 3]]), torch.tensor([[0, 1], [2, 3], [1, 2]])
    batch = torch.sparse_csr_tensor(crow.T, columns.T, torch.arange(1.0, 7.0).view(3, 2).T, (2, 2, 4))
    assert not batch.crow_indices().is_contiguous()
    assert_reads(batch, torch.stack([batch[0].to_dense(), batch[1].to_dense()]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_not_finite_stays_and_a_stored_zero_has_no_sign(layout):
    whole = whole_of((6, 6))
    whole[0, 0], whole[1, 2], whole[5, 5], whole[3, 3] = math.nan, math.inf, -math.inf, -7.0
    tensor = sparse_of(whole, layout)
    values = tensor._values() if tensor.is_sparse else tensor.values()
    values[values.abs() == (3.5 if layout == "duplicates" else 7.0)] = -0.0
    assert_reads(tensor, tensor.to_dense())
    assert not dense(tensor)[3, 3].signbit()


def test_duplicates_are_added_exactly_and_rounded_once():
    def added(values, dtype):
        index = torch.zeros(1, len(values), dtype=torch.int64)
        return dense(torch.sparse_coo_tensor(index, torch.tensor(values).to(dtype), (2,)))[0].item()

    assert added([1.0] * 300, torch.bfloat16) == 300  # one by one it stays at 256
    assert added([6e4, 6e4, -6e4], torch.float16) == torch.tensor(6e4).half()
    assert math.isnan(added([math.inf, -math.inf], torch.float32))
    assert added([100, 100, 100], torch.int8) == 44
    assert added([2**62, 2**62 + 1], torch.uint64) == 2**63 + 1
    assert added([True, True], torch.bool) is True and added([False, False], torch.bool) is False
    assert added([1 + 2j, 3 - 1j], torch.complex64) == 4 + 1j


def test_a_tensor_that_claims_an_order_is_not_trusted():
    index, values = torch.tensor([[50, 3, 20, 3]]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    tensor = torch.sparse_coo_tensor(index, values, (60,), is_coalesced=True, check_invariants=False)
    assert_reads(tensor, torch.zeros(60).index_add(0, index[0], values))


@pytest.mark.parametrize("layout", ["coo", "csr", "bsr"])
def test_a_window_is_filled_from_the_blocks_that_reach_into_it_alone(layout, monkeypatch):
    looked = []
    original = entries.Entries.inside
    monkeypatch.setattr(entries.Entries, "inside", lambda *given: looked.append(given[1]) or original(*given))
    tensor = sparse_of(whole_of((120, 6)), layout)
    blocks = len(list(entries_of(tensor).blocks()))
    read_through(comparable(tensor), 53)
    assert len(looked) < 3 * blocks and set(looked) == set(entries_of(tensor).blocks())


INTEGERS = st.lists(st.integers(-128, 127), min_size=12, max_size=12)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.floats(1e-6, 1e3), st.integers(-20, 20), st.booleans())
@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
def test_quantized_tensors_are_read_as_torch_dequantizes_them(dtype, data, scale, zero, transposed):
    integers = torch.tensor(data.draw(INTEGERS)).view(3, 4)
    if dtype == torch.qint32:
        integers = integers * (2**24 + 1)
    zero += 128 if dtype == torch.quint8 else 0
    whole = (integers.float() if dtype != torch.quint8 else integers.float() + 128) * scale
    tensor = torch.quantize_per_tensor(whole, scale, zero, dtype)
    tensor = tensor.t() if transposed else tensor[:, 1:]
    assert_reads(tensor, tensor.dequantize())


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("zeros", [torch.int64, torch.float32], ids=["affine", "float_qparams"])
def test_tensors_quantized_by_channel_are_read_as_torch_dequantizes_them(dtype, axis, zeros):
    shape, generator = (5, 7, 11), torch.Generator().manual_seed(axis)
    scales = torch.rand(shape[axis], generator=generator, dtype=torch.float64) * 0.3 + 0.01
    points = (torch.rand(shape[axis], generator=generator) * 40).to(zeros)
    if zeros == torch.float32 and dtype == torch.qint32:
        pytest.skip("torch has no such tensors")
    whole = torch.randn(shape, generator=generator) * 10
    tensor = torch.quantize_per_channel(
        whole, scales.to(zeros if zeros.is_floating_point else torch.float64), points, axis, dtype
    )
    assert_reads(tensor, tensor.dequantize())
    if zeros == torch.int64:  # of the others torch makes no views
        assert_reads(tensor.narrow((axis + 1) % 3, 1, 3), tensor.dequantize().narrow((axis + 1) % 3, 1, 3))


@pytest.mark.parametrize("dtype", [torch.quint4x2, torch.quint2x4])
def test_packed_quantized_tensors_are_dequantized(dtype):
    tensor = torch.quantize_per_channel(torch.randn(4, 8), torch.rand(4) + 0.1, torch.zeros(4), 0, dtype)
    assert comparable(tensor).equal(tensor.dequantize())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_figures_are_those_of_the_dense_tensors_whichever_side_is_sparse(layout, monkeypatch):
    monkeypatch.setattr(one_pass, "CHUNK", 50)
    reference = whole_of((20, 24)).double()
    test = reference.float().double() * (1 + 1e-3 * torch.rand(20, 24, generator=torch.Generator().manual_seed(1)))
    test[17, 21] += 5.0
    gold = reference + 1e-9
    expected = compare_tensors(reference.float(), test.float(), gold=gold, histogram=True)
    assert expected.worst_index == [17, 21] and len(expected.worst) == 8
    left, right, third = (sparse_of(side, layout) for side in (reference.float(), test.float(), gold))
    strided = reference.float().t().contiguous().t()
    for sides in ((left, right, third), (left, test.float(), gold), (strided, right, third)):
        row = compare_tensors(*sides[:2], gold=sides[2], histogram=True)
        for field in dataclasses.fields(row):
            found, wanted = getattr(row, field.name), getattr(expected, field.name)
            assert found == (pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else wanted), field.name


def test_a_sparse_gold_that_is_the_reference_is_no_floor():
    whole = whole_of((30, 40), torch.float64)
    for gold in (whole.to_sparse(), whole.to_sparse_csc()):
        assert compare_tensors(whole.to_sparse_csr(), whole * 1.5, gold=gold).bound == "tolerance"
    assert compare_tensors(whole.to_sparse_csr(), whole * 1.5, gold=(whole + 1).to_sparse()).bound != "tolerance"


def test_a_walk_leaves_no_window_behind_even_where_it_ends_early():
    side = comparable(whole_of((30, 40)).to_sparse())
    walk = one_pass.chunks([side, torch.zeros(30, 40)], 10)
    next(walk)
    assert len(side._window)
    walk.close()
    assert not len(side._window)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pictures_are_those_of_the_dense_tensors(layout):
    reference, test = whole_of((20, 9, 12)), whole_of((20, 9, 12), seed=1)
    if layout not in ("coo", "duplicates"):
        reference, test = one_count((20, 9, 12)), one_count((20, 9, 12)) * 1.5
    left, right = sparse_of(reference, layout), sparse_of(test, layout)
    reference, test = left.to_dense(), right.to_dense()
    expected, error_counts = canvas_of(reference, test), count_errors(reference, test, top=30.0, magnitude=30.0)
    for sides in ((left, right), (left, test), (reference.mT.contiguous().mT, right)):
        canvas = canvas_of(*sides)
        assert (canvas.error == expected.error).all() and (canvas.worst, canvas.top) == (expected.worst, expected.top)
        counted = count_errors(*sides, top=30.0, magnitude=30.0)
        assert (counted.density == error_counts.density).all() and (counted.bins == error_counts.bins).all()
        for dim, rms in error_counts.channels.items():
            assert counted.channels[dim] == pytest.approx(rms)
        assert (zoom_of(*sides, [3, 8, 7]).error == zoom_of(reference, test, [3, 8, 7]).error).all()


def test_a_region_is_the_part_of_the_tensor_that_is_named():
    tensor = sparse_of(whole_of((5, 6, 7)), "duplicates")
    for where in ([slice(1, 4), 2, slice(0, 7)], [4, slice(5, 6), 0], [0, 1, 2]):
        assert region(comparable(tensor), where).equal(tensor.to_dense()[tuple(where)])


def test_what_has_no_zero_is_not_compared_and_not_stored():
    tensor = torch.sparse_coo_tensor([[0]], torch.ones(1).to(torch.float8_e8m0fnu), (2,))
    with pytest.raises(CannotCompare, match="no zero"):
        comparable(tensor)
    row = compare_tensors(tensor, tensor)
    assert row.verdict == "not_established" and "no zero" in row.message
    with pytest.raises(packing.CannotStore, match=r"output x is a sparse tensor of torch\.float8_e8m0fnu"):
        packing.pack_tensor(tensor, "output x")


def test_a_sparse_tensor_is_stored_as_it_is_compared():
    tensor = torch.sparse_coo_tensor([[0] * 300], torch.ones(300, dtype=torch.bfloat16), (2,))
    record, stored = packing.pack_tensor(tensor, "x")
    assert record.shape == [2] and stored.tolist() == [300.0, 0.0]
    assert packing.tensor_digest(tensor) == packing.tensor_digest(stored)
