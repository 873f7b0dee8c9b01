"""Inputs that are not contiguous, and a backend that reads them wrongly: the graph's own, and those of its parts."""

from typing import Any

import torch
from test_localize_pieces import WrongAt
from test_localize_shares import graph_of, named
from torch import fx, nn

from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.localize.searching.in_place import Search

aten = torch.ops.aten


class Dense(WrongAt):
    """Reads what it is given as if it were contiguous."""

    def __init__(self) -> None:
        super().__init__("")

    def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
        right = super().compile(gm, example_inputs)
        return lambda *inputs: right(*(item.as_strided(item.shape, torch.empty(item.shape).stride())
                                       for item in inputs))  # fmt: skip


def strided(x: torch.Tensor) -> Seen:
    """Two operations on a transpose, of which none makes it contiguous."""

    def build(graph: fx.Graph, node: fx.Node) -> fx.Node:
        first = named(graph, "first", aten.mul.Tensor, named(graph, "turned", aten.t.default, node), 2.5)
        return named(graph, "second", aten.add.Tensor, first, 1.0)

    graph = graph_of(build, 1)
    values = {"turned": x.t(), "first": x.t() * 2.5, "second": x.t() * 2.5 + 1}
    for node in graph.nodes:
        if node.op != "output":
            node.meta["val"] = values.get(node.name, x)
    return Seen("g0.forward", graph, nn.Module(), {"x0": x}, values)


def test_what_is_wrong_only_as_an_input_that_is_not_contiguous_is_not_blamed_where_it_is_none() -> None:
    search = Search(strided(torch.randn(4, 4)), Dense(), 4.0, lambda: False, lambda text: None)
    search.run()
    assert search.right
    search.alone()
    assert not search.found and [node.name for node in search.misread] == ["first"]
    (told,) = search.otherwise
    assert told.startswith("g0.forward first as laid out")


def test_an_input_that_is_read_wrongly_as_it_is_laid_out_is_named_and_no_operation() -> None:
    search = Search(strided(torch.randn(4, 4).t()), Dense(), 4.0, lambda: False, lambda text: None)
    search.run()
    assert [[node.name for node in item.operations] for item in search.found] == [["x0"]]
    assert search.found[0].local.wrong and "not where it is contiguous" in search.found[0].shows
    assert not search.missing and not search.otherwise


def test_an_operation_that_is_wrong_beside_an_input_that_is_read_wrongly_is_named_too() -> None:
    class Both(Dense):
        def __init__(self) -> None:
            super().__init__()
            self.node = "second"

    search = Search(strided(torch.randn(4, 4).t()), Both(), 4.0, lambda: False, lambda text: None)
    search.run()
    assert [item.operations[0].name for item in search.found] == ["x0", "second"]


def test_an_operation_that_is_wrong_in_strides_alone_though_they_are_read_rightly_is_named() -> None:
    class Strided(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            right = super().compile(gm, example_inputs)
            adds = any(node.target is aten.add.Tensor for node in gm.graph.nodes)
            return lambda *inputs: [value * 2 if adds and not inputs[0].is_contiguous() else value
                                    for value in right(*inputs)]  # fmt: skip

    search = Search(strided(torch.randn(4, 4).t()), Strided(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert "first" in {node.name for item in search.found for node in item.operations} and not search.misread


def test_an_input_that_is_read_wrongly_however_it_is_laid_out_is_not_blamed_for_its_strides() -> None:
    class Doubled(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            right = super().compile(gm, example_inputs)
            return lambda *inputs: [value * 2 for value in right(*inputs)]

    search = Search(strided(torch.randn(4, 4).t()), Doubled(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert search.found and not search.misread
