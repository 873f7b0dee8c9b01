"""Which operation of a compiled model is named: clean models, faults in TorchInductor's lowerings, other adapters."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from inductor_debug import AcceleratorAdapter, ConfigurationError, localize
from inductor_debug.models.case import Case
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.engine import Localized
from inductor_debug.stages.localize.runs.observed import Observer
from inductor_debug.stages.localize.searching.pieces import ALONE

aten = torch.ops.aten
LINES = {"relu": 31}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(24, 32), nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return self.last(hidden).softmax(-1)


def net(mode: str = "inference", dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    module = Net().to(dtype).train(mode == "training")
    with torch.no_grad():
        module.norm.weight.add_(torch.randn(32) / 4)
    return module, torch.randn(16, 24).to(dtype)


@contextmanager
def wrong_lowering(target: Any, wrong: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, TorchInductor lowers every call of an operator to something else."""
    from torch._inductor import graph

    original = graph.GraphLowering.call_function

    def call_function(self: Any, called: Any, args: Any, kwargs: Any) -> Any:
        result = original(self, called, args, kwargs)
        return wrong(result) if called == target else result

    graph.GraphLowering.call_function = call_function
    try:
        yield
    finally:
        graph.GraphLowering.call_function = original


def times(factor: float) -> Callable[[Any], Any]:
    def wrong(value: Any) -> Any:
        from torch._inductor.lowering import lowerings

        return lowerings[aten.mul.Tensor](value, factor)

    return wrong


def named(found: Localized) -> list[tuple[str, str]]:
    return [(item.place.graph, item.place.target) for item in found.localization.culprits]


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_clean_model_names_nothing_and_all_of_it_is_checked(mode: str, dtype: torch.dtype) -> None:
    module, x = net(mode, dtype)
    found = localize(module, (x,), mode=mode)
    told = found.localization
    assert (told.kind, told.culprits, told.missing) == ("none", [], [])
    assert told.checked == told.operations >= 15 and told.method == "observed"
    assert {row.state for row in found.rows} <= {"right", "not_compared"}


class Counts(nn.Module):
    """Writes into a buffer, in a kernel that need not store what it writes there anywhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        self.mean.mul_(0.9).add_(y.mean(0).detach())
        return y + self.mean, y.argmax(-1)


def test_what_a_kernel_need_not_store_is_not_looked_for() -> None:
    torch.manual_seed(0)
    told = localize(Counts(), (torch.randn(8, 16),)).localization
    assert (told.kind, told.culprits) == ("none", []) and told.checked == told.operations


def test_torchs_injected_bug_is_pinned_to_kernel_node_and_line() -> None:
    module, x = net()
    found = localize(module, (x,), inductor={"cpp": {"inject_relu_bug_TESTING_ONLY": "accuracy"}})
    (culprit,) = found.localization.culprits
    assert found.localization.kind == "operation" and culprit.place.target == "aten.relu.default"
    assert culprit.place.source == f"{__file__}:{LINES['relu']}" and ALONE in culprit.shows
    assert culprit.place.kernel.startswith("cpp_fused")
    assert "aten.relu.default" in found.localization.message


def test_a_fault_inside_a_kernel_is_named_though_its_value_is_never_stored() -> None:
    module, x = net()
    with wrong_lowering(aten.rsqrt.default, times(1.001)):
        found = localize(module, (x,))
    assert named(found) == [("g0.forward", "aten.rsqrt.default")]
    assert [row.state for row in found.rows if row.node == "addmm_1"] == ["right"]  # it follows from what it received


def test_a_fault_of_the_backward_alone_is_named_there() -> None:
    module, x = net("training")
    with wrong_lowering(aten.le.Scalar, lambda value: _negated(value)):
        found = localize(module, (x,), mode="training")
    assert named(found)[0] == ("g0.backward", "aten.le.Scalar")


def _negated(value: Any) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[aten.logical_not.default](value)


def test_two_faults_are_told_as_two() -> None:
    module, x = net()
    with wrong_lowering(aten.rsqrt.default, times(1.01)), wrong_lowering(aten.div.Tensor, times(0.9)):
        found = localize(module, (x,))
    assert [target for _, target in named(found)] == ["aten.rsqrt.default", "aten.div.Tensor"]


@pytest.mark.parametrize("order", [(1.01, 1.3), (1.3, 1.01)])
def test_two_faults_in_one_kernel_are_told_as_two(order: tuple[float, float]) -> None:
    """Neither value is stored, and the later one holds the error of the earlier."""
    module, x = net()
    with wrong_lowering(aten.rsqrt.default, times(order[0])), wrong_lowering(aten.relu.default, times(order[1])):
        found = localize(module, (x,))
    assert [target for _, target in named(found)] == ["aten.rsqrt.default", "aten.relu.default"]


def test_a_small_factor_in_bfloat16_is_named_by_its_slope() -> None:
    module, x = net("inference", torch.bfloat16)
    with wrong_lowering(aten.relu.default, times(1.002)):
        found = localize(module, (x.repeat(64, 1),))
    assert [(item.kind, item.place.target) for item in found.localization.culprits] == [("slope", "aten.relu.default")]
    assert any(row.state == "slope" and "relu" in row.operations for row in found.rows)


def test_a_search_out_of_time_says_what_it_did_not_look_at() -> None:
    module, x = net()
    found = localize(module, (x,), config=LocalizeConfig(budget_s=1e-9))
    told = found.localization
    assert told.checked == 0 and "budget_s" in told.missing[0] and "0 of" in told.message
    assert all("budget_s" in why for why in told.unchecked.values())


def test_the_model_is_left_as_found() -> None:
    module, x = net("training")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    localize(module, (x,), mode="training")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("graph", "node", "fault"),
    [("g0.forward", "relu", "scale"), ("g0.forward", "addmm_1", "dropped_tail"), ("g0.backward", "mm", "scale"),
     ("g0.forward", "native_layer_norm", "scale"), ("g0.forward", "_softmax", "nan_at_edge")],
)  # fmt: skip
def test_behind_an_adapter_the_planted_operation_is_found_by_halving(graph: str, node: str, fault: str) -> None:
    module, x = net("training")
    adapter = PlantedFault(AotEagerAdapter(), node, fault, graph=graph)
    found = localize(module, (x,), backend=adapter, mode="training")
    (culprit,) = found.localization.culprits
    assert (culprit.place.graph, culprit.place.operations) == (graph, [node])
    assert found.localization.method == "pieces" and culprit.kind == "operation"


class Remembers(AotEagerAdapter):
    """Keeps the names of the nodes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[list[str]] = []

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        self.graphs.append([node.name for node in gm.graph.nodes])
        return super().compile(gm, example_inputs)


def test_values_are_told_in_the_order_of_the_computation() -> None:
    module, x = net()
    inner = Remembers()
    found = localize(module, (x,), backend=PlantedFault(inner, "relu", "scale", graph="g0.forward"))
    order = next(names for names in inner.graphs if {row.node for row in found.rows} <= {*names})
    places = [order.index(row.node) for row in found.rows]
    assert len(places) > 2 and places == sorted(places)


class WrongTogether(AcceleratorAdapter):
    """Right for each operation, and wrong where a relu follows a layer norm in one graph."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        targets = [node.target for node in gm.graph.nodes]
        both = aten.relu.default in targets and aten.native_layer_norm.default in targets

        def call(*inputs: Tensor) -> Sequence[Tensor]:
            outputs = gm(*inputs)
            return [item * 1.5 if both and item.is_floating_point() else item for item in outputs]

        return call


def test_what_is_wrong_only_together_is_told_as_a_region() -> None:
    module, x = net()
    found = localize(module, (x,), backend=WrongTogether())
    (culprit,) = found.localization.culprits
    assert found.localization.kind == "region" and culprit.kind == "region"
    assert culprit.place.operations == ["native_layer_norm", "relu"]


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_clean_adapter_names_nothing_where_the_model_writes_into_its_buffers(mode: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(16), Counts()).train(mode == "training")
    told = localize(module, (torch.randn(8, 16),), backend="aot_eager", mode=mode).localization
    assert (told.kind, told.culprits) == ("none", [])


def test_a_backend_of_dynamos_graphs_was_given_others_and_that_is_told() -> None:
    def wrong(gm: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        for node in [item for item in gm.graph.nodes if item.target is torch.relu]:
            node.target = torch.abs
        gm.recompile()
        return gm.forward

    module, x = net()
    told = localize(module, (x,), backend=wrong).localization
    assert told.kind == "none" and "Dynamo's own graphs" in told.message


def test_what_is_no_backend_and_no_mode_is_refused() -> None:
    module, x = net()
    with pytest.raises(ConfigurationError, match="nosuch"):
        localize(module, (x,), backend="nosuch")
    with pytest.raises(ConfigurationError, match="mode"):
        localize(module, (x,), mode="train")


def test_a_clean_adapter_names_nothing() -> None:
    module, x = net("training")
    found = localize(module, (x,), backend="aot_eager", mode="training")
    assert found.localization.kind == "none" and found.localization.checked == found.localization.operations


class RefusesParts(AotEagerAdapter):
    """Compiles whole graphs alone."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        if sum(node.op == "call_function" for node in gm.graph.nodes) < 6:
            raise RuntimeError("this graph is too small")
        return super().compile(gm, example_inputs)


def test_parts_that_do_not_compile_are_told_as_not_looked_at() -> None:
    module, x = net()
    found = localize(module, (x,), backend=RefusesParts())
    assert any("too small" in item for item in found.localization.missing)
    assert found.localization.checked < found.localization.operations or found.localization.kind == "none"


def test_a_fault_whose_parts_do_not_compile_is_not_told_as_one_of_fusion() -> None:
    class WrongAndRefuses(RefusesParts):
        def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
            return PlantedFault(RefusesParts(), "relu", "scale").compile(gm, example_inputs)

    module, x = net()
    told = localize(module, (x,), backend=WrongAndRefuses()).localization
    assert told.kind == "region" and "could be compiled by themselves" in told.message


def test_an_option_out_of_range_is_refused() -> None:
    module, x = net()
    with pytest.raises(ConfigurationError, match="budget_s"):
        localize(module, (x,), config=LocalizeConfig(budget_s=0))


class Stores(nn.Module):
    """One kernel gives a sum in bfloat16, and its mean, which goes on with the sum as it was before it was rounded."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return total, total.float().mean(-1).view(4, -1)


def test_results_of_a_graph_have_the_kernel_that_made_them() -> None:
    """A result that no other kernel reads is no buffer that is let go of; a result may be a view of a buffer."""
    module, given = Stores(), (torch.randn(16, 64).bfloat16(), torch.randn(16, 64).bfloat16())
    case = Case.of(module, given, {}, "inference")
    adapter = InductorAdapter()
    torch.compiler.reset()
    observer = Observer(case, adapter)
    case.run(observer)
    (seen,) = observer.seen()
    assert len(seen.values) == 2 and set(seen.kernels) == set(seen.values)
