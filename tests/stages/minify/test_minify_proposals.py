"""What is tried first, and what is left out of a call, are proposals: what they give is a program like any other."""

import operator

import torch
from torch import fx

from inductor_debug.stages.minify.candidate import Candidate, Given, Normal, Operations, TensorGiven
from inductor_debug.stages.minify.dynamo_graphs import DynamoGraph
from inductor_debug.stages.minify.minimize import hinted
from inductor_debug.stages.minify.simpler import simplified

aten = torch.ops.aten


def tensor(name: str, *shape: int, requires_grad: bool = False) -> TensorGiven:
    strides = torch.empty(shape).stride()
    return TensorGiven(name, shape, strides, torch.float32, "cpu", 0, Normal(), Normal(), requires_grad=requires_grad)


def calls(candidate: Candidate) -> list[tuple[str, tuple[object, ...]]]:
    return [(str(node.target), node.args) for node in candidate.calls]


def of_graph(graph: fx.Graph) -> Operations:
    inputs = {node.name: torch.randn(3, 4) for node in graph.nodes if node.op == "placeholder"}
    for node in graph.nodes:
        node.meta["val"] = torch.empty(3, 4, device="meta")
    owner = fx.GraphModule(torch.nn.Module(), graph)
    return Operations(DynamoGraph("g0", graph, owner, inputs, 0, False, {}), lambda name, value: None)


def test_a_part_of_a_tensor_is_an_operation_of_its_own() -> None:
    """As ``x[index]`` in Dynamo's graphs is, whose index another operation makes."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    index = graph.call_function(torch.argsort, (x,))
    graph.output((graph.call_function(operator.getitem, (x, index)),))
    operations = of_graph(graph)
    assert [len(unit) for unit in operations.units] == [1, 1] and operations.count == 2


def test_an_error_names_what_to_try_first() -> None:
    graph = fx.Graph()
    made = graph.placeholder("x")
    for target in (
        aten.relu.default,
        aten.relu.default,
        aten.mul.Tensor,
        aten.native_layer_norm.default,
        aten.sin.default,
    ):
        made = graph.call_function(target, (made,))
    graph.output((made,))
    operations = of_graph(graph)
    assert hinted(operations, "LoweringException: no aten.native_layer_norm.default, relu") == [[3], [0]]
    assert hinted(operations, "mul") == [] and hinted(operations, "mul of a Tensor") == [[2]]
    assert hinted(operations, "segmentation fault") == []


def test_arguments_that_may_be_missing_go_and_their_inputs_with_them() -> None:
    graph = fx.Graph()
    x, weight, bias = (graph.placeholder(name) for name in ("x", "weight", "bias"))
    norm = graph.call_function(aten.native_layer_norm.default, (x, [1], weight, bias, 1e-5))
    total = graph.call_function(aten.sum.dim_IntList, (graph.call_function(operator.getitem, (norm, 0)), [0], True))
    graph.output((total,))
    given: tuple[Given, ...] = (tensor("x", 1, 1), tensor("weight", 1), tensor("bias", 1))

    def needs_bias(candidate: Candidate) -> bool:
        return "bias" in [item.name for item in candidate.given]

    found = simplified(Candidate(graph, given), needs_bias, lambda: False)
    assert [item.name for item in found.given] == ["x", "bias"]
    norm_args, sum_args = (args for target, args in calls(found) if target.startswith("aten."))
    assert norm_args[2] is None and str(norm_args[3]) == "bias"
    assert len(sum_args) == 2 and sum_args[1] is None  # of all dimensions, and none is kept


def test_calls_and_gradients_go_where_they_are_not_needed() -> None:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.output((graph.call_function(aten.mul.Tensor, (a, b)),))
    given = (tensor("a", 1, requires_grad=True), tensor("b", 1, requires_grad=True))

    def needs(candidate: Candidate) -> bool:
        asking = {item.name for item in candidate.given if isinstance(item, TensorGiven) and item.requires_grad}
        return candidate.times >= 2 and "b" in asking

    found = simplified(Candidate(graph, given, times=4), needs, lambda: False)
    assert found.times == 2 and found.training
    assert [item.requires_grad for item in found.given if isinstance(item, TensorGiven)] == [False, True]
