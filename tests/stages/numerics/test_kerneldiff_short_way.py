"""The short way through finite chunks gives what the general way gives, and both keep the worst elements of all."""

import math
from dataclasses import asdict

import pytest
import torch

from inductor_debug.stages.numerics import accumulator, formats, one_pass
from inductor_debug.stages.numerics.comparison import compare_tensors

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-310, -5e-324, 1e-40, -1e-45, 6e-8, 1e308, -1e308, 3e38, 1e-200]
SHORT = [0.0, -0.0, 1e-310, -5e-324, 1e-40, -1e-45, 6e-8, 1e150, -1e150, 1e-200]


def sides(dtype: torch.dtype, seed: int, special: list[float]) -> list[torch.Tensor]:
    """Reference, test and gold of 200 elements: equal, near, and far ones, and ``special`` in each."""
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randn(200, generator=generator, dtype=torch.float64)
    noise = 10.0 ** torch.randint(-18, 2, (2, 200), generator=generator, dtype=torch.float64)
    noise *= torch.randint(0, 2, (2, 200), generator=generator)
    made = [gold * (1 + noise[0]), gold * (1 + noise[1]), gold]
    made[1][:60] = made[0][:60]
    for side in made:
        where = torch.randint(0, 200, (40,), generator=generator)
        side[where] = torch.tensor(special, dtype=torch.float64)[
            torch.randint(0, len(special), (40,), generator=generator)
        ]
    made[1][100:130] = made[0][100:130]
    return [made[0].to(dtype), made[1].to(dtype), made[2]]


def flat(figures: accumulator.Figures) -> dict[str, object]:
    """Every figure, with the spreads' own figures in place of their scaled sums."""
    found = {name: value for name, value in vars(figures).items() if not isinstance(value, accumulator.Spread)}
    found["worst"] = [asdict(worst) for worst in figures.worst]
    for name in ("floor", "error", "magnitude"):
        spread = getattr(figures, name)
        found |= {f"{name}_max": spread.maximum, f"{name}_rms": spread.rms, f"{name}_count": spread.count}
    return found


def assert_same(left: dict[str, object], right: dict[str, object]) -> None:
    summed = {
        "mean_abs",
        "rmse",
        "mean_rel",
        "cosine",
        "snr_db",
        "reference_rms",
        "floor_rms",
        "error_rms",
        "magnitude_rms",
    }
    for name, value in left.items():
        if name in summed:
            assert right[name] == pytest.approx(value, rel=1e-12, abs=1e-13, nan_ok=True), name
        else:
            assert repr(right[name]) == repr(value), name


@pytest.mark.parametrize("special", [SPECIAL, SHORT, [0.0], [1.0]], ids=["nonfinite", "subnormal", "zero", "plain"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("with_gold", [False, True])
def test_the_short_way_agrees_with_the_general_way(dtype, special, with_gold):
    for seed in range(3):
        reference, test, gold = sides(dtype, seed, special)
        for limit in (13, 1000):
            for tolerance in (0.0, 1e-3):
                options = {"rtol": tolerance, "atol": tolerance, "limit": limit}
                short, general = (
                    one_pass.measure(reference, test, gold if with_gold else None, general=general, **options)
                    for general in (False, True)
                )
                assert_same(flat(short), flat(general))


@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16, torch.int32])
def test_the_short_way_agrees_where_dtypes_differ(other):
    reference, test, gold = sides(torch.float32, 0, [0.0, 2.0])
    test = (test * 100).to(other)
    short, general = (
        one_pass.measure(reference, test, gold, rtol=0.1, atol=0.1, limit=13, general=general)
        for general in (False, True)
    )
    assert_same(flat(short), flat(general))


def test_finite_chunks_take_the_short_way_and_others_do_not(monkeypatch):
    taken = []
    original = accumulator.Accumulator._add_finite

    def add(self, place, *sides):
        taken.append((place.first, original(self, place, *sides)))
        return taken[-1][1]

    monkeypatch.setattr(accumulator.Accumulator, "_add_finite", add)
    broken = torch.ones(30)
    broken[15] = math.nan
    one_pass.measure(torch.ones(30), broken, None, rtol=0.0, atol=0.0, limit=10)
    assert taken == [(0, True), (10, False), (20, True)]


def test_the_sign_of_a_zero_is_a_bit_but_no_error():
    zeros = torch.zeros(5)
    row = compare_tensors(zeros, -zeros)
    assert (row.verdict, row.max_ulp, row.mismatched, row.zero_reference) == ("within_tolerance", 0, 0, 5)
    assert compare_tensors(-zeros, -zeros).verdict == "exact"


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("limit", [3, 10, 1000])
def test_the_worst_elements_are_those_of_the_whole_tensor(general, limit):
    generator = torch.Generator().manual_seed(1)
    errors = torch.randint(0, 40, (300,), generator=generator).double()
    found = one_pass.measure(torch.zeros_like(errors), errors, None, rtol=0.0, atol=0.0, limit=limit, general=general)
    expected = sorted(enumerate(errors.tolist()), key=lambda pair: (-pair[1], pair[0]))[:8]
    assert [(worst.index[0], worst.test) for worst in found.worst] == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_distances_count_the_numbers_between_any_two_bit_patterns(dtype):
    width = 8 * torch.empty(0, dtype=dtype).element_size()
    if width <= 16:
        bits = torch.arange(2**width).to({8: torch.uint8, 16: torch.int16}[width])
    else:
        bits = torch.randint(
            -(2 ** (width - 1)), 2 ** (width - 1) - 1, (4096,), generator=torch.Generator().manual_seed(2)
        )
        bits = bits.to({32: torch.int32, 64: torch.int64}[width])
    values = bits.view(dtype)
    values = values[values.double().isfinite()]
    distinct = sorted(set(values.tolist()))  # both zeros are one number
    rank = {value: place for place, value in enumerate(distinct)}

    def distance(left, right):
        return formats.largest_distance(*(formats.bits(side, formats.array(side)) for side in (left, right)))

    if width <= 16:  # every number is there: neighbours are 1 apart
        below, above = (torch.tensor(side, dtype=torch.float64).to(dtype) for side in (distinct[:-1], distinct[1:]))
        assert distance(below, above) == 1
        assert all(distance(values[i : i + 1], values[:1]) == abs(rank[values[i].item()] - rank[values[0].item()])
                   for i in range(0, len(values), 97))  # fmt: skip
    shuffle = torch.randperm(len(values), generator=torch.Generator().manual_seed(3))
    magnitudes = [side.double().abs().to(dtype).view(bits.dtype).tolist() for side in (values, values[shuffle])]
    signs = [torch.where(side.double() < 0, -1, 1).tolist() for side in (values, values[shuffle])]
    signed = [[m * s for m, s in zip(*each, strict=True)] for each in zip(magnitudes, signs, strict=True)]
    gaps = [abs(a - b) for a, b in zip(*signed, strict=True)]
    assert distance(values, values[shuffle]) == max(gaps)
    assert [distance(values[i : i + 1], values[shuffle][i : i + 1]) for i in range(50)] == gaps[:50]


def test_a_float64_gold_equal_to_its_reference_is_found_out_in_any_chunk():
    reference = torch.ones(one_pass.CHUNK + 5, dtype=torch.float64)
    assert compare_tensors(reference, reference * 2, gold=reference.clone()).bound == "tolerance"
    gold = reference.clone()
    gold[-1] = 1.5
    assert compare_tensors(reference, reference * 2, gold=gold).bound in ("floor_rms", "floor_max")
