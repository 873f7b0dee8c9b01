"""The one-pass kernels of a CUDA device against the CPU's figures. Where there is no device, nothing here runs."""

from dataclasses import asdict
from typing import Any

import pytest
import torch

from inductor_debug.stages.numerics.comparison import KernelDiff, compare_tensors
from inductor_debug.stages.numerics.one_pass import begin

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 3e38, -3e38], dtype=torch.float64)


def sides(count: int, dtype: torch.dtype, *, special: bool) -> list[torch.Tensor]:
    """Reference, test and gold on the device; zeros among them, and on request what is not finite."""
    generator = torch.Generator().manual_seed(count)
    gold = torch.randn(count, generator=generator, dtype=torch.float64)
    gold[::7] = 0
    test = gold * (1 + 1e-2 * torch.randn(count, generator=generator, dtype=torch.float64))
    if special:
        for side in (gold, test):
            where = torch.randint(0, count, (count // 50 + 1,), generator=generator)
            side[where] = SPECIAL[torch.randint(0, len(SPECIAL), where.shape, generator=generator)]
    return [side.to("cuda") for side in (gold.to(dtype), test.to(dtype), gold)]


def figures(tensors: list[torch.Tensor], *, gold: bool) -> dict[str, Any]:
    reference, test, exact = tensors
    found = begin(reference, test, exact if gold else None, rtol=1e-3, atol=1e-4, histogram=True)()
    flat = {name: value for name, value in vars(found).items() if not hasattr(value, "rms")}
    flat["worst"] = [asdict(worst) for worst in found.worst]
    for name in ("floor", "error", "magnitude"):
        spread = getattr(found, name)
        flat |= {f"{name}_max": spread.maximum, f"{name}_rms": spread.rms, f"{name}_count": spread.count}
    return flat


def assert_same_figures(device: dict[str, Any], host: dict[str, Any]) -> None:
    for name, value in host.items():
        if isinstance(value, float):
            assert device[name] == pytest.approx(value, rel=1e-6, nan_ok=True), name
        elif name == "worst":
            assert str(device[name]) == str(value)
        else:
            assert device[name] == value, name


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("gold", [False, True], ids=["alone", "gold"])
@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 100_003])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_device_finds_what_the_host_finds(dtype: torch.dtype, count: int, gold: bool, special: bool) -> None:
    tensors = sides(count, dtype, special=special and count > 1)
    assert_same_figures(figures(tensors, gold=gold), figures([side.cpu() for side in tensors], gold=gold))


def test_ties_go_to_the_lowest_index_and_every_worst_element_is_found() -> None:
    reference = torch.zeros(1_000_000, device="cuda")
    test = reference.clone()
    places = [3, 4, 777_777, 512, 999_999, 100, 65_536, 65_537, 2, 131_072]
    test[places] = 1.0
    test[500_000] = 2.0
    worst = [item.index[0] for item in compare_tensors(reference, test).worst]
    assert worst == [500_000, *sorted(places)[:7]]


def test_huge_float64_values_do_not_overflow() -> None:
    reference = torch.full((5000,), 1e300, dtype=torch.float64, device="cuda")
    row, host = (compare_tensors(side, side * 2) for side in (reference, reference.cpu()))
    assert row.rmse == pytest.approx(1e300) and row.cosine == pytest.approx(1.0)
    assert row.snr_db == pytest.approx(host.snr_db)


@pytest.mark.parametrize("value", [3e38, 1e-44], ids=["largest", "subnormal"])
def test_relative_errors_at_the_ends_of_the_range(value: float) -> None:
    reference = torch.full((5000,), value, device="cuda")
    test = reference / 2
    assert compare_tensors(reference, test).max_rel == compare_tensors(reference.cpu(), test.cpu()).max_rel > 0.2


def test_different_dtypes_strides_and_devices() -> None:
    reference = torch.randn(300, 400, device="cuda")
    for test in (reference.double() * 1.5, reference.t().contiguous().t() * 1.5, (reference * 1.5).cpu()):
        row, host = compare_tensors(reference, test), compare_tensors(reference.cpu(), test.cpu())
        assert (row.mismatched, row.max_abs, row.worst_index) == (host.mismatched, host.max_abs, host.worst_index)
        assert row.rmse == pytest.approx(host.rmse)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_tensors_on_the_device_give_the_figures_of_dense_ones(layout: str) -> None:
    whole = torch.randn(300, 400, generator=torch.Generator().manual_seed(0))
    whole[whole < 0.5] = 0
    changed = whole.clone()
    changed[123, 234] += 7.0
    sides = [
        (side.to_sparse() if layout == "coo" else getattr(side, f"to_sparse_{layout}")()) for side in (whole, changed)
    ]
    expected, row = compare_tensors(whole, changed), compare_tensors(*(side.cuda() for side in sides))
    assert row.worst_index == expected.worst_index == [123, 234] and row.rmse == pytest.approx(expected.rmse)
    assert (row.mismatched, row.max_abs, row.max_ulp) == (expected.mismatched, expected.max_abs, expected.max_ulp)


def test_two_passes_give_the_same_bits_and_little_memory() -> None:
    tensors = sides(20_000_000, torch.float32, special=False)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    first, second = (figures(tensors, gold=True) for _ in range(2))
    assert first == second
    assert torch.cuda.max_memory_allocated() - before < 64 * 2**20


def test_many_tensors_are_compared_as_one_by_one() -> None:
    pairs = [sides(10_000 * size, torch.float32, special=False) for size in range(1, 6)]
    structure = [[pair[index] for pair in pairs] for index in range(3)]
    rows = KernelDiff().compare(*structure)
    assert [row.row() for row in rows] == [
        compare_tensors(*pair[:2], gold=pair[2], path=f"output[{index}]").row() for index, pair in enumerate(pairs)
    ]
