"""Tensors of any strides, and integers of any width, have the figures of contiguous ones, by logical index."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy
import pytest
import torch

from inductor_debug.stages.numerics import one_pass
from inductor_debug.stages.numerics.accumulator import Accumulator
from inductor_debug.stages.numerics.boxes import boxes
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.formats import same_bits
from inductor_debug.stages.numerics.records import TensorComparison

SHAPE = (6, 10, 14)
SUMS = (
    *("mean_abs", "mean_rel", "rmse", "cosine", "snr_db", "reference_rms", "floor_rms", "error_rms", "ratio"),
    "resolution",
)
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]


def stored_as(order: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same tensor, whose memory has the dims in this order."""
    back = [order.index(dim) for dim in range(len(order))]
    return lambda tensor: tensor.permute(order).contiguous().permute(back)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor as every other row of the middle of a larger one, whose rest is NaN, or the largest number."""
    room = torch.full((6, 20, 19), float("nan") if tensor.is_floating_point() else 1).to(tensor.dtype)
    room[:, ::2, 2:16] = tensor
    return room[:, ::2, 2:16]


LAYOUTS = {str(order): stored_as(order) for order in itertools.permutations(range(3))} | {"sliced": sliced}


def values(seed: int, *, special: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randint(-4, 5, SHAPE, generator=generator).double()  # whole numbers: many errors are equal
    if special:
        where = torch.randint(0, made.numel(), (40,), generator=generator)
        made.view(-1)[where] = torch.tensor([math.nan, math.inf, -math.inf, -0.0]).double().repeat(10)
    return made


def assert_same_row(found: TensorComparison, expected: TensorComparison) -> None:
    for field in dataclasses.fields(TensorComparison):
        left, right = getattr(found, field.name), getattr(expected, field.name)
        if field.name in SUMS and isinstance(right, float):
            assert left == pytest.approx(right, rel=1e-12, nan_ok=True), field.name
        elif field.name != "metrics":
            assert repr(left) == repr(right), field.name


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "CHUNK", 50)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("test_layout", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_change_no_figure(layout: str, test_layout: str, special: bool) -> None:
    reference, test = values(0, special=special), values(1, special=special)
    gold = reference + 1e-3
    expected = compare_tensors(reference.float(), test.float(), gold=gold, histogram=True)
    assert expected.mismatched and len(expected.worst) == 8
    left, right = LAYOUTS[layout](reference.float()), LAYOUTS[test_layout](test.float())
    for third in (gold, LAYOUTS[test_layout](gold)):
        assert_same_row(compare_tensors(left, right, gold=third, histogram=True), expected)


@pytest.mark.usefixtures("small_pieces")
def test_of_equal_errors_the_first_by_logical_index_are_the_worst() -> None:
    reference = stored_as((2, 1, 0))(torch.zeros(SHAPE))
    test = stored_as((2, 1, 0))(torch.ones(SHAPE))
    assert [worst.index for worst in compare_tensors(reference, test).worst] == [[0, 0, last] for last in range(8)]
    test[5, 9, 0] = 2.0
    row = compare_tensors(reference, test)
    assert row.worst_index == [5, 9, 0] and row.worst_test == 2.0
    assert [worst.index for worst in row.worst[1:]] == [[0, 0, last] for last in range(7)]


@pytest.mark.usefixtures("small_pieces")
def test_expanded_tensors_count_every_element() -> None:
    row = torch.randn(14, generator=torch.Generator().manual_seed(0))
    column = row[:10, None] * 1.5
    for reference, test in (
        (row.expand(SHAPE), (row * 1.5).expand(SHAPE)),
        (row.expand(SHAPE), column.expand(SHAPE)),
        (row.expand(SHAPE), values(0, special=False).float()),
        (row[0].expand(SHAPE), column.expand(SHAPE)),
    ):
        assert_same_row(compare_tensors(reference, test), compare_tensors(reference.clone(), test.contiguous()))


@pytest.mark.usefixtures("small_pieces")
def test_views_of_one_storage_are_compared_by_their_own_elements() -> None:
    square = torch.arange(400.0).view(20, 20)
    assert compare_tensors(square, square.t()).mismatched == 380
    windows = square.view(-1).as_strided((100, 50), (3, 1))  # overlapping
    expected = compare_tensors(windows.clone(), square.view(-1)[100:].as_strided((100, 50), (2, 1)).clone())
    found = compare_tensors(windows, square.view(-1)[100:].as_strided((100, 50), (2, 1)))
    assert_same_row(found, expected)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_every_other_complex_number_is_compared_by_its_parts(dtype: torch.dtype) -> None:
    numbers = torch.complex(torch.randn(30), torch.randn(30))
    reference, test = numbers.to(dtype), (numbers * 1.01).to(dtype)
    found = compare_tensors(reference[::2], test[::2])
    assert_same_row(found, compare_tensors(reference[::2].clone(), test[::2].clone()))
    assert found.max_ulp


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (0,), (3, 0, 2)])
def test_one_element_and_none(shape: tuple[int, ...]) -> None:
    reference = torch.zeros(shape)
    row = compare_tensors(reference, reference + 2)
    assert (row.elements, row.mismatched) == (reference.numel(), reference.numel())
    assert row.worst_index == ([0] * len(shape) if reference.numel() else None)
    assert (row.max_abs, row.verdict) == ((2.0, "defect") if reference.numel() else (0.0, "exact"))


@pytest.mark.parametrize("layouts", itertools.product(LAYOUTS, LAYOUTS), ids=str)
@pytest.mark.parametrize("limit", [7, 50, 100_000])
def test_pieces_hold_every_element_once_at_its_place(layouts: tuple[str, str], limit: int) -> None:
    whole = torch.arange(math.prod(SHAPE)).view(SHAPE)
    seen = []
    for place, pieces in boxes([LAYOUTS[name](whole) for name in layouts], limit):
        flat = place.flat(numpy.arange(pieces[0].numel()))
        assert place.first == flat.min() and len(flat) <= limit
        assert all(piece.reshape(-1).tolist() == flat.tolist() for piece in pieces)
        seen += flat.tolist()
    assert sorted(seen) == list(range(whole.numel()))


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1)], ids=str)
def test_memory_in_the_same_order_is_read_in_that_order(order: tuple[int, ...]) -> None:
    sides = [stored_as(order)(torch.zeros(5, 7, 20, 30)) for _ in range(2)]
    places = [[piece.data_ptr() for piece in pieces] for _, pieces in boxes(sides, 100)]
    assert places == sorted(places)
    assert all(piece.is_contiguous() for _, pieces in boxes(sides, 100) for piece in pieces)


def test_a_transposed_side_is_read_by_tiles() -> None:
    sides = [torch.zeros(1000, 1000), torch.zeros(1000, 1000).t()]
    for _, pieces in boxes(sides, one_pass.CHUNK):
        assert min(pieces[0].shape) >= 40, "a row of single elements reads a whole cache line for each"


def edges(dtype: torch.dtype) -> list[int]:
    if dtype == torch.bool:
        return [0, 1]
    info = torch.iinfo(dtype)
    return sorted({info.min, info.min + 1, 0, 1, 3, info.max // 2, info.max - 1, info.max})


def tensor_of(numbers: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Also of numbers that torch takes for none of uint64's."""
    return torch.from_numpy(numpy.array(numbers, dtype=str(dtype).removeprefix("torch.")))


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
def test_integers_of_every_width_are_exact_at_their_extremes(dtype: torch.dtype, general: bool) -> None:
    pairs = list(itertools.product(edges(dtype), repeat=2))
    for left, right in [([a], [b]) for a, b in pairs] + [tuple(map(list, zip(*pairs, strict=True)))]:
        sides = tensor_of(left, dtype), tensor_of(right, dtype)
        found = one_pass.measure(*sides, None, rtol=0.0, atol=0.0, general=general)
        gaps = [abs(a - b) for a, b in zip(left, right, strict=True)]
        assert found.max_abs == max(gaps) and type(found.max_abs) is int
        assert found.bitwise_equal == (max(gaps) == 0)
        assert found.mismatched == sum(gap > 0 for gap in gaps)
        assert found.zero_reference == left.count(0)
        assert found.rmse == pytest.approx(math.sqrt(sum(gap**2 for gap in gaps) / len(gaps)))
        assert (found.max_ulp, len(found.worst)) == (None, min(8, found.mismatched))
        for worst in found.worst:
            assert (worst.reference, worst.test) == (left[worst.index[0]], right[worst.index[0]])
            assert type(worst.reference) is (bool if dtype == torch.bool else int)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_change_no_figure_of_integers(layout: str, dtype: torch.dtype) -> None:
    reference, test = (values(seed, special=False).abs().to(dtype) for seed in (0, 1))
    for side in (test, LAYOUTS[layout](test)):
        row = compare_tensors(LAYOUTS[layout](reference), side, histogram=True)
        assert_same_row(row, compare_tensors(reference, test, histogram=True))


def test_integers_that_float64_holds_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    original = Accumulator._add_finite

    def add(self: Accumulator, *arguments: object) -> bool:
        taken.append(original(self, *arguments))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(Accumulator, "_add_finite", add)
    for number in (2**53 - 1, 2**53, -(2**53)):
        compare_tensors(torch.tensor([number]), torch.tensor([1]))
        compare_tensors(torch.tensor([1]), torch.tensor([number]))
    assert taken == [True, True, False, False, False, False]
    assert compare_tensors(torch.tensor([2**53]), torch.tensor([2**53 + 1])).max_abs == 1


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tensors_of_any_strides(dtype: torch.dtype) -> None:
    x = torch.randn(6, 8, dtype=dtype)
    y = x.clone()
    y[4, 2] += 1
    for view in (lambda z: z.t(), lambda z: z[::2, ::2], lambda z: z[:, 1:3]):
        found, plain = (compare_tensors(*sides) for sides in ((view(x), view(y)), (view(x).clone(), view(y).clone())))
        assert (found.verdict, found.max_ulp, found.max_abs) == (plain.verdict, plain.max_ulp, plain.max_abs)


def test_bits_of_what_is_not_conjugated_or_negated_yet_are_those_that_it_has() -> None:
    value = torch.randn(6, dtype=torch.complex64)
    lazy, negated = value.conj(), torch._neg_view(value.real.contiguous())
    assert lazy.is_conj() and negated.is_neg()
    assert bool(same_bits(lazy, lazy.resolve_conj()).all()) and not bool(same_bits(lazy, value).any())
    assert bool(same_bits(negated, -value.real).all()) and not bool(same_bits(negated, value.real).any())
