"""Parts of a graph as graphs of their own: side by side, laid out as they were, with sizes."""

from typing import Any

import torch
from test_localize_shares import graph_of, named
from torch import fx, nn

from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.localize import pieces
from inductor_debug.stages.localize.in_place import Search, part_of
from inductor_debug.stages.localize.replay import Seen

aten = torch.ops.aten


class WrongAt(AotEagerAdapter):
    """torch, but for one node, whose result it doubles; ``as_traced`` it is not."""

    def __init__(self, node: str) -> None:
        self.node, self.graphs = node, list[list[str]]()

    @property
    def as_traced(self) -> bool:
        return False

    def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
        self.graphs.append([node.name for node in gm.graph.nodes if node.op == "call_function"])

        def run(*inputs: Any) -> Any:
            values: dict[fx.Node, Any] = {}
            given = iter(inputs)
            for node in gm.graph.nodes:
                if node.op == "output":
                    return fx.map_arg(node.args[0], values.__getitem__)
                if node.op == "placeholder":
                    values[node] = next(given)
                    continue
                values[node] = node.target(*fx.map_arg(node.args, values.__getitem__))
                values[node] = values[node] * 2 if node.name == self.node else values[node]
            raise AssertionError("a graph has an output")

        return run


def squares() -> tuple[fx.Graph, Seen]:
    """Three alike products, each of the one before, and their values by torch."""

    def build(graph: fx.Graph, x: fx.Node) -> fx.Node:
        for number in range(3):
            x = named(graph, f"mm_{number}", aten.mm.default, x, x)
        return x

    graph = graph_of(build, 1)
    value = torch.eye(4) + torch.randn(4, 4) / 10
    given, values = {"x0": value}, {}
    for node in graph.nodes:
        if node.op == "call_function":
            value = value @ value
            values[node.name] = value
        if node.op != "output":
            node.meta["val"] = value
    return graph, Seen("g0.forward", graph, nn.Module(), given, values)


def test_operations_that_are_alike_are_compiled_once_and_the_wrong_one_is_named() -> None:
    """Side by side each gets what torch gave it, though one takes what another makes; a wrong one is run by itself."""
    _, seen = squares()
    for wrong in ("mm_0", "mm_1", "mm_2"):
        adapter = WrongAt(wrong)
        search = Search(seen, adapter, 4.0, lambda: False, lambda text: None)
        search.alone()
        assert [part.operations[-1].name for part, _ in search.found] == [wrong] and not search.missing
        assert adapter.graphs == [["mm_0", "mm_1", "mm_2"], [wrong]]


def test_what_stands_between_two_that_are_wrong_together_is_left_out() -> None:
    """A fault of the first and the last of three operations, whichever stands in between."""

    class Together(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            names = {node.name for node in gm.graph.nodes if node.op == "call_function"}
            self.node = "mm_2" if {"mm_0", "mm_2"} <= names else ""
            return super().compile(gm, example_inputs)

    _, seen = squares()
    search = Search(seen, Together(""), 4.0, lambda: False, lambda text: None)
    search.run()
    ((part, local),) = search.found
    assert [node.name for node in part.operations] == ["mm_0", "mm_2"] and local.wrong


def test_a_value_keeps_its_gaps_and_a_size_stays() -> None:
    graph, _ = squares()
    held = torch.randn(8, 8)[:4, :4]
    for node in graph.nodes:
        node.meta["val"] = held
    operations = [node for node in graph.nodes if node.name == "mm_1"]
    part = part_of(graph, operations)
    piece = pieces.piece_of(Seen("g0.forward", graph, nn.Module(), {}, {"mm_0": held}), part, part.results)
    assert [value.stride() for value in piece.inputs] == [(8, 1)]
    strides: list[Any] = []

    def function(*inputs: Any) -> list[torch.Tensor]:
        strides.append([value.stride() for value in inputs])
        return [inputs[0] @ inputs[0]]

    pieces.run(piece, function)
    assert strides == [[(8, 1)]]
    node = next(item for item in graph.nodes if item.op == "placeholder")
    node.meta["val"] = 5
    first = part_of(graph, [item for item in graph.nodes if item.name == "mm_0"])
    assert pieces.piece_of(Seen("g0.forward", graph, nn.Module(), {"x0": 5}), first, first.results).inputs == [5]
