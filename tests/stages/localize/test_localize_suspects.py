"""Whether a wrong value is explained by what is known to be wrong."""

import operator
from collections.abc import Container
from typing import Any

import pytest
import torch
from test_localize_pieces import WrongAt
from test_localize_shares import graph_of, named
from torch import fx, nn

from inductor_debug.stages.localize.judging.replay import Replay
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.localize.searching.suspects import Found, explained, narrowed

aten = torch.ops.aten


def test_of_an_operation_with_several_results_the_one_that_is_wrong_deviates() -> None:
    """A layer norm's mean is wrong, and a value of the same kernel goes on with it."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    norm = graph.call_function(aten.native_layer_norm.default, (x, [32], None, None, 1e-5), name="norm")
    mean = graph.call_function(operator.getitem, (norm, 1), name="mean")
    doubled = graph.call_function(aten.mul.Tensor, (mean, 2.0), name="doubled")
    graph.output((mean, doubled))
    value = torch.randn(8, 32)
    norm.meta["val"] = aten.native_layer_norm.default(value, [32], None, None, 1e-5)
    for node in (x, mean, doubled):
        node.meta["val"] = torch.empty(())
    wrong = norm.meta["val"][1] + 0.5
    kernels = {"mean": "k:1", "doubled": "k:1"}
    values = {"mean": wrong, "doubled": wrong * 2}
    replay = Replay(Seen("g0.forward", graph, torch.nn.Module(), {"x": value}, values, kernels))
    whole = {node.name: replay.region(node, whole=True) for node in (mean, doubled)}
    local = replay.compared(whole["mean"])
    assert local.wrong and replay.compared(whole["doubled"]).wrong
    found = Found([norm], local, "operation", [], replay.deviation(whole["mean"]))
    assert explained(replay, whole["doubled"], [found])
    assert not explained(replay, whole["doubled"], [])


class Fuses(WrongAt):
    """Gives twice a graph's ``total`` where that takes something that the graph makes and does not store.

    Args:
        also: nodes that are to be there too, not stored.
    """

    def __init__(self, *also: str) -> None:
        super().__init__("")
        self.also = also

    def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
        (output,) = (node for node in gm.graph.nodes if node.op == "output")
        fused = {node.name: node for node in gm.graph.nodes
                 if node.op == "call_function" and node not in output.all_input_nodes}  # fmt: skip
        ends = [node for node in output.all_input_nodes if node.name == "total"]
        wrong = ends and all(node.name in fused for node in ends[0].all_input_nodes) and set(self.also) <= set(fused)
        self.node = "total" if wrong else ""
        return super().compile(gm, example_inputs)


def chain(stored: Container[str] = ()) -> Seen:
    """``total`` of ``tanh`` of both results of ``max`` of ``sin`` of ``exp``, as a kernel made it that was wrong."""

    def build(graph: fx.Graph, x: fx.Node) -> fx.Node:
        sin = named(graph, "sin", aten.sin.default, named(graph, "exp", aten.exp.default, x))
        both = named(graph, "both", aten.max.dim, sin, 1)
        largest, index = (named(graph, name, operator.getitem, both, place) for place, name in enumerate(("a", "b")))
        tanh = named(graph, "tanh", aten.tanh.default, named(graph, "add", aten.add.Tensor, largest, index))
        return named(graph, "total", aten.sum.default, tanh)

    graph = graph_of(build, 1)
    values: dict[str, Any] = {"x0": torch.randn(8, 8, generator=torch.Generator().manual_seed(0))}
    for node in graph.nodes:
        if node.op == "call_function":
            values[node.name] = node.target(*fx.map_arg(node.args, lambda taken: values[taken.name]))
        if node.op != "output":
            node.meta["val"] = values[node.name]
    kept = {name: value for name, value in values.items() if name in stored} | {"total": values["total"] * 2}
    return Seen("g0.forward", graph, nn.Module(), {"x0": values["x0"]}, kept, {"total": "kernel:1"})


@pytest.mark.parametrize(
    ("also", "operations"),
    [((), ["total"]), (("tanh",), ["tanh", "total"]), (("both",), ["both", "add", "tanh", "total"]),
     (("exp",), ["exp", "sin", "both", "add", "tanh", "total"])],
)  # fmt: skip
def test_of_what_is_wrong_only_when_fused_the_operations_are_named_that_it_takes(
    also: tuple[str, ...], operations: list[str]
) -> None:
    seen = chain()
    (local,) = Replay(seen).locals()
    (item,) = narrowed(seen, local, Fuses(*also), factor=4.0)
    assert [node.name for node in item.nodes] == operations and item.local is local
    assert item.kind == ("operation" if len(operations) == 1 else "region")
    assert item.shows[-1].startswith("only when")


def test_when_time_is_up_the_whole_of_what_is_wrong_when_fused_is_named() -> None:
    seen = chain(["sin"])
    (local,) = (item for item in Replay(seen).locals() if item.wrong)
    (item,) = narrowed(seen, local, Fuses(), factor=4.0, over=lambda: True)
    assert [node.name for node in item.nodes] == ["both", "add", "tanh", "total"]
