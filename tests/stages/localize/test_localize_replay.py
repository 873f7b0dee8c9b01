"""Values of a graph against float64 of what their operations received, on graphs written by hand."""

import operator
from collections.abc import Mapping

import pytest
import torch
from torch import fx

from inductor_debug.stages.localize.judging import evaluation
from inductor_debug.stages.localize.judging.evaluation import Unknown, as_it_is, exactly, value_of
from inductor_debug.stages.localize.judging.replay import Local, Replay, is_steady
from inductor_debug.stages.localize.judging.slopes import slope_limit
from inductor_debug.stages.localize.runs.regions import Seen

aten = torch.ops.aten


def graph(dtype: torch.dtype = torch.float32) -> fx.Graph:
    """x, w → h = x @ w, r = relu(h), s = r * 3, t = sum(s)."""
    made = fx.Graph()
    x, w = made.placeholder("x"), made.placeholder("w")
    h = made.call_function(aten.mm.default, (x, w), name="h")
    r = made.call_function(aten.relu.default, (h,), name="r")
    s = made.call_function(aten.mul.Tensor, (r, 3.0), name="s")
    t = made.call_function(aten.sum.default, (s,), name="t")
    made.output((s, t))
    for node in made.nodes:
        node.meta["val"] = torch.empty((), dtype=dtype)
    return made


def inputs(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"x": torch.randn(64, 96, dtype=dtype), "w": torch.randn(96, 80, dtype=dtype)}


def right(given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What torch makes of it."""
    h = given["x"] @ given["w"]
    r = h.relu()
    s = r * 3
    return {"h": h, "r": r, "s": s, "t": s.sum()}


def look(values: Mapping[str, torch.Tensor], kernels: Mapping[str, str] | None = None) -> dict[str, Local]:
    dtype = next(iter(values.values())).dtype
    seen = Seen("g0.forward", graph(dtype), torch.nn.Module(), inputs(dtype), values, kernels or {})
    return {local.region.node.name: local for local in Replay(seen).locals()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_right_values_are_right(dtype: torch.dtype) -> None:
    found = look(right(inputs(dtype)))
    assert list(found) == ["h", "r", "s", "t"]
    assert not any(local.wrong or local.unchecked for local in found.values())


@pytest.mark.parametrize("node", ["h", "r", "s", "t"])
def test_the_value_that_is_wrong_is_the_one_and_what_follows_from_it_is_right(node: str) -> None:
    values = right(inputs())
    order = list(values)
    wrong = values[node] * 1.001
    follow = {"h": lambda v: v.relu(), "r": lambda v: v * 3, "s": lambda v: v.sum()}
    values[node] = wrong
    for before, after in zip(order[order.index(node) :], order[order.index(node) + 1 :], strict=False):
        values[after] = follow[before](values[before])
    assert [name for name, local in look(values).items() if local.wrong] == [node]


def test_a_region_is_what_computed_a_value_since_those_that_were_seen() -> None:
    values = right(inputs())
    del values["h"], values["r"]
    found = look(values)
    assert [node.name for node in found["s"].region.operations] == ["h", "r", "s"]
    assert [node.name for node in found["s"].region.received] == ["x", "w"]
    assert [node.name for node in found["t"].region.operations] == ["t"]


def test_a_kernel_may_go_on_with_its_register_or_with_what_it_stored() -> None:
    """In bfloat16 a sum of the registers is not that of the stored values; both are right of one kernel."""
    torch.manual_seed(1)
    given = inputs(torch.bfloat16)
    s = (given["x"].double() @ given["w"].double()).relu() * 3
    stored = s.bfloat16()
    registers, memory = s.sum().bfloat16(), stored.double().sum().bfloat16()
    for total in (registers, memory):
        one = look({"s": stored, "t": total}, {"s": "k:1", "t": "k:1"})
        assert not one["t"].wrong
    assert not look({"s": stored, "t": memory}, {"s": "k:1", "t": "k:2"})["t"].wrong


def test_what_comes_after_a_fault_in_the_same_kernel_is_not_blamed() -> None:
    values = right(inputs())
    values["s"] = values["s"] * 1.01
    values["t"] = values["s"].sum()
    found = look({name: values[name] for name in ("s", "t")}, {"s": "k:1", "t": "k:1"})
    assert found["s"].wrong and not found["t"].wrong


def test_an_element_on_the_other_side_of_a_branch_is_no_fault_and_a_wrong_one_is() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    y = made.call_function(aten.mul.Tensor, (x, 1 / 3), name="y")
    mask = made.call_function(aten.ge.Scalar, (y, 0.333984375), name="mask")
    z = made.call_function(aten.mul.Tensor, (mask, x), name="z")
    made.output((z,))
    for node in made.nodes:
        node.meta["val"] = torch.empty(())
    x_value = torch.linspace(0.5, 1.5, 257).bfloat16()
    x_value[100] = 1.0  # 1/3 is rounded to 0.333984375, or to the value below
    z_value = torch.where(x_value / 3 >= 0.333984375, x_value, 0.0)
    for other, wrong in ((1.0, False), (0.0, False), (5.0, True)):
        z_value[100] = other
        seen = Seen("g0.forward", made, torch.nn.Module(), {"x": x_value}, {"z": z_value.clone()})
        (local,) = Replay(seen).locals()
        assert local.wrong == wrong, other


def test_integers_are_right_where_a_right_computation_has_them() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    made.output((made.call_function(aten.argmin.default, (x,), name="i"),))
    for node in made.nodes:
        node.meta["val"] = torch.empty((), dtype=torch.int64)
    x_value = torch.tensor([3.0, 1.0, 2.0])
    for index, wrong in ((1, False), (2, True)):
        seen = Seen("g0.forward", made, torch.nn.Module(), {"x": x_value}, {"i": torch.tensor(index)})
        (local,) = Replay(seen).locals()
        assert local.wrong == wrong


def test_what_memory_held_before_is_not_judged() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    memory = made.call_function(aten.empty_like.default, (x,), name="memory")
    made.output((made.call_function(aten.copy.default, (memory, x), name="filled"),))
    for node in made.nodes:
        node.meta["val"] = torch.empty(4)
    values = {"memory": torch.tensor([7.0, float("nan"), 1e30, 0.0]), "filled": torch.arange(4.0)}
    seen = Seen("g0.forward", made, torch.nn.Module(), {"x": torch.arange(4.0)}, values)
    (local,) = Replay(seen).locals()
    assert local.region.node.name == "filled" and not local.wrong and not local.unchecked


def test_a_nan_that_float64_does_not_have_is_wrong() -> None:
    values = right(inputs())
    values["r"] = values["r"].clone()
    values["r"][3, 4] = float("nan")
    found = look(values)
    assert found["r"].wrong and not found["h"].wrong


def test_what_draws_random_numbers_is_not_checked_and_says_so() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    made.output((made.call_function(aten.bernoulli.default, (x,), name="mask"),))
    for node in made.nodes:
        node.meta["val"] = torch.empty(4)
    before = torch.get_rng_state()
    seen = Seen("g0.forward", made, torch.nn.Module(), {"x": torch.full((4,), 0.5)}, {"mask": torch.ones(4)})
    (local,) = Replay(seen).locals()
    assert local.row is None and "random" in local.unchecked
    assert torch.equal(before, torch.get_rng_state())


def test_an_input_that_was_not_seen_leaves_what_depends_on_it_unchecked() -> None:
    given = inputs()
    values = right(given)
    del given["w"]
    seen = Seen("g0.forward", graph(), torch.nn.Module(), given, values)
    found = {local.region.node.name: local for local in Replay(seen).locals()}
    assert found["h"].unchecked == "w was not seen" and found["r"].row is not None


def test_an_operator_that_writes_leaves_what_it_was_given() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    node = made.call_function(aten.add_.Tensor, (x, 1))
    held = torch.zeros(3, dtype=torch.float64)
    assert value_of(node, {x: held}, torch.nn.Module(), exactly).tolist() == [1, 1, 1]
    assert held.tolist() == [0, 0, 0]


def test_an_unknown_operator_is_unknown() -> None:
    made = fx.Graph()
    node = made.call_function(print, ())
    with pytest.raises(Unknown):
        value_of(made.call_function(test_an_unknown_operator_is_unknown, ()), {}, torch.nn.Module(), exactly)
    assert node.op == "call_function"


def test_slopes_of_truncation_and_of_a_small_factor_are_beyond_the_limit_and_of_rounding_are_not() -> None:
    torch.manual_seed(0)
    exact = torch.randn(1 << 16, dtype=torch.float64).exp()
    truncated = (exact.float().view(torch.int32) & -0x10000).view(torch.float32)
    for stored, steady in ((truncated, True), ((exact * 1.001).bfloat16(), True), (exact.bfloat16(), False)):
        error = stored.double() - exact
        slope = float(error.dot(exact) / exact.dot(exact))
        relative = float(error.norm() / exact.norm())
        limit = slope_limit(2.0**-8, exact.numel(), relative=relative, noise=1e-5, nearest=0.0, operations=3)
        assert (abs(slope) > limit) == steady, (slope, limit)


def test_values_that_come_from_the_same_operations_cost_each_operation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten results of one kernel, each of the one before; by itself each would take all operations before it."""
    made = fx.Graph()
    node = made.placeholder("x")
    for number in range(10):
        node = made.call_function(aten.mul.Tensor, (node, 1.5), name=f"n{number}")
    made.output((node,))
    for each in made.nodes:
        each.meta["val"] = torch.empty(())
    given = {"x": torch.randn(100)}
    values, value = {}, given["x"]
    for number in range(10):
        value = values[f"n{number}"] = value * 1.5
    asked: list[object] = []
    original = evaluation._exactly
    monkeypatch.setattr(evaluation, "_exactly", lambda *args: asked.append(args[0]) or original(*args))
    for kernels in ({}, dict.fromkeys(values, "k:1"), {**dict.fromkeys(values, "k:1"), "n4": "k:2"}):
        asked.clear()
        found = Replay(Seen("g0.forward", made, torch.nn.Module(), given, values, kernels)).locals()
        assert [local.region.node.name for local in found] == list(values) and not any(local.wrong for local in found)
        assert len(asked) == 10


def dropout_of(share: float, size: int) -> fx.Graph:
    made = fx.Graph()
    x = made.placeholder("x")
    both = made.call_function(aten.native_dropout.default, (x, share, True), name="both")
    kept = made.call_function(operator.getitem, (both, 0), name="kept")
    mask = made.call_function(operator.getitem, (both, 1), name="mask")
    made.output((kept, mask))
    for node in made.nodes:
        node.meta["val"] = torch.empty(size)
    return made


def test_torchs_own_dropout_rounds_its_factor_and_is_right() -> None:
    """On the CPU to bfloat16: each value is off by 0.16 %, in one direction."""
    made, given = dropout_of(0.1, 4096), torch.randn(4096).bfloat16()
    kept, mask = torch.native_dropout(given, 0.1, True)
    drawn = Seen("g0.forward", made, torch.nn.Module(), {"x": given}, {"kept": kept, "mask": mask}).drawn
    both = next(node for node in made.nodes if node.name == "both")
    again = value_of(both, {both.args[0]: given}, torch.nn.Module(), as_it_is, drawn)
    assert torch.equal(again[0], kept)
    for factor, steady in ((1.0, False), (0.995, True)):
        seen = Seen("g0.forward", made, torch.nn.Module(), {"x": given}, {"kept": kept * factor, "mask": mask})
        local, _ = Replay(seen).locals()
        assert (is_steady(local) or local.wrong) == steady


def test_dropout_is_checked_by_the_mask_that_it_drew() -> None:
    made = dropout_of(0.25, 64)
    given = torch.randn(64)
    drawn = torch.rand(64) > 0.25
    for factor, wrong in ((1 / 0.75, False), (1.0, True)):
        values = {"kept": given * drawn * factor, "mask": drawn}
        found = Replay(Seen("g0.forward", made, torch.nn.Module(), {"x": given}, values)).locals()
        assert {local.region.node.name: local.wrong for local in found} == {"kept": wrong, "mask": False}


def test_a_value_without_elements_is_right() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    made.output((made.call_function(aten.mul.Tensor, (x, 2.0), name="twice"),))
    seen = Seen("g0.forward", made, torch.nn.Module(), {"x": torch.empty(0, 3)}, {"twice": torch.empty(0, 3)})
    (local,) = Replay(seen).locals()
    assert not local.wrong and not local.unchecked
