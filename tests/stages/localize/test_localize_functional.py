"""Values that a node leaves in memory which another one made: what reads them afterwards takes the one that wrote."""

import operator
from collections.abc import Callable

import pytest
import torch
from inductor_faults import wrong_lowering_at
from torch import Tensor, fx, nn

from inductor_debug import localize
from inductor_debug.stages.localize.judging.evaluation import Unknown, as_it_is, value_of
from inductor_debug.stages.localize.runs.functional import made_functional

aten = torch.ops.aten

Build = Callable[[fx.Graph, fx.Node, fx.Node], fx.Node]


def slice_of_select(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    """Through two views, of which another one is read afterwards."""
    base = graph.call_function(aten.exp.default, (x,))
    row = graph.call_function(aten.select.int, (base, 0, 1))
    other = graph.call_function(aten.select.int, (base, -2, 1))
    part = graph.call_function(aten.slice.Tensor, (row, 0, 1, 3))
    graph.call_function(aten.copy_.default, (part, graph.call_function(aten.select.int, (y, 0, 0))))
    return graph.call_function(aten.add.Tensor, (base, other))


def twice(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    base = graph.call_function(aten.exp.default, (x,))
    for place in (0, 1):
        part = graph.call_function(aten.as_strided.default, (base, [2, 2], [4, 1], place))
        graph.call_function(aten.copy_.default, (part, y))
    return graph.call_function(aten.mul.Tensor, (base, 2))


def converted(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    """A row of another dtype into every row of a view in other sizes."""
    base = graph.call_function(aten.exp.default, (x,))
    flat = graph.call_function(aten.reshape.default, (base, [6, 2]))
    row = graph.call_function(aten.select.int, (y, 0, 0))
    double = graph.call_function(torch.ops.prims.convert_element_type.default, (row, torch.float64))
    graph.call_function(aten.copy_.default, (flat, double))
    return graph.call_function(aten.mul.Tensor, (base, 2))


def into_the_input(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    part = graph.call_function(aten.slice.Tensor, (x, 1, 0, 2))
    top = graph.call_function(aten.slice.Tensor, (part, 0, 0, 2))
    graph.call_function(aten.copy_.default, (top, y))
    return graph.call_function(aten.mul.Tensor, (x, 2))


def whole(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    base = graph.call_function(aten.exp.default, (x,))
    graph.call_function(aten.copy_.default, (base, x))
    return graph.call_function(aten.mul.Tensor, (base, 2))


def graph_of(build: Build, x: Tensor, y: Tensor) -> fx.GraphModule:
    graph = fx.Graph()
    inputs = graph.placeholder("x"), graph.placeholder("y")
    graph.output((build(graph, *inputs),))
    gm = fx.GraphModule({}, graph)
    values = dict(zip(("x", "y"), (x.clone(), y.clone()), strict=True))

    class Noting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            n.meta["val"] = super().run_node(n)
            return n.meta["val"]

    Noting(gm).run(*values.values())
    return gm


@pytest.mark.parametrize(
    "build", [slice_of_select, twice, converted, into_the_input, whole], ids=lambda it: it.__name__
)
def test_the_rewritten_graph_gives_what_the_graph_gave(build: Build) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(2, 2)
    gm = graph_of(build, x, y)
    before, after = x.clone(), x.clone()
    (right,) = fx.Interpreter(gm).run(before, y.clone())
    names = [node.name for node in gm.graph.nodes]
    roots = made_functional(gm.graph)
    (found,) = fx.Interpreter(fx.GraphModule({}, gm.graph)).run(after, y.clone())
    assert torch.equal(found, right)
    assert torch.equal(after, before)
    assert set(names) <= {node.name for node in gm.graph.nodes}
    assert set(roots.values()) == {"x" if build is into_the_input else "exp_default"}
    writes = [node for node in gm.graph.nodes if node.target is aten.copy_.default]
    assert [node.args[0].op for node in writes] == ["placeholder"] * (build is into_the_input)
    assert made_functional(gm.graph) == {}


def test_what_reads_after_a_write_that_is_not_known_is_not_known() -> None:
    def build(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
        base = graph.call_function(aten.exp.default, (x,))
        part = graph.call_function(aten.select.int, (base, 0, 0))
        graph.call_function(aten.sin_.default, (part,))
        return graph.call_function(aten.mul.Tensor, (base, 2))

    gm = graph_of(build, torch.randn(3, 4), torch.randn(2, 2))
    assert made_functional(gm.graph) == {"sin__default": "exp_default"}
    (reader,) = (node for node in gm.graph.nodes if node.target is aten.mul.Tensor)
    (write,) = reader.all_input_nodes
    with pytest.raises(Unknown, match=r"what aten\.sin_\.default leaves in memory"):
        value_of(write, {node: torch.randn(4) for node in write.all_input_nodes}, gm, as_it_is)


class Scattered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        z = torch.as_strided_scatter(torch.zeros(4, 16), torch.tanh(x), (2, 8), (16, 2), 1)
        return torch.softmax(z, -1) @ z.T


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = nn.Buffer(torch.randn(4, 16))

    def forward(self, x: Tensor) -> Tensor:
        self.cache.copy_(torch.as_strided_scatter(self.cache, torch.tanh(x), (2, 8), (16, 2), 1))
        return torch.softmax(self.cache, -1) @ self.cache.T


@pytest.mark.parametrize("module", [Scattered(), Cache()], ids=["scattered", "cache"])
def test_a_write_through_a_view_accuses_nothing(module: nn.Module) -> None:
    torch.manual_seed(0)
    found = localize(module, (torch.randn(2, 8),)).localization
    assert not found.culprits, found.message
    assert found.checked == found.operations
    assert found.closure == pytest.approx(1, abs=0.02)


def test_what_was_written_through_a_view_is_looked_at() -> None:
    torch.manual_seed(0)
    with wrong_lowering_at("tanh", "negated"):
        found = localize(Scattered(), (torch.randn(2, 8),)).localization
    assert [culprit.place.node for culprit in found.culprits] == ["tanh"], found.message


@torch.library.custom_op("inductor_debug_test::doubled_into", mutates_args=("out",))
def doubled_into(x: Tensor, out: Tensor) -> None:
    out.copy_(x * 2)


@torch.library.custom_op("inductor_debug_test::doubled_in_place", mutates_args=("x", "y"))
def doubled_in_place(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.mul_(3)
    return x.sum()


@doubled_in_place.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(())


def test_what_an_operator_gives_is_not_taken_for_what_it_wrote() -> None:
    def build(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
        first, second = graph.call_function(aten.exp.default, (x,)), graph.call_function(aten.tanh.default, (x,))
        graph.call_function(torch.ops.inductor_debug_test.doubled_in_place.default, (first, second))
        return graph.call_function(aten.mul.Tensor, (first, second))

    gm = graph_of(build, torch.randn(3, 4), torch.randn(2, 2))
    assert made_functional(gm.graph) == {"doubled_in_place_default": "tanh_default"}
    (reader,) = (node for node in gm.graph.nodes if node.target is aten.mul.Tensor)
    (write,) = reader.all_input_nodes
    assert str(write.target) == "what inductor_debug_test.doubled_in_place.default leaves in memory"


def test_memory_that_a_custom_operator_fills_accuses_nothing() -> None:
    class Filled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = torch.empty_like(x)
            doubled_into(x, out)
            return torch.softmax(out + 1, -1) @ x

    torch.manual_seed(0)
    found = localize(Filled(), (torch.randn(8, 8),)).localization
    assert not found.culprits, found.message
    assert found.checked < found.operations and "doubled_into" in str(found.unchecked)


def test_a_dropout_that_runs_after_others_is_checked_by_its_mask() -> None:
    """TorchInductor puts the second one of a graph in a graph of its own, run after the first."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.drop = nn.Linear(16, 16), nn.Linear(16, 16), nn.Dropout(0.25)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.drop(torch.tanh(self.drop(self.first(x)))))

    torch.manual_seed(0)
    found = localize(Net(), (torch.randn(8, 16),), mode="training").localization
    assert not found.culprits, found.message
    assert found.checked == found.operations, found.unchecked
    assert found.closure == pytest.approx(1, abs=0.02) and not found.unaccounted


def sort_of(stable: bool | None) -> dict[str, fx.Node]:
    graph = fx.Graph()
    x = graph.placeholder("x")
    options = {} if stable is None else {"stable": stable}
    target = aten.sort.default if stable is None else aten.sort.stable
    found = graph.call_function(target, (x,), options)
    nodes = {
        "x": x, "sort": found, "values": graph.call_function(operator.getitem, (found, 0)),
        "places": graph.call_function(operator.getitem, (found, 1)),
    }  # fmt: skip
    return {**nodes, "read": graph.call_function(aten.mul.Tensor, (nodes["places"], 2))}


@pytest.mark.parametrize(
    ("x", "stable", "known"),
    [([2.0, 1.0, 2.0], None, False), ([2.0, 1.0, 2.0], False, False), ([2.0, 1.0, 2.0], True, True),
     ([3.0, 1.0, 2.0], None, True)],
)  # fmt: skip
def test_what_reads_places_of_equal_values_is_known_only_if_their_order_is(
    x: list[float], stable: bool | None, known: bool
) -> None:
    nodes = sort_of(stable)
    values: dict[fx.Node, object] = {nodes["x"]: torch.tensor(x)}
    for name in ("sort", "values", "places"):
        values[nodes[name]] = value_of(nodes[name], values, nn.Module(), as_it_is)
    assert torch.equal(values[nodes["values"]], torch.tensor(x).sort().values)  # type: ignore[arg-type]
    if known:
        value_of(nodes["read"], values, nn.Module(), as_it_is)
    else:
        with pytest.raises(Unknown, match="in which order getitem_1 has equal values was not seen"):
            value_of(nodes["read"], values, nn.Module(), as_it_is)
