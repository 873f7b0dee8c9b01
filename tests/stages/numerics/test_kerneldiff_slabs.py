"""What a CUDA device's kernels can't read as it is: copies of it, a slab at a time, have the figures of the tensor.

The kernels' place is taken by plain NumPy here, so that a device is not needed. The kernels have tests of their own.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import torch

from inductor_debug.stages.numerics import formats, one_pass
from inductor_debug.stages.numerics.accumulator import Figures
from inductor_debug.stages.numerics.device.device_figures import INTEGERS, WIDTHS, Care, DeviceFigures
from inductor_debug.stages.numerics.device.device_pass import flat
from inductor_debug.stages.numerics.histogram import BINS, bins_of

COVERED = 40


class HostPass:
    """A ``DevicePass`` over finite values on the host: whole tiles of 8 elements, at most :data:`COVERED`."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        atol: float,
        rtol: float,
        care: Care,
        histogram: bool,
        first: int = 0,
        alone: bool = False,
    ) -> None:
        known = {*WIDTHS, *INTEGERS} - {torch.bool}
        tensors = [flat(tensor) for tensor in tensors]
        assert all(tensor.dtype in known for tensor in tensors)
        self.first, self.care, self.atol, self.rtol, self.dtype = first, care, atol, rtol, tensors[0].dtype
        self.covered = min(len(tensors[0]) // 8 * 8, COVERED)
        self.tensors = [tensor[: self.covered] for tensor in tensors]

    def read(self) -> DeviceFigures:
        left, right, *golds = (tensor.double().numpy() for tensor in self.tensors)
        error, size = numpy.abs(right - left), numpy.abs(left)
        relative = error[size > 0] / size[size > 0]
        floats = all(tensor.is_floating_point() for tensor in self.tensors[:2])
        bits = [formats.bits(tensor, formats.array(tensor)) if floats else left for tensor in self.tensors[:2]]
        sums: dict[str, float | int] = {
            "sum_abs": error.sum(), "squares": error @ error, "sum_rel": relative.sum(), "left": left @ left,
            "right": right @ right, "dot": left @ right, "top_rel": relative.max(initial=0), "top_left": size.max(),
            "top_right": numpy.abs(right).max(), "mismatched": int((error > self.atol + self.rtol * size).sum()),
            "zeros": int((size == 0).sum()), "finite": len(left), "in_gold": len(left), "ulp": 0, "doubts": 0,
            "unlike_lanes": int((bits[0] != bits[1]).any()) if bits[0].dtype == bits[1].dtype else 0,
        }  # fmt: skip
        sums |= dict.fromkeys(("nan_left", "nan_right", "inf_left", "inf_right", "beyond", "nan_rel"), 0)
        if floats and bits[0].dtype == bits[1].dtype:
            sums["ulp"] = formats.largest_distance(*bits)
        for gold in golds:
            for name, gap in (("floor", left - gold), ("error", right - gold), ("gold", gold)):
                sums[f"top_{name}"] = numpy.abs(gap).max()
                sums["magnitude" if name == "gold" else name] = gap @ gap
        ranked = sorted((-gap, place) for place, gap in enumerate(error.tolist()) if gap)[:8]
        worst = [(gap, self.first + place, left.item(place), right.item(place)) for gap, place in ranked]
        bins = torch.bincount(bins_of(torch.from_numpy(error)), minlength=BINS).tolist()
        return DeviceFigures(sums, bins, worst)


def told(figures: Figures) -> dict[str, Any]:
    found = {name: value for name, value in vars(figures).items() if not hasattr(value, "rms")}
    for name in ("floor", "error", "magnitude"):
        spread = getattr(figures, name)
        found |= {f"{name}_count": spread.count, f"{name}_max": spread.maximum, f"{name}_rms": spread.rms}
    return found


def assert_found_on_device(monkeypatch: pytest.MonkeyPatch, reference: Any, test: Any, gold: Any = None) -> None:
    monkeypatch.setattr(one_pass, "DevicePass", HostPass)
    monkeypatch.setattr(one_pass, "SLAB", 90)
    options: dict[str, Any] = {"rtol": 0.1, "atol": 0.1, "worst": 8, "histogram": True}
    tensors = [reference, test] + ([] if gold is None else [gold])
    found, expected = (
        told(figures)
        for figures in (
            one_pass._on_device(tensors, **options)(),
            one_pass.measure(reference.contiguous(), test.contiguous(), gold, **options),
        )
    )
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name
        elif name == "worst" and not reference.is_contiguous():  # of equal errors the first in memory may be others
            assert [item.error for item in found[name]] == [item.error for item in value]
            sides = [[side[tuple(item.index)].item() for side in (reference, test)] for item in found[name]]
            assert sides == [[item.reference, item.test] for item in found[name]]
        else:
            assert repr(found[name]) == repr(value), name


@pytest.mark.parametrize("with_gold", [False, True], ids=["alone", "gold"])
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)], ids=str)
def test_strided_floats(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], dtype: torch.dtype, with_gold: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randint(-9, 9, (7, 9, 11), generator=generator).double() for _ in range(3)]
    reference, test = (side.to(dtype).permute(order) for side in made[:2])
    assert_found_on_device(monkeypatch, reference, test, made[2].permute(order).contiguous() if with_gold else None)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_integers(monkeypatch: pytest.MonkeyPatch, transposed: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    sides = [torch.randint(least, most + 1, (19, 23), generator=generator).to(dtype) for _ in range(2)]
    sides[1][5] = sides[0][5]
    if transposed:
        sides = [side.t() for side in sides]
    assert_found_on_device(monkeypatch, *sides)
    assert_found_on_device(monkeypatch, sides[0], sides[0].clone())


def test_a_float_against_an_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.arange(200, dtype=torch.int32).view(10, 20).t()
    assert_found_on_device(monkeypatch, whole * 1.25, whole)
    assert_found_on_device(monkeypatch, whole, whole.double() * math.pi)


def test_what_fills_its_memory_in_one_order_is_queued_at_once_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []

    class Counted(HostPass):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr(one_pass, "DevicePass", Counted)
    options: dict[str, Any] = {"rtol": 0.0, "atol": 0.0, "worst": 8, "histogram": False}
    square = torch.ones(20, 20)
    for sides in ([square.t(), square], [square[:, ::2]] * 2, [square[:1].expand(20, 20)] * 2):
        finish = one_pass._on_device(sides, **options)
        assert not begun
        finish()
        assert sum(each.covered for each in begun) == sides[0].numel()
        begun.clear()
    for sides in ([square] * 2, [square.int()] * 2, [square.t()] * 2, [square.bool().t()] * 2):
        one_pass._on_device(sides, **options)
        assert sum(each.covered for each in begun) == 400
        begun.clear()


@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0)], ids=str)
def test_the_worst_elements_of_permuted_tensors_have_their_logical_index(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    monkeypatch.setattr(one_pass, "DevicePass", HostPass)
    reference = torch.zeros(5, 7, 13).permute(order)
    test = torch.arange(455.0)[torch.randperm(455, generator=torch.Generator().manual_seed(0))]
    test = test.view(5, 7, 13).permute(order)
    worst = one_pass._on_device([reference, test], rtol=0.0, atol=0.0, worst=8, histogram=False)().worst
    assert [item.test for item in worst] == [float(454 - rank) for rank in range(8)]
    assert all(test[tuple(item.index)] == item.test for item in worst)
