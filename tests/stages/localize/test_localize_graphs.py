"""Shares of the final error of a step that runs several graphs: they are followed from one to the next."""

from typing import Any

import pytest
import torch
from test_localize_engine import times, wrong_lowering
from torch import Tensor, fx, nn

from inductor_debug import localize
from inductor_debug.models.case import Case
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.localize.accounting.frozen import Step
from inductor_debug.stages.localize.accounting.links import SUMS, Ends, Ledger, summed
from inductor_debug.stages.localize.accounting.shares import shares_of
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 32), nn.Linear(32, 24)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.sigmoid(self.up(self.norm(x))))


class Breaks(nn.Module):
    """Two graphs, and between them what ``between`` does in eager."""

    def __init__(self, between: Any = None, after: Any = None) -> None:
        super().__init__()
        self.block, self.last, self.between, self.after = Block(), nn.Linear(24, 8), between, after

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        hidden = self.block(x)
        torch._dynamo.graph_break()
        if self.between is not None:
            hidden = self.between(hidden)
            torch._dynamo.graph_break()
        result = self.last(hidden.reshape(16, 24)).softmax(-1)
        return (result, hidden) if self.after is None else (result, self.after(hidden))


class Part(Block):
    """Breaks within, so that each call of it runs the same graphs."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(x)
        torch._dynamo.graph_break()
        return x + self.down(torch.relu(self.up(hidden)))


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part, self.last = Part(), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.part(self.part(self.part(x)))).softmax(-1)


class Attends(nn.Module):
    """Attention before a break and after it, with what comes before it added to what comes after."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(24, 4, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        first = self.layers[0](x[None], x[None], x[None], need_weights=False)[0]
        torch._dynamo.graph_break()
        return first + self.layers[1](first, first, first, need_weights=False)[0]


@torch._dynamo.disable
def plus(x: Tensor) -> Tensor:
    return x * 1.5 + 1


@torch._dynamo.disable
def added_to(x: Tensor) -> Tensor:
    return x.add_(1)


@torch._dynamo.disable
def turned(x: Tensor) -> Tensor:
    return x.t()


@torch._dynamo.disable
def reshaped(x: Tensor) -> Tensor:
    return x.reshape(2, 8, 24)


def searched(module: nn.Module, backend: str, mode: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(16, 24).to(dtype)
    return localize(module.to(dtype).train(mode == "training"), (x,), backend=backend, mode=mode)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("kind", "graphs"), [(Breaks, 2), (Repeats, 3), (Attends, 2)])
def test_shares_of_several_graphs_add_up(
    kind: type[nn.Module], graphs: int, backend: str, mode: str, dtype: torch.dtype
) -> None:
    found = searched(kind(), backend, mode, dtype)
    told = found.localization
    assert (told.culprits, told.missing, told.unaccounted) == ([], [], [])
    assert told.closure == pytest.approx(1, abs=0.02)
    stored = sum(row.share or 0.0 for row in found.rows) + sum(row.decisions or 0.0 for row in found.rows)
    assert stored == pytest.approx(told.closure)
    ran = {row.graph for row in found.rows} - {SUMS}
    assert len(ran) >= graphs * (2 if mode == "training" else 1)
    if kind is Repeats:
        assert {row.call for row in found.rows} >= {0, 1}
        assert (
            mode == "inference" or dtype == torch.float32 or any(row.graph == SUMS and row.share for row in found.rows)
        )


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_fault_in_the_first_graph_makes_the_error_of_the_last(mode: str) -> None:
    with wrong_lowering(aten.sigmoid.default, times(1.02)):
        found = searched(Breaks(), "inductor", mode)
    (culprit,) = found.localization.culprits
    assert (culprit.place.graph, culprit.place.target) == ("g0.forward", "aten.sigmoid.default")
    assert float(culprit.remains) < 1e-3
    assert found.localization.closure == pytest.approx(1, abs=0.02)
    shares = [share.share for share in found.localization.shares if share.graph == "g0.forward"]
    assert max(shares) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("between", [plus, turned])
def test_code_between_graphs_is_told(between: Any, mode: str) -> None:
    told = searched(Breaks(between), "aot_eager", mode).localization
    assert told.closure is None and not told.shares
    assert "Not accounted for: shares of the final error: g1.forward received" in told.message
    assert "which code outside of graphs made" in told.message


def test_what_code_between_graphs_writes_over_is_known_as_it_was() -> None:
    module, x = Breaks(added_to), torch.randn(16, 24)
    run = reference_run(Case.of(module, (x,)), AotEagerAdapter())
    first, second = run.seen
    with torch.no_grad():
        hidden = module.block(x)
    (output,) = (node for node in first.graph.nodes if node.op == "output")
    torch.testing.assert_close(first.values[output.args[0][0].name], hidden)
    after = first.values[output.args[0][0].name] + 1
    assert any(torch.equal(value, after) for value in second.inputs.values())
    assert searched(module, "aot_eager", "inference").localization.closure is None


def test_what_the_case_has_before_and_after_is_not_copied() -> None:
    module, x = Breaks(), torch.randn(16, 24)
    run = reference_run(Case.of(module, (x,), mode="training"), AotEagerAdapter())
    weights = {parameter.data_ptr() for parameter in module.parameters()}
    received = {value.data_ptr() for seen in run.seen for value in seen.inputs.values()}
    assert weights <= received


def test_what_is_only_looked_at_otherwise_between_graphs_is_followed() -> None:
    told = searched(Breaks(reshaped), "aot_eager", "training").localization
    assert told.closure == pytest.approx(1, abs=0.02) and not told.unaccounted


def test_an_output_that_code_behind_the_graphs_made_is_told() -> None:
    told = searched(Breaks(after=plus), "aot_eager", "inference").localization
    assert told.closure == pytest.approx(1, abs=0.02)
    assert "Not accounted for: the error of output[1], which code outside of graphs made." in told.message


def test_a_gradient_that_a_hook_changes_is_told() -> None:
    module = Breaks()
    module.last.weight.register_hook(lambda gradient: 2 * gradient)
    told = searched(module, "aot_eager", "training").localization
    assert told.unaccounted == ["the error of gradient last.weight, which code outside of graphs made"]


def run_of(graph_id: str, count: int, inputs: list[Tensor], values: list[Tensor]) -> Seen:
    """A run that doubles each of its inputs, and gives ``values`` instead."""
    graph = fx.Graph()
    given = [graph.placeholder(f"{graph_id[:2]}_x{number}") for number in range(count)]
    doubled = [graph.call_function(aten.mul.Tensor, (node, 2.0)) for node in given]
    graph.output(tuple(doubled))
    return Seen(
        graph_id,
        graph,
        nn.Module(),
        {node.name: value for node, value in zip(given, inputs, strict=True)},
        {node.name: value for node, value in zip(doubled, values, strict=True)},
    )


def test_what_two_values_could_have_given_is_not_guessed() -> None:
    """Two results of the same bits, of which one is wrong: a later graph received one of them."""
    x, y = torch.ones(8), torch.full((8,), 1.01)
    first = run_of("g0.forward", 2, [x, y], [2 * x, 2 * x])
    second = run_of("g1.forward", 1, [2 * x], [4 * x])
    step = Step([first, second], Ends(outputs={"output": 4 * x}))
    assert not step.passes and "g1_x0, which is bit for bit what several gave" in step.missing[0]
    right = run_of("g0.forward", 2, [x, x], [2 * x, 2 * x])
    step = Step([right, second], Ends(outputs={"output": 4 * x}))
    assert step.passes and not step.missing


def test_an_error_goes_through_every_pass() -> None:
    """A wrong value of the first of two, that the second doubles: all of the error is the first's."""
    torch.manual_seed(0)
    x = torch.randn(8)
    wrong = 2 * x + 1e-3 * torch.randn(8)
    step = Step([run_of("g0.forward", 1, [x], [wrong]), run_of("g1.forward", 1, [wrong], [2 * wrong])],
                Ends(outputs={"output": 2 * wrong}))  # fmt: skip
    found = shares_of(step)
    assert found.own["g0.forward", "mul_tensor"] == pytest.approx(1, abs=1e-3)
    assert found.closure == pytest.approx(1, abs=1e-3)
    assert step.remaining([("g0.forward", "mul_tensor")]) < 1e-3 and step.remaining([]) == pytest.approx(1)


def test_values_are_found_by_their_bits() -> None:
    ledger = Ledger()
    value = torch.randn(4, 6)
    place = 0, fx.Graph().placeholder("x")
    ledger.add(value, place)
    assert ledger.places(value.reshape(24).clone()) == [place]
    other = value.clone()
    other[1, 2] = torch.nextafter(other[1, 2], torch.tensor(9.0))
    assert not ledger.places(other) and not ledger.places(value.t()) and not ledger.places(value.double())
    ledger.add(torch.zeros(3), None)
    assert ledger.places(torch.zeros(3)) == [None] and not ledger.places(-torch.zeros(3))


def test_a_sum_is_rounded_as_autograd_does() -> None:
    first, second = torch.randn(2, 9).bfloat16()
    total = summed(first, second.reshape(3, 3), 4)
    assert torch.equal(total.values["sum_4"], first + second) and total.id == SUMS
