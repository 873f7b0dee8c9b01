"""Who executed it: backends that fall back in silence, wholly or in part, and those that do not."""

from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import torch
from falling_back import (
    Net,
    Run,
    SilentAot,
    behind_its_own_autograd,
    by_numpy,
    found,
    interpreted,
    no_device,
    silent,
    wrapped,
)
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from inductor_debug import AcceleratorAdapter
from inductor_debug.stages.backends.adapter import Level
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.torch_internals.execution import executes
from inductor_debug.stages.torch_internals.inductor import inductor_decompositions


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("backend", [silent, wrapped, behind_its_own_autograd])
def test_a_backend_whose_every_graph_inductor_executed_is_not_exercised(backend: Run, mode: str) -> None:
    comparison = found(backend, mode)
    many = "the only graph" if mode == "inference" else "all 2 graphs"
    told = f"not_exercised: TorchInductor executed {many} in place of {backend.__name__}; what ran instead is "
    assert comparison.verdict == "not_exercised" and comparison.message.startswith(told), comparison.message
    assert comparison.message.count("in place of") == 1 and not comparison.failed
    execution = comparison.execution
    assert execution is not None and (execution.executor, execution.inductor_parts) == ("own", 0)
    assert execution.inductor == execution.graphs == execution.calls == (1 if mode == "inference" else 2)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_so_is_an_adapter_that_takes_aot_graphs(mode: str) -> None:
    comparison = found(SilentAot(), mode)
    assert comparison.verdict == "not_exercised" and "TorchInductor executed" in comparison.message


@pytest.mark.parametrize("draws", [1, 3])
def test_one_graph_of_two_is_told(draws: int) -> None:
    numbers = iter(range(100))

    def half(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        return interpreted(gm, inputs) if next(numbers) % 2 else silent(gm, inputs)

    comparison = found(half, module=Net(breaks=True), draws=draws)
    assert comparison.verdict in ("exact", "within_floor")
    assert "; TorchInductor executed 1 of 2 graphs in place of half" in comparison.message
    assert comparison.message.endswith("; torch executed 2 operations within the code of half, whose graphs hold 2")
    execution = comparison.execution
    assert execution is not None and (execution.graphs, execution.inductor, execution.as_traced) == (2, 1, 0)


@pytest.mark.parametrize("falls", [0, 1])
def test_forward_or_backward_by_inductor_is_told(falls: int) -> None:
    comparison = found(SilentAot(lambda number: number == falls), "training")
    assert comparison.verdict in ("exact", "within_floor")
    assert "; TorchInductor executed 1 of 2 graphs in place of silent_aot" in comparison.message


@pytest.mark.parametrize("falls", ["forward", "backward"])
def test_so_it_is_where_the_backend_has_its_own_autograd(falls: str) -> None:
    def half(direction: str) -> Run:
        if direction != falls:
            return lambda gm, inputs: make_boxed_func(interpreted(gm, inputs))
        return lambda gm, inputs: compile_fx_inner(gm, list(inputs))

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        tables = {"decompositions": inductor_decompositions()}
        return aot_autograd(fw_compiler=half("forward"), bw_compiler=half("backward"), **tables)(gm, inputs)

    comparison = found(backend, "training")
    assert comparison.verdict in ("exact", "within_floor")
    assert "; TorchInductor executed 1 of 2 graphs in place of backend" in comparison.message


class Parted(AcceleratorAdapter):
    """Leaves each ReLU to TorchInductor."""

    name = "parted"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Run:
        relu = torch.ops.aten.relu.default
        node = next(node for node in gm.graph.nodes if node.target is relu)
        graph = fx.Graph()
        given = graph.placeholder("x")
        made = graph.call_function(relu, (given,))
        given.meta["val"], made.meta["val"] = node.args[0].meta["val"], node.meta["val"]
        graph.output((made,))
        compiled = compile_fx_inner(fx.GraphModule({}, graph), [given.meta["val"]])

        class Own(fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                return compiled([args[0]])[0] if target is relu else super().call_function(target, args, kwargs)

        return Own(gm).run


def test_a_part_of_a_graph_by_inductor_is_told_as_a_part() -> None:
    comparison = found(Parted())
    assert comparison.verdict in ("exact", "within_floor")
    assert "; TorchInductor executed parts of the only graph of parted; torch executed 3 op" in comparison.message
    execution = comparison.execution
    assert execution is not None and (execution.inductor, execution.inductor_parts) == (0, 1)


def given_back(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return gm.forward


def boxed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return torch.compiler.disable(gm.forward)


class GivesBack(AcceleratorAdapter):
    name = "gives_back"

    def __init__(self, level: Level = "aot") -> None:
        self.level = level

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Run:
        return make_boxed_func(gm.forward) if self.level == "aot" else fx.Interpreter(gm).run


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("backend", [given_back, boxed, GivesBack(), GivesBack("dynamo")])
def test_a_backend_that_gives_the_graph_back_is_not_exercised(backend: Any, mode: str) -> None:
    comparison = found(backend, mode)
    assert comparison.verdict == "not_exercised"
    assert comparison.message.startswith("not_exercised: torch itself executed "), comparison.message
    execution = comparison.execution
    assert execution is not None and execution.as_traced == execution.graphs and execution.torch_operations == 0


def test_what_fails_is_a_defect_whoever_executed_it() -> None:
    def wrong(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        product = next(node for node in gm.graph.nodes if node.target is torch._C._nn.linear)
        with gm.graph.inserting_after(product):
            scaled = gm.graph.call_function(torch.mul, (product, 1.5))
        product.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
        scaled.meta = dict(product.meta)
        gm.recompile()
        return compile_fx(gm, list(inputs))

    comparison = found(wrong)
    assert comparison.verdict == "defect"
    assert comparison.message.endswith("; TorchInductor executed the only graph in place of wrong")


def test_a_graph_that_the_backend_changed_is_not_given_back() -> None:
    def changed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        for node in gm.graph.nodes:
            if node.op == "call_method" and node.target == "relu":
                node.op, node.target = "call_function", own_relu
        gm.recompile()
        return gm.forward

    comparison = found(changed)
    assert comparison.verdict == "exact"
    assert comparison.message.endswith("; torch executed 4 operations within the code of changed, whose graphs hold 4")


def own_relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def test_code_of_its_own_is_exercised_and_counted() -> None:
    comparison = found(by_numpy)
    assert comparison.verdict in ("exact", "within_floor") and "executed" not in comparison.message
    execution = comparison.execution
    assert execution is not None
    assert (execution.given, execution.graphs, execution.calls) == (1, 1, 1)
    assert (execution.inductor, execution.as_traced, execution.torch_operations, execution.outside) == (0, 0, 0, 0)
    assert execution.graph_operations == 4


def test_all_operations_by_torch_are_told_and_no_verdict() -> None:
    comparison = found(interpreted, "training")
    assert comparison.verdict == "exact"
    assert comparison.message.endswith(
        "; torch executed 4 operations within the code of interpreted, whose graphs hold 4"
    )


def test_what_runs_between_the_graphs_is_counted() -> None:
    comparison = found(by_numpy_in_pieces, module=Net(eager=True))
    assert comparison.message.endswith("; 2 operations ran in eager outside of all graphs")
    assert comparison.execution is not None and comparison.execution.graphs == 2


def by_numpy_in_pieces(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    softmax = any("softmax" in str(node.target) for node in gm.graph.nodes)

    def run(*args: Tensor) -> tuple[Tensor]:
        values = [value.detach().numpy() for value in args]
        bias = next(value for value in values if value.ndim == 1)
        weight, x = sorted((v for v in values if v.ndim == 2), key=lambda value: len(value) == 6)
        result = x @ weight.T + bias
        if softmax:
            result = numpy.exp(result) / numpy.exp(result).sum(-1, keepdims=True)
        return (torch.from_numpy(result if softmax else numpy.maximum(result, 0)),)

    return run


CALLS: list[str] = []


class Changing(nn.Module):
    """Each call needs a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        CALLS.append("")
        return self.linear(x) + 0 * len(CALLS)


def test_a_graph_that_is_never_called_again_is_not_exercised() -> None:
    with torch._dynamo.config.patch(recompile_limit=1):  # the first step's graph fits no later one
        comparison = found(by_numpy_layer, module=Changing())
    told = "not_exercised: by_numpy_layer was given 1 graph, of which none was called, so that all of the model ran"
    assert comparison.verdict == "not_exercised" and comparison.message.startswith(told), comparison.message


def refuses(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return no_device(gm)


def test_so_is_a_backend_whose_errors_are_suppressed() -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        comparison = found(refuses)
    assert comparison.verdict == "not_exercised"
    assert comparison.message.startswith("not_exercised: refuses was given 1 graph, of which none was called")


def by_numpy_layer(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def run(*args: Tensor) -> tuple[Any, ...]:
        values = [value.detach().numpy() for value in args if isinstance(value, Tensor)]
        bias = next(value for value in values if value.ndim == 1)
        weight, x = sorted((v for v in values if v.ndim == 2), key=lambda value: len(value) == 6)
        return (torch.from_numpy(x @ weight.T + bias),)

    return run


def test_who_builds_on_inductor_or_torch_says_so_and_stays_as_it_was() -> None:
    class Built(SilentAot):
        executor = "inductor"

    def declared(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        return silent(gm, inputs)

    declared.executor = "inductor"  # type: ignore[attr-defined]
    fault = PlantedFault("inductor", "relu", "scale", strength=0.0)
    for backend in (Built(), declared, compile_fx, "inductor", fault, "aot_eager", "mock", "aot_mock"):
        comparison = found(backend)
        assert comparison.verdict in ("exact", "within_floor"), comparison.message
        assert "executed" not in comparison.message
        assert comparison.execution is not None and comparison.execution.executor in ("inductor", "torch")


def test_what_executes_the_graph_itself_is_known_of_torchs_own_forms_alone() -> None:
    gm, other = fx.symbolic_trace(nn.ReLU()), fx.symbolic_trace(nn.ReLU())

    class Own(fx.Interpreter):
        pass

    same = [gm, gm.forward, make_boxed_func(gm.forward), torch.compiler.disable(gm.forward), fx.Interpreter(gm).run]
    assert all(executes(function, gm) for function in same)
    assert not any(executes(function, other) for function in same)
    assert not any(executes(function, gm) for function in (lambda x: gm(x), Own(gm).run, torch.compile(gm), len))
