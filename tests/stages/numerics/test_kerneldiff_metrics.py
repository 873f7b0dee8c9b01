"""Every figure of a comparison against an independent scalar oracle, and the traps that hid differences."""

import math
from collections import namedtuple

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.kerneldiff import tables
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.numerics import accumulator, histogram, one_pass
from inductor_debug.stages.numerics.comparison import KernelDiff, assert_matches, compare, compare_tensors

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
pairs32 = st.lists(st.tuples(finite32, finite32), min_size=1, max_size=20)


def ulps(left: float, right: float) -> int:
    """Representable float32 numbers between, by walking NumPy's own integer views through zero."""

    def rank(value: float) -> int:
        bits = int(numpy.float32(abs(value)).view(numpy.uint32))
        return -bits if math.copysign(1, value) < 0 else bits

    return abs(rank(left) - rank(right))


@settings(deadline=None, max_examples=60)
@given(pairs32)
def test_figures_match_a_scalar_oracle(pairs):
    reference, test = (torch.tensor(side, dtype=torch.float32) for side in zip(*pairs, strict=True))
    row = compare_tensors(reference, test)
    left, right = reference.tolist(), test.tolist()
    errors = [abs(a - b) for a, b in zip(left, right, strict=True)]
    relative = [error / abs(a) for error, a in zip(errors, left, strict=True) if a != 0]
    assert row.max_abs == max(errors)
    assert row.mean_abs == pytest.approx(math.fsum(errors) / len(errors))
    assert row.rmse == pytest.approx(math.hypot(*errors) / math.sqrt(len(errors)))
    assert row.max_rel == pytest.approx(max(relative, default=0.0))
    assert row.mean_rel == pytest.approx(math.fsum(relative) / len(relative) if relative else 0.0)
    assert row.zero_reference == left.count(0.0)
    assert row.max_ulp == max(ulps(a, b) for a, b in zip(left, right, strict=True))
    tolerance = [1e-5 + 1.3e-6 * abs(a) for a in left]
    assert row.mismatched == sum(error > bound for error, bound in zip(errors, tolerance, strict=True))
    if max(errors) > 0:
        assert errors[row.worst_index[0]] == max(errors)
    if any(left) and any(right):
        norms = math.hypot(*left) * math.hypot(*right)
        if 0 < norms < math.inf:
            assert row.cosine == pytest.approx(
                math.fsum(a * b for a, b in zip(left, right, strict=True)) / norms, abs=1e-9
            )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1, max_size=8))
def test_integers_are_compared_exactly(pairs):
    left, right = zip(*pairs, strict=True)
    row = compare_tensors(torch.tensor(left), torch.tensor(right))
    assert row.max_abs == max(abs(a - b) for a, b in pairs)
    assert row.mismatched == sum(a != b for a, b in pairs)
    assert row.verdict == ("exact" if left == right else "defect")


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 7), st.lists(st.integers(1, 5), max_size=4))
def test_chunks_cover_in_flat_order_whatever_the_strides(limit, shape):
    tensor = torch.arange(math.prod(shape)).reshape(shape)
    transposed = tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor
    seen = [(offset, piece) for offset, (piece,) in one_pass.chunks([transposed], limit)]
    assert torch.cat([piece for _, piece in seen]).tolist() == list(range(tensor.numel()))
    assert all(int(piece[0]) == offset and piece.numel() <= limit for offset, piece in seen)


def test_chunked_figures_equal_whole_ones():
    torch.manual_seed(0)
    a, b = torch.randn(7, 11, 13), torch.randn(7, 11, 13)
    options = {"rtol": 0.1, "atol": 0.1}
    whole, parts = (
        one_pass.measure(a, b, a.double(), **options),
        one_pass.measure(a, b, a.double(), limit=10, **options),
    )
    assert parts.rmse == pytest.approx(whole.rmse) and parts.cosine == pytest.approx(whole.cosine)
    assert (parts.max_abs, parts.mismatched, parts.worst) == (whole.max_abs, whole.mismatched, whole.worst)
    assert parts.error.rms == pytest.approx(whole.error.rms)


def test_wrong_imaginary_part_shows():
    row = compare_tensors(torch.tensor([1 + 1j]), torch.tensor([1 + 2j]))
    assert row.verdict == "defect" and row.max_abs == 1.0 and row.max_ulp == 2**23


def test_float64_difference_of_a_billionth_shows():
    one = torch.ones(3, dtype=torch.float64)
    assert compare_tensors(one, one + 1e-9, atol=0, rtol=1e-12).verdict == "defect"
    assert compare_tensors(one, one + 1e-9).max_abs == pytest.approx(1e-9, rel=1e-6)


def test_large_values_are_judged_relatively_and_one_bfloat16_ulp_passes():
    big = torch.full((4,), 1e4)
    assert compare_tensors(big, big * (1 + 2e-7)).verdict == "within_tolerance"
    one = torch.tensor([1.0], dtype=torch.bfloat16)
    row = compare_tensors(one, torch.nextafter(one, one + 1))
    assert row.verdict == "within_tolerance" and row.max_ulp == 1


def test_ulps_go_through_zero_in_every_format():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        tiny = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))
        assert compare_tensors(tiny, -tiny).max_ulp == 2, dtype
        assert compare_tensors(torch.zeros(1, dtype=dtype), -torch.zeros(1, dtype=dtype)).max_ulp == 0
    top = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert compare_tensors(top, -top).max_ulp == 2 * (0x7FEFFFFFFFFFFFFF)
    for dtype, step in ((torch.float8_e4m3fn, 0.125), (torch.float8_e5m2, 0.25)):
        row = compare_tensors(torch.tensor([1.0]).to(dtype), torch.tensor([1.0 + step]).to(dtype))
        assert row.max_ulp == 1 and row.max_abs == step


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("gold", [None, torch.ones(3, dtype=torch.float64)])
def test_not_finite_on_one_side_is_a_defect_and_on_both_is_equal(bad, gold):
    clean, broken = torch.ones(3), torch.tensor([1.0, bad, 1.0])
    for left, right in ((clean, broken), (broken, clean)):
        row = compare_tensors(left, right, gold=gold, atol=1e9 if gold is None else None)
        assert row.verdict == "defect" and row.bound == "nonfinite" and row.worst_index == [1]
        assert row.mismatched == 1
    same = compare_tensors(broken, broken.clone(), gold=gold)
    assert same.verdict == "exact" and same.max_abs == 0
    assert same.nan_reference == same.nan_test == int(math.isnan(bad))
    assert same.inf_test == int(math.isinf(bad))


def test_opposite_infinities_differ():
    assert compare_tensors(torch.tensor([math.inf]), torch.tensor([-math.inf])).verdict == "defect"


def test_scalars_empty_strided_and_requiring_gradients():
    assert compare_tensors(1.5, 1.5).verdict == "exact"
    assert compare_tensors(torch.empty(0, 3), torch.empty(0, 3)).elements == 0
    base = torch.arange(12.0).reshape(3, 4)
    row = compare_tensors(base.t().requires_grad_(), (base + torch.eye(3, 4) * 2).t())
    assert row.worst_index == [0, 0] and row.max_abs == 2 and row.mismatched == 3
    assert compare_tensors(torch.tensor([True, False]), torch.tensor([True, True])).verdict == "defect"


def test_extreme_values_neither_overflow_nor_vanish():
    big = torch.tensor([1e300, -1e300], dtype=torch.float64)
    row = compare_tensors(big, big * 1.5)
    assert row.rmse == pytest.approx(5e299) and row.cosine == pytest.approx(1.0)
    tiny = torch.tensor([1e-300], dtype=torch.float64)
    assert compare_tensors(tiny, tiny * 3).rmse == pytest.approx(2e-300)


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("count", [1, 40_000])
def test_many_values_near_the_largest_number_do_not_overflow_either(general, count):
    big = torch.full((count,), 1e307, dtype=torch.float64)
    options = {"rtol": 0.1, "atol": 0.1, "general": general}
    equal, opposite = one_pass.measure(big, big, big, **options), one_pass.measure(big, -big, big, **options)
    assert (equal.cosine, opposite.cosine) == (pytest.approx(1), pytest.approx(-1))
    assert equal.reference_rms == pytest.approx(1e307) and equal.rmse == equal.mean_abs == 0
    assert opposite.rmse == pytest.approx(2e307) and opposite.mean_abs == pytest.approx(2e307)
    assert opposite.error.rms == pytest.approx(2e307) and opposite.magnitude.rms == pytest.approx(1e307)
    assert opposite.mean_rel == pytest.approx(2) and opposite.snr_db == pytest.approx(-20 * math.log10(2))
    assert equal.snr_db == math.inf
    ratio = one_pass.measure(big * 1e-307, big, None, **options)
    assert ratio.mean_rel == pytest.approx(1e307) and ratio.max_rel == pytest.approx(1e307)
    top = torch.full((count,), torch.finfo(torch.float64).max, dtype=torch.float64)
    largest = one_pass.measure(torch.zeros_like(top), top, None, **options)
    assert largest.rmse == largest.max_abs and largest.mean_abs == pytest.approx(largest.max_abs)
    mixed = one_pass.measure(
        torch.zeros(2 * count).double(), torch.cat([big, torch.ones(count).double()]), None, **options
    )
    assert mixed.mean_abs == pytest.approx(5e306) and mixed.rmse == pytest.approx(1e307 / math.sqrt(2))


def test_a_summary_of_large_errors_does_not_overflow():
    rows = [
        compare_tensors(torch.zeros(count).double(), torch.full((count,), 1e300, dtype=torch.float64))
        for count in (1, 3)
    ]
    assert tables.summary(Comparison("defect", "", rows)).rmse == pytest.approx(1e300)
    assert tables.summary(Comparison("defect", "")).rmse is None


def test_shape_and_dtype_mismatch_are_results():
    assert compare_tensors(torch.ones(2), torch.ones(3)).bound == "shape"
    row = compare_tensors(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert (row.verdict, row.bound, row.max_abs) == ("defect", "dtype", 0)


@pytest.mark.parametrize("beside, verdict", [(0.99, "within_floor"), (1.01, "defect")])
@pytest.mark.parametrize("factor", [4.0, 10.0])
def test_floor_decides_on_both_sides_of_the_factor(beside, verdict, factor):
    gold = torch.linspace(1, 2, 64, dtype=torch.float64)
    reference = (gold + 1e-3).float()
    test = (gold - 1e-3 * factor * beside).float()
    row = compare_tensors(reference, test, gold=gold, factor=factor)
    assert row.verdict == verdict and row.ratio == pytest.approx(factor * beside, rel=1e-2)


def test_one_bad_element_among_many_is_seen_by_the_maximum():
    gold = torch.ones(100_000, dtype=torch.float64)
    reference = (gold + 1e-6).float()
    test = reference.clone()
    test[4321] += 1e-5
    row = compare_tensors(reference, test, gold=gold)
    assert (row.verdict, row.bound, row.worst_index) == ("defect", "floor_max", [4321])


def test_floor_is_not_below_the_roundoff_of_the_format():
    gold = torch.full((8,), 1.0, dtype=torch.float64)
    nearly = torch.nextafter(gold.float(), torch.tensor(2.0))
    assert compare_tensors(gold.float(), nearly, gold=gold).verdict == "within_floor"
    assert compare_tensors(gold.float(), gold.float() * 1.001, gold=gold).verdict == "defect"
    loss = torch.tensor(1.0)
    assert compare_tensors(loss, loss * 1.001, gold=loss.double(), roundoff=2**-9).verdict == "within_floor"


def test_a_gold_as_precise_as_the_reference_is_no_floor():
    reference = torch.ones(4, dtype=torch.float64)
    row = compare_tensors(reference, reference + 1e-14, gold=reference.clone())
    assert (row.verdict, row.bound) == ("within_tolerance", "tolerance")


def test_defaults_are_those_of_assert_close():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        one = torch.ones(1, dtype=dtype)
        row = compare_tensors(one, one)
        for share, close in ((0.9, True), (3.0, False)):
            moved = torch.ones(1, dtype=torch.complex128) * (1 + share * (row.atol + row.rtol))
            moved = (moved if dtype.is_complex else moved.real).to(dtype)
            assert (compare_tensors(one, moved).mismatched == 0) == close
            if close:
                torch.testing.assert_close(moved, one)
            else:
                with pytest.raises(AssertionError, match="not close"):
                    torch.testing.assert_close(moved, one)


def test_memory_stays_bounded(monkeypatch):
    seen = []
    original = accumulator.Accumulator.add

    def add(self, offset, pieces):
        seen.append(max(piece.numel() for piece in pieces))
        original(self, offset, pieces)

    monkeypatch.setattr(accumulator.Accumulator, "add", add)
    big = torch.zeros(3, one_pass.CHUNK)
    compare_tensors(big.t(), big.t())
    assert max(seen) <= one_pass.CHUNK and sum(seen) == big.numel()


Point = namedtuple("Point", "x y")


def test_nested_structures_have_paths_and_differences_are_rows():
    left = {"logits": torch.ones(2), "hidden_states": (torch.ones(1), torch.zeros(1)), "p": Point(torch.ones(1), None)}
    right = {"logits": torch.ones(2), "hidden_states": (torch.ones(1),), "p": Point(torch.ones(1), torch.ones(1))}
    difference = compare(left, right)
    verdicts = {row.path: row.verdict for row in difference.rows}
    assert verdicts == {
        "logits": "exact", "hidden_states[0]": "exact", "hidden_states[1]": "defect", "p.x": "exact", "p.y": "defect",
    }  # fmt: skip
    assert difference.verdict == "defect"
    assert compare([], []).verdict == "not_established"
    assert KernelDiff().verdict == "not_established"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64])
def test_the_histogram_counts_every_error_by_its_exponent(dtype):
    generator = torch.Generator().manual_seed(0)
    reference = (torch.randn(40_000, generator=generator) * 100).to(dtype)
    test = reference + (torch.randn(40_000, generator=generator) * 10.0 ** -torch.arange(40_000).fmod(6)).to(dtype)
    test[:3] = reference[:3]
    found = compare_tensors(reference, test, histogram=True).histogram
    wide = numpy.complex128 if dtype.is_complex else numpy.float64
    sides = [side.to(torch.complex128 if dtype.is_complex else torch.float64).numpy() for side in (reference, test)]
    errors = numpy.abs(sides[1].astype(wide) - sides[0].astype(wide))
    expected, _ = numpy.histogram(errors[errors > 0], bins=[0.0, *histogram.edges()[1:-1], math.inf])
    assert found[:-1] == expected.tolist() and found[-1] == (errors == 0).sum()


def test_the_histogram_has_a_place_for_what_is_no_number():
    reference = torch.tensor([1.0, math.nan, math.inf, 0.0, 1e-40, 1.0])
    test = torch.tensor([1.0, 0.0, 1.0, 1e30, 0.0, 2.0])
    found = compare_tensors(reference, test, histogram=True).histogram
    assert (
        found[-1] == 3 and found[0] == 1 and found[-2] == 1 and found[(0 - histogram.LOWEST) // histogram.OCTAVES] == 1
    )


def test_another_container_of_the_same_tensors_is_a_difference_in_structure():
    ones = torch.ones(2)
    assert compare({"a": (ones, ones)}, {"a": (ones, ones)}).verdict == "exact"
    difference = compare({"a": (ones, ones)}, {"a": [ones, ones]})
    assert [(row.path, row.bound, row.message) for row in difference.failed] == [
        ("a", "structure", "tuple in the reference, list in the test")
    ]


def test_an_assertion_shows_the_table_of_what_failed():
    left, right = {"logits": torch.ones(2, 3), "loss": torch.tensor(1.0)}, {"logits": torch.ones(2, 3), "loss": None}
    right["logits"] = left["logits"] * 1.01
    with pytest.raises(AssertionError, match="defect") as failure:
        assert_matches(left, right)
    lines = str(failure.value).splitlines()
    assert lines[1].split()[:2] == ["kind", "path"]
    assert [line.split()[1] for line in lines[2:]] == ["logits", "loss"] and "6 of 6 elements" in lines[2]
    assert assert_matches(left, left).verdict == "exact"


def test_quantized_sparse_and_jagged_tensors_are_what_they_stand_for():
    values = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    quantized = torch.quantize_per_tensor(values, 0.5, 0, torch.quint8)
    assert compare_tensors(quantized, quantized.clone()).verdict == "exact"
    assert compare_tensors(quantized, torch.quantize_per_tensor(values + 0.5, 0.5, 0, torch.quint8)).max_abs == 0.5
    sparse = values.to_sparse()
    explicit = torch.sparse_coo_tensor([[0, 0, 1], [0, 1, 0]], [0.0, 1.0, 2.0], (2, 2))
    assert compare_tensors(sparse, explicit).verdict == "exact"
    assert compare_tensors(sparse, (values * 2).to_sparse_csr()).verdict == "defect"
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    assert compare_tensors(jagged, jagged).elements == 9


def test_integers_have_no_floor_whatever_gold_says():
    assert compare_tensors(torch.tensor([5]), torch.tensor([6]), gold=torch.tensor([100])).verdict == "defect"


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e4m3fn, torch.float16])
def test_a_gold_in_the_references_own_dtype_is_no_floor(dtype):
    ones = torch.ones(3).to(dtype)
    assert compare_tensors(ones, ones.clone(), gold=ones.clone()).bound == "bits"
    assert compare_tensors(ones, torch.full((3,), 2.0).to(dtype), gold=ones.clone()).bound == "tolerance"


def test_lazily_conjugated_and_negated_tensors_are_compared_by_value():
    values = torch.randn(5, dtype=torch.complex128)
    for lazy in (values.conj(), values.conj().imag):
        assert compare_tensors(lazy, lazy.clone(), gold=lazy).verdict == "exact"
        assert compare_tensors(lazy, lazy * 2, gold=lazy).verdict == "defect"
