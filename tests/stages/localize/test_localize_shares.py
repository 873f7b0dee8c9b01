"""Shares of the final error: they add up to it, tell what costs it, and what remains where something is mended."""

import operator
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_localize_engine import net, times, wrong_lowering
from torch import Tensor, fx, nn

from inductor_debug import localize
from inductor_debug.stages.artifacts.localization import Localization
from inductor_debug.stages.localize import messages
from inductor_debug.stages.localize.accounting import passes
from inductor_debug.stages.localize.accounting.account import account
from inductor_debug.stages.localize.accounting.frozen import Step
from inductor_debug.stages.localize.accounting.links import Ends
from inductor_debug.stages.localize.accounting.shares import fewest, shares_of
from inductor_debug.stages.localize.config import TRUSTED
from inductor_debug.stages.localize.engine import Localized
from inductor_debug.stages.localize.looked_at import LookedAt, largest
from inductor_debug.stages.localize.runs.regions import Seen

aten = torch.ops.aten


def graph_of(build: Any, count: int) -> fx.Graph:
    """A graph of ``count`` inputs, whose result is what ``build`` gives of them."""
    graph = fx.Graph()
    result = build(graph, *(graph.placeholder(f"x{number}") for number in range(count)))
    graph.output((result,) if isinstance(result, fx.Node) else tuple(result))
    return graph


def seen_of(graph: fx.Graph, inputs: list[Tensor], wrong: dict[str, Tensor]) -> Seen:
    """A run in float32 of which every value was seen; those that are ``wrong`` have an error more."""
    values: dict[fx.Node, Any] = {}
    given = {}
    for node, value in zip((node for node in graph.nodes if node.op == "placeholder"), inputs, strict=True):
        values[node] = given[node.name] = value
    for node in graph.nodes:
        if node.op == "call_function":
            args = fx.map_arg(node.args, values.__getitem__)
            values[node] = node.target(*args)
            if node.name in wrong:
                values[node] = values[node] + wrong[node.name]
    found = {node.name: value for node, value in values.items() if node.op == "call_function"}
    return Seen("g0.forward", graph, nn.Module(), given, found)


def step_of(seen: Seen) -> Step:
    """A step that gives what one graph gives."""
    (output,) = (node for node in seen.graph.nodes if node.op == "output")
    return Step([seen], Ends(outputs={node.name: seen.values[node.name] for node in output.args[0]}))


def chain(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    product = named(graph, "mm", aten.mm.default, x, y)
    return named(graph, "tanh", aten.tanh.default, named(graph, "mul", aten.mul.Tensor, product, product))


def named(graph: fx.Graph, name: str, target: Any, *args: Any) -> fx.Node:
    return graph.create_node("call_function", target, args, name=name)


def test_shares_are_what_each_error_makes_of_the_result() -> None:
    """Of two errors, checked against float64 with each of them alone."""
    torch.manual_seed(0)
    graph = graph_of(chain, 2)
    x, y = torch.randn(2, 6, 6) / 2
    wrong = {"mm": 1e-3 * torch.randn(6, 6), "mul": 3e-3 * torch.randn(6, 6)}
    step = step_of(seen_of(graph, [x, y], wrong))
    found = shares_of(step)

    def result(*names: str) -> Tensor:
        errors = {name: wrong[name].double() if name in names else 0.0 for name in wrong}
        product = x.double() @ y.double() + errors["mm"]
        return (product * product + errors["mul"]).tanh()

    error = result("mm", "mul") - result()
    for name in wrong:
        alone = result(name) - result()
        assert found.own["g0.forward", name] == pytest.approx(
            float((alone * error).sum() / error.square().sum()), abs=0.01
        )
        other = ({*wrong} - {name}).pop()
        expected = float((result(other) - result()).norm() / error.norm())
        assert step.remaining([("g0.forward", name)]) == pytest.approx(expected, abs=0.002)
    assert found.closure == pytest.approx(1, abs=1e-3)
    assert step.remaining([]) == pytest.approx(1, abs=1e-6)


def test_a_large_error_is_linearized_half_way() -> None:
    """A product three times too large, which at what was seen alone would have another share than 1."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 6) / 4
    step = step_of(seen_of(graph_of(chain, 2), [x, y], {"mm": 2 * (x @ y)}))
    assert shares_of(step).closure == pytest.approx(1, abs=0.1)


def test_a_mask_that_is_not_golds_has_a_share_of_its_own() -> None:
    """Both as a tensor of its own and inside the gradient of ReLU, which decides by a number."""

    def masked(graph: fx.Graph, x: fx.Node, gradient: fx.Node) -> list[fx.Node]:
        moved = named(graph, "mul", aten.mul.Tensor, x, 1.0)
        mask = named(graph, "gt", aten.gt.Scalar, moved, 0.0)
        chosen = graph.call_function(aten.where.self, (mask, gradient, x))
        return [chosen, graph.call_function(aten.threshold_backward.default, (gradient, moved, 0))]

    torch.manual_seed(0)
    graph = graph_of(masked, 2)
    x, gradient = torch.randn(2, 200)
    wrong = {"mul": torch.where(x.abs() < 0.1, -2 * x, 0.0)}
    seen = seen_of(graph, [x, gradient], wrong)
    step = step_of(seen)
    found = shares_of(step)
    assert found.closure == pytest.approx(1, abs=1e-6)
    assert set(found.decisions) == {("g0.forward", "gt"), ("g0.forward", "mul")}
    assert all(share > 0.1 for share in found.decisions.values())
    assert found.own.get(("g0.forward", "mul"), 0.0) == pytest.approx(0, abs=1e-9)


def test_the_fewest_values_to_mend_are_those_that_matter() -> None:
    torch.manual_seed(0)

    def several(graph: fx.Graph, *inputs: fx.Node) -> fx.Node:
        terms = [named(graph, f"sin_{number}", aten.sin.default, item) for number, item in enumerate(inputs)]
        while len(terms) > 1:
            terms = [graph.call_function(aten.add.Tensor, (terms[0], terms[1])), *terms[2:]]
        return terms[0]

    graph = graph_of(several, 6)
    sizes = {"sin_0": 1e-6, "sin_1": 1e-3, "sin_2": 1e-6, "sin_3": 2e-3, "sin_4": 1e-6}
    inputs = list(torch.randn(6, 50))
    step = step_of(seen_of(graph, inputs, {name: size * torch.randn(50) for name, size in sizes.items()}))
    found = shares_of(step)
    assert fewest(step, found, 0.9) == [("g0.forward", "sin_3")]
    assert fewest(step, found, 0.01) == [("g0.forward", "sin_3"), ("g0.forward", "sin_1")]


def test_a_result_of_several_is_mended_though_nothing_before_it_is_wrong() -> None:
    def parts(graph: fx.Graph, x: fx.Node) -> fx.Node:
        both = graph.call_function(aten.var_mean.correction, (x, [0]))
        mean = named(graph, "mean", operator.getitem, both, 1)
        return named(graph, "tanh", aten.tanh.default, mean)

    torch.manual_seed(0)
    step = step_of(seen_of(graph_of(parts, 1), [torch.randn(9, 4)], {"mean": 1e-3 * torch.randn(4)}))
    assert step.remaining([("g0.forward", "mean")]) < 1e-3 and step.remaining([]) == pytest.approx(1, abs=1e-4)


def test_of_a_long_graph_only_what_was_seen_or_other_segments_take_is_kept() -> None:
    def long(graph: fx.Graph, x: fx.Node) -> fx.Node:
        for number in range(300):
            x = named(graph, f"sin_{number}", aten.sin.default, x)
        return x

    torch.manual_seed(0)
    wrong = {f"sin_{number}": 1e-4 * torch.randn(50) for number in range(300)}
    seen = seen_of(graph_of(long, 1), [torch.randn(50)], wrong)
    tenth = {name: value for number, (name, value) in enumerate(seen.values.items()) if number % 10 == 9}
    step = step_of(replace(seen, values=tenth))
    (run,) = step.passes
    segments = 300 / passes.SEGMENT
    assert len(run.erring) == len(tenth) == 30
    assert len(tenth) <= len(run.error) < len(tenth) + segments + 1
    found = shares_of(step)
    assert set(found.own) == {("g0.forward", name) for name in tenth}
    assert found.closure == pytest.approx(1, abs=1e-3)
    assert len(run.error) < len(tenth) + segments + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_shares_do_not_depend_on_segments(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compiled(backend, "training", torch.bfloat16)
    monkeypatch.setattr(passes, "SEGMENT", 2)
    small = compiled(backend, "training", torch.bfloat16)
    assert small.localization.closure == pytest.approx(1, abs=0.02)
    names = [(row.graph, row.node) for row in whole.rows if row.share is not None]
    assert names == [(row.graph, row.node) for row in small.rows if row.share is not None]
    for mine, other in zip(whole.rows, small.rows, strict=True):
        assert (mine.share, mine.decisions) == pytest.approx((other.share, other.decisions), abs=1e-4)


def compiled(backend: str, mode: str, dtype: torch.dtype) -> Localized:
    module, x = net(mode, dtype)
    return localize(module, (x,), backend=backend, mode=mode)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_shares_of_a_clean_model_add_up(backend: str, mode: str, dtype: torch.dtype) -> None:
    found = compiled(backend, mode, dtype)
    told = found.localization
    assert not told.unaccounted and told.culprits == []
    assert told.closure == pytest.approx(1, abs=0.02)
    stored = sum(row.share or 0.0 for row in found.rows) + sum(row.decisions or 0.0 for row in found.rows)
    assert stored == pytest.approx(told.closure)
    assert "of the final error" in told.message.lower()
    if backend == "aot_eager":
        assert told.largest == 1 and told.checked == told.operations


def test_of_a_fault_that_is_mended_nothing_remains() -> None:
    module, x = net()
    with wrong_lowering(aten.rsqrt.default, times(1.01)):
        (culprit,) = localize(module, (x,)).localization.culprits
    assert culprit.place.target == "aten.rsqrt.default" and 0 < float(culprit.remains or 0) < 1e-3


def test_a_fault_is_named_though_its_shares_can_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*args: Any) -> Any:
        raise MemoryError("too much")

    monkeypatch.setattr("inductor_debug.stages.localize.engine.account", raising)
    module, x = net()
    with wrong_lowering(aten.rsqrt.default, times(1.01)):
        found = localize(module, (x,)).localization
    assert [item.place.target for item in found.culprits] == ["aten.rsqrt.default"]
    assert found.closure is None and "Not accounted for: shares of the final error: MemoryError" in found.message


def test_an_error_is_laid_out_as_its_value_is_so_that_a_view_is_one_of_both() -> None:
    def viewed(graph: fx.Graph, x: fx.Node) -> fx.Node:
        moved = named(graph, "sin", aten.sin.default, x)
        return named(graph, "tanh", aten.tanh.default, named(graph, "view", aten.view.default, moved, [12]))

    torch.manual_seed(0)
    graph, x = graph_of(viewed, 1), torch.randn(3, 4)
    error = 1e-3 * torch.randn(3, 4)
    (run,) = step_of(seen_of(graph, [x], {"sin": error})).passes
    moved, node = (next(item for item in graph.nodes if item.name == name) for name in ("sin", "view"))
    run._set_error(moved, error.t().contiguous().t())
    assert run.error[moved].stride() == run.actual[moved].stride()
    assert run._fill_view(node)
    torch.testing.assert_close(run.error[node], error.reshape(12))


def test_a_view_that_only_the_strides_of_the_run_allow_is_followed() -> None:
    """What float64 gives is laid out as torch lays it out; the run's value may be as a kernel left it."""

    def turned(graph: fx.Graph, x: fx.Node) -> fx.Node:
        other = named(graph, "other", aten.permute.default, named(graph, "sin", aten.sin.default, x), [1, 0])
        return named(graph, "twice", aten.mul.Tensor, named(graph, "flat", aten.view.default, other, [12]), 2)

    torch.manual_seed(0)
    graph, x = graph_of(turned, 1), torch.randn(4, 3)
    wrong = (x.sin() + 1e-3 * torch.randn(4, 3)).t().contiguous().t()
    values = {"sin": wrong, "other": wrong.t(), "flat": wrong.t().view(12), "twice": wrong.t().view(12) * 2}
    step = step_of(Seen("g0.forward", graph, nn.Module(), {"x0": x}, values))
    found = shares_of(step)
    assert found.missing == [] and found.closure == pytest.approx(1, abs=1e-6)
    assert found.own["g0.forward", "sin"] == pytest.approx(1, abs=1e-3)


def test_what_gold_has_of_a_value_is_told_where_it_is_not_known() -> None:
    def refused(graph: fx.Graph, x: fx.Node) -> fx.Node:
        return named(graph, "grown", aten.view.default, named(graph, "sin", aten.sin.default, x), [13])

    graph, x = graph_of(refused, 1), torch.randn(4, 3)
    step = step_of(Seen("g0.forward", graph, nn.Module(), {"x0": x}, {"sin": x.sin() + 1e-3, "grown": torch.randn(13)}))
    (told,) = step.missing
    assert told.startswith("g0.forward grown (aten.view.default): ") and shares_of(step).missing == []


def test_where_first_order_does_not_account_for_the_error_values_are_mended_one_at_a_time() -> None:
    """Checked against float64 with each error alone left out."""
    torch.manual_seed(0)

    def grown(graph: fx.Graph, x: fx.Node) -> fx.Node:
        return named(graph, "exp", aten.exp.default, named(graph, "mul", aten.mul.Tensor, x, x))

    x = torch.rand(64)
    wrong = {"mul": torch.full((64,), 6.0), "exp": torch.rand(64)}
    seen = seen_of(graph_of(grown, 1), [x], wrong)
    found = account([seen], Ends(outputs={"exp": seen.values["exp"]}), {}, None)
    assert found.closure is not None and abs(found.closure - 1) > TRUSTED
    gold, square = x.double().square().exp(), x.double().square()
    whole = (square + wrong["mul"]).exp() + wrong["exp"] - gold
    without = {"mul": wrong["exp"].double(), "exp": (square + wrong["mul"]).exp() - gold}
    assert [name for (_, name), _ in found.ranked] == ["mul", "exp"]
    for (_, name), share in found.ranked:
        assert share == pytest.approx(1 - float(without[name].norm() / whole.norm()), abs=1e-4)
    told = messages.told(
        Localization("none", "observed", "", closure=found.closure, shares=largest([LookedAt(seen, {})], found)),
        failed=False,
    )
    assert "first order does not account for it. With one value at a time right" in told.message
    assert "(g0.forward mul)" in told.message
