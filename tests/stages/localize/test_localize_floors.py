"""What is right by the noise that any draw has takes no draw, and what is judged by one is judged as before."""

from typing import Any

import pytest
import torch
from test_localize_replay import graph, inputs, right
from torch import fx

from inductor_debug.stages.localize.judging import replay
from inductor_debug.stages.localize.judging.evaluation import as_it_is
from inductor_debug.stages.localize.judging.replay import Local, Replay
from inductor_debug.stages.localize.judging.sweep import Sweep
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.sides.rounded import Rounded
from inductor_debug.stages.sides.sum_noise import sums_of

aten = torch.ops.aten


def uneven(*shape: int) -> torch.Tensor:
    """Rows of very different sizes."""
    return torch.randn(shape) * torch.randn(*shape[:-1], 1).exp()


PRODUCTS = {
    "mm": (aten.mm.default, lambda: (uneven(96, 200), torch.randn(200, 72)), {}),
    "bmm": (aten.bmm.default, lambda: (torch.randn(6, 40, 96), uneven(6, 96, 50)), {}),
    "addmm": (aten.addmm.default, lambda: (torch.randn(72), torch.randn(96, 200), uneven(200, 72)), {"alpha": 0.3}),
    "baddbmm": (aten.baddbmm.default, lambda: (torch.randn(6, 40, 50), torch.randn(6, 40, 96), uneven(6, 96, 50)), {}),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_products_noise_is_known_without_a_draw(name: str) -> None:
    """RMS within a tenth of those that are drawn, and no drawn maximum below what is told."""
    torch.manual_seed(0)
    target, given, options = PRODUCTS[name]
    args = given()
    wide = [item.double() for item in args]
    exact = target(*wide, **options)
    sums = sums_of(target, wide, options)
    assert sums is not None
    rms, most = sums.floors(float(exact.square().mean()))
    for seed in range(8):
        with Rounded(seed, torch.device("cpu")):
            noise = target(*args, **options).double() - exact
        assert 0.9 <= float(noise.square().mean().sqrt()) / rms < 2.0  # rounding to the format comes on top
        assert float(noise.abs().max()) >= most
    assert most > 2 * rms


def test_what_is_no_product_or_empty_has_no_such_noise() -> None:
    assert sums_of(aten.sum.default, (torch.ones(3),), {}) is None
    assert sums_of(aten.mm.default, (torch.ones(3, 0), torch.ones(0, 2)), {}) is None
    huge = torch.full((2, 2), 1e200, dtype=torch.float64)
    sums = sums_of(aten.mm.default, (huge, huge), {})
    assert sums is not None and sums.floors(1.0) == (0.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_draw_is_made_of_what_is_clearly_right(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(self: object, *args: Any) -> Any:
        raise AssertionError("a draw was made")

    monkeypatch.setattr(Rounded, "of_exact", drawn)
    values = right(inputs(dtype))
    seen = Seen("g0.forward", graph(dtype), torch.nn.Module(), inputs(dtype), {name: values[name] for name in "hrs"})
    found = {local.region.node.name: local for local in Replay(seen).locals()}
    assert [local.wrong for local in found.values()] == [False] * 3
    rows = [local.row for local in found.values()]
    assert all(row is not None and row.ratio is not None and row.ratio <= 4 for row in rows)
    relu = found["r"].row
    assert relu is not None and (relu.verdict, relu.bound, relu.ratio) == ("exact", "bits", 0.0)
    assert [local.slope_noise for local in found.values()] == [None] * 3


@pytest.mark.parametrize("times", [0.5, 1.0, 3.0, 6.0])
def test_the_verdict_is_that_of_draws(times: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors around the limit: whoever is right without a draw is right by draws too."""
    given = inputs()
    values = right(given)
    exact = given["x"].double() @ given["w"].double()
    with Rounded(3, torch.device("cpu")):
        noise = (given["x"] @ given["w"]).double() - exact
    values["h"] = (exact + times * noise).float()

    def verdicts() -> list[bool]:
        seen = Seen("g0.forward", graph(), torch.nn.Module(), given, {"h": values["h"]})
        return [local.wrong for local in Replay(seen).locals()]

    found = verdicts()
    monkeypatch.setattr(replay, "least_figures_of", lambda *args, **options: None)
    assert found == verdicts() == [times > 4]


def test_a_value_that_is_skipped_is_not_computed_but_for_others() -> None:
    """x → a = x + 1, b = a * 2 (seen), c = a * 3 (seen), of one kernel."""
    made = fx.Graph()
    x = made.placeholder("x")
    a = made.call_function(aten.add.Tensor, (x, 1.0), name="a")
    for name, factor in (("b", 2.0), ("c", 3.0)):
        made.call_function(aten.mul.Tensor, (a, factor), name=name)
    values = {"b": torch.zeros(3), "c": torch.zeros(3)}
    seen = Seen("g0.forward", made, torch.nn.Module(), {"x": torch.ones(3)}, values, dict.fromkeys("bc", "k"))
    regions = Replay(seen).regions
    computed: list[str] = []

    def noting(target: Any, args: Any, kwargs: Any) -> Any:
        computed.append(str(target))
        return as_it_is(target, args, kwargs)

    sweep = Sweep(seen, regions, noting)
    sweep.skip(regions[0])
    assert computed == []
    assert sweep.value(regions[1]).equal(torch.full((3,), 6.0))
    assert computed == ["aten.add.Tensor", "aten.mul.Tensor"] and not sweep._values
    sweep = Sweep(seen, regions, noting)
    assert sweep.value(regions[0]).equal(torch.full((3,), 4.0))
    sweep.skip(regions[1])
    assert computed == ["aten.add.Tensor", "aten.mul.Tensor"] * 2 and not sweep._values


def test_what_float64_does_not_give_is_told_as_before() -> None:
    seen = Seen("g0.forward", graph(), torch.nn.Module(), {"x": inputs()["x"]}, {"h": torch.ones(64, 80)})
    (local,) = Replay(seen).locals()
    assert isinstance(local, Local) and local.row is None and "w was not seen" in local.unchecked


@pytest.mark.parametrize("times", [1.0, 1.01])
def test_what_is_computed_of_complex_numbers_is_judged_by_complex128(times: float) -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    made.call_function(aten._fft_c2r.default, (x, [1, 2], 1, 14), name="r").meta["val"] = torch.empty(6, 10, 14)
    given = torch.randn(6, 10, 8, dtype=torch.complex64)
    exact = aten._fft_c2r(given.to(torch.complex128), [1, 2], 1, 14)
    seen = Seen("g0.forward", made, torch.nn.Module(), {"x": given}, {"r": (times * exact).float()})
    (local,) = Replay(seen).locals()
    assert local.row is not None and local.wrong is (times != 1)
    assert local.row.floor_rms is None or local.row.floor_rms < 1e-5
    if local.wrong:
        rms = float((0.01 * exact).square().mean().sqrt())
        assert local.row.error_rms == pytest.approx(rms, rel=1e-4)


def test_a_view_of_what_float64_lays_out_otherwise_is_judged() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    a = made.call_function(aten.mul.Tensor, (x, 3.0), name="a")
    made.call_function(aten.view.default, (a, [12]), name="v")
    given = torch.randn(3, 4).t()  # of which float64 of ``a`` takes the strides
    for times in (1.0, 1.01):
        seen = Seen("g0.forward", made, torch.nn.Module(), {"x": given}, {"v": (times * 3.0 * given).reshape(12)})
        (local,) = Replay(seen).locals()
        assert local.row is not None and local.wrong is (times != 1), local.unchecked
