"""Parts of a graph as graphs of their own: side by side, laid out as they were, with sizes."""

from typing import Any

import torch
from test_localize_shares import graph_of, named
from torch import fx, nn

from inductor_debug import localize
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.localize.judging import evaluation
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.localize.searching import pieces
from inductor_debug.stages.localize.searching.in_place import Search
from inductor_debug.stages.localize.searching.parts import part_of

aten = torch.ops.aten


class WrongAt(AotEagerAdapter):
    """torch, but for a node, or several by spaces, whose result it multiplies, by 2 or as ``factors`` says."""

    def __init__(self, node: str) -> None:
        self.node, self.graphs = node, list[list[str]]()
        self.factors: dict[str, float] = {}

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
                if node.name in self.node.split():
                    values[node] = values[node] * self.factors.get(node.name, 2)
            raise AssertionError("a graph has an output")

        return run


def squares(count: int = 3, results: tuple[int, ...] = (-1,)) -> tuple[fx.Graph, Seen]:
    """Alike products, each of the one before, and their values by torch."""

    def build(graph: fx.Graph, x: fx.Node) -> list[fx.Node]:
        made = [x]
        for number in range(count):
            made.append(named(graph, f"mm_{number}", aten.mm.default, made[-1], made[-1]))
        return [made[1:][number] for number in results]

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
        assert [item.operations[-1].name for item in search.found] == [wrong] and not search.missing
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
    (item,) = search.found
    assert [node.name for node in item.operations] == ["mm_0", "mm_2"] and item.local.wrong


def test_what_only_shows_together_is_found_beside_another_fault_that_cuts_it_apart() -> None:
    """mm_0 is wrong by itself, mm_1 and mm_2 together: the first cut goes between mm_0 and these, the next between."""

    class Both(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            names = {node.name for node in gm.graph.nodes if node.op == "call_function"}
            first, self.node = "mm_0" in names, "mm_2" if {"mm_1", "mm_2"} <= names else ""
            right = super().compile(gm, example_inputs)
            return (lambda *inputs: [value * 3 for value in right(*inputs)]) if first else right

    _, seen = squares()
    search = Search(seen, Both(""), 4.0, lambda: False, lambda text: None)
    search.run()
    found = [[node.name for node in item.operations] for item in search.found]
    assert found == [["mm_0"], ["mm_1", "mm_2"]] and not search.missing


def test_of_pairs_that_are_wrong_together_and_share_an_operation_each_is_found() -> None:
    """A product is wrong if the one before is in the same graph: the second of three is wrong, and makes one so."""

    class Chained(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            names = {node.name for node in gm.graph.nodes if node.op == "call_function"}
            self.node = " ".join(
                f"mm_{number + 1}" for number in range(2) if {f"mm_{number}", f"mm_{number + 1}"} <= names
            )
            return super().compile(gm, example_inputs)

    _, seen = squares()
    search = Search(seen, Chained(""), 4.0, lambda: False, lambda text: None)
    search.run()
    found = [[node.name for node in item.operations] for item in search.found]
    assert sorted(found) == [["mm_0", "mm_1"], ["mm_1", "mm_2"]] and not search.missing
    assert [item.local.region.node.name for item in search.found] == [pair[1] for pair in found]


def test_what_is_wrong_behind_values_that_are_so_because_of_what_was_found_is_found_too() -> None:
    """The first makes the second wrong, and the last of five; the third is a result, and far off behind the second."""

    class Two(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            names = {node.name for node in gm.graph.nodes if node.op == "call_function"}
            self.node = "mm_1 mm_4" if "mm_0" in names else ""
            return super().compile(gm, example_inputs)

    _, seen = squares(5, (2, 4))
    search = Search(seen, Two(""), 4.0, lambda: False, lambda text: None)
    search.run()
    found = [[node.name for node in item.operations] for item in search.found]
    assert found == [["mm_0", "mm_1"], ["mm_0", "mm_4"]] and not search.missing


def test_what_nan_hides_in_the_whole_graph_is_found_without_what_makes_it() -> None:
    """mm_0 and mm_1 give NaN together, and all behind them has it; of mm_2 and mm_3 each is in another half."""

    class Hidden(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            names = {node.name for node in gm.graph.nodes if node.op == "call_function"}
            self.node = "mm_3" if {"mm_2", "mm_3"} <= names else ""
            if {"mm_0", "mm_1"} <= names:
                self.node, self.factors = f"{self.node} mm_1", {"mm_1": float("nan")}
            return super().compile(gm, example_inputs)

    _, seen = squares(6)
    search = Search(seen, Hidden(""), 4.0, lambda: False, lambda text: None)
    search.run()
    found = [[node.name for node in item.operations] for item in search.found]
    assert found == [["mm_0", "mm_1"], ["mm_2", "mm_3"]] and not search.missing


def test_of_a_device_that_takes_no_part_from_inside_a_graph_the_shortest_wrong_beginning_is_found() -> None:
    class Whole(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            if any(node.op == "placeholder" and node.name != "x0" for node in gm.graph.nodes):
                raise NotImplementedError("a graph that starts in the middle")
            return super().compile(gm, example_inputs)

    _, seen = squares()
    for wrong in ("mm_0", "mm_1", "mm_2"):
        search = Search(seen, Whole(wrong), 4.0, lambda: False, lambda text: None)
        search.run()
        (item,) = search.found
        assert [node.name for node in item.operations] == [wrong] and item.local.wrong
        assert wrong == "mm_0" or item.shows.startswith("in the shortest beginning")
    search = Search(seen, Whole("mm_0 mm_2"), 4.0, lambda: False, lambda text: None)
    search.run()
    assert [[node.name for node in item.operations] for item in search.found] == [["mm_0"], ["mm_2"]]
    search = Search(seen, Whole(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert not search.found and not search.missing


def test_of_a_device_that_takes_no_small_part_the_shortest_wrong_beginning_is_found() -> None:
    class Large(WrongAt):
        least = 2

        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            if sum(node.op == "call_function" for node in gm.graph.nodes) < self.least:
                raise NotImplementedError("too few operations")
            return super().compile(gm, example_inputs)

    _, seen = squares()
    search = Search(seen, Large("mm_2"), 4.0, lambda: False, lambda text: None)
    search.run()
    (item,) = search.found
    assert [node.name for node in item.operations] == ["mm_2"]
    assert item.shows.startswith("in the shortest beginning") and not search.missing
    search = Search(seen, Large("mm_1 mm_2"), 4.0, lambda: False, lambda text: None)
    search.run()
    assert [[node.name for node in item.operations] for item in search.found] == [["mm_1"], ["mm_2"]]
    Large.least = 3  # the whole alone, of which no one can say where in it the fault is
    search = Search(seen, Large("mm_1"), 4.0, lambda: False, lambda text: None)
    search.run()
    assert [[node.name for node in item.operations] for item in search.found] == [["mm_0", "mm_1", "mm_2"]]


def test_pieces_that_share_nothing_are_one_graph_though_their_nodes_have_the_same_names() -> None:
    graph, seen = squares()
    operations = [node for node in graph.nodes if node.name == "mm_1"]
    part = part_of(graph, operations)
    piece = pieces.piece_of(seen, part, part.results)
    whole, results = pieces.apart([piece, piece, piece])
    ran = pieces.run(whole, pieces.compiled(whole, WrongAt(results[1][0])))
    right = seen.values["mm_1"]
    assert [len(names) for names in results] == [1, 1, 1] and len({names[0] for names in results}) == 3
    for (name,), factor in zip(results, (1, 2, 1), strict=True):
        torch.testing.assert_close(ran.values[name], right * factor)


class Flat(nn.Module):
    """Its last kernel takes one size, a product of those of the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cumsum((x + 1).flatten(), 0) - 3.0) * 0.5


def test_a_part_is_given_the_sizes_on_which_its_shapes_depend() -> None:
    x = torch.randn(8, 8)
    for dim in range(2):
        torch._dynamo.mark_dynamic(x, dim)
    found = localize(Flat(), (x,), inductor={"cpp": {"inject_relu_bug_TESTING_ONLY": "accuracy"}})
    (culprit,) = found.localization.culprits
    assert culprit.place.target == "aten.relu.default" and pieces.ALONE in culprit.shows


def transposed() -> Seen:
    """A product of a square matrix's transpose, and its second row."""

    def build(graph: fx.Graph, x: fx.Node) -> fx.Node:
        turned = named(graph, "turned", aten.t.default, x)
        product = named(graph, "product", aten.mm.default, turned, x)
        return named(graph, "row", aten.select.int, product, 0, 1)

    graph = graph_of(build, 1)
    x = torch.randn(4, 4)
    product = x.t() @ x
    values = {"turned": x.t(), "product": product, "row": product[1]}
    for node in graph.nodes:
        if node.op != "output":
            node.meta["val"] = values.get(node.name, x)
    return Seen("g0.forward", graph, nn.Module(), {"x0": x}, values)


def test_a_view_that_is_wrong_is_named_and_not_what_takes_or_makes_it() -> None:
    for wrong in ("turned", "product", "row"):
        search = Search(transposed(), WrongAt(wrong), 4.0, lambda: False, lambda text: None)
        search.run()
        (item,) = search.found
        assert [node.name for node in item.operations] == [wrong] and item.local.wrong, wrong
        assert item.shows == (pieces.ALONE if wrong == "product" else pieces.VIEW)


def test_what_a_part_receives_is_laid_out_as_in_its_graph() -> None:
    """A device that reads an input that is not contiguous as if it were is right on a graph that has none."""

    class Contiguous(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            right = super().compile(gm, example_inputs)
            return lambda *inputs: right(*(item.as_strided(item.shape, torch.empty(item.shape).stride())
                                           for item in inputs))  # fmt: skip

    search = Search(transposed(), Contiguous(""), 4.0, lambda: False, lambda text: None)
    search.run()
    search.alone()
    assert not search.found and not search.missing


def test_what_is_found_alone_in_a_graph_that_is_right_says_so() -> None:
    class Inside(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            given = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            self.node = "" if given == ["x0"] else "mm_1"
            return super().compile(gm, example_inputs)

    _, seen = squares()
    search = Search(seen, Inside(""), 4.0, lambda: False, lambda text: None)
    search.run()
    search.alone()
    assert [item.operations[0].name for item in search.found] == ["mm_1"]
    assert search.found[0].shows == f"{pieces.ALONE}, and not in what its whole graph gives"


def test_a_whole_graph_of_which_a_result_could_not_be_compared_is_not_called_right() -> None:
    noise = graph_of(lambda graph, x: named(graph, "noise", aten.rand_like.default, x), 1)
    x = torch.randn(4, 4)
    for node in noise.nodes:
        node.meta["val"] = x
    seen = Seen("g0.forward", noise, nn.Module(), {"x0": x}, {"noise": torch.rand_like(x)})
    search = Search(seen, WrongAt(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert not search.found and not search.right


def test_an_operation_that_writes_over_what_it_receives_is_named() -> None:
    class Over(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            right = super().compile(gm, example_inputs)
            names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
            first = next(number for number, node in enumerate(gm.graph.nodes) if node.op == "placeholder")

            def run(*inputs: Any) -> Any:
                results = right(*inputs)
                if "mm_1" in names:
                    inputs[first].zero_()
                return results

            return run

    _, seen = squares()
    search = Search(seen, Over(""), 4.0, lambda: False, lambda text: None)
    search.run()
    (item,) = search.found
    assert [node.name for node in item.operations] == ["mm_1"]
    assert item.shows == f"{pieces.ALONE}, in what it leaves in its input mm_0"


def test_a_part_is_called_before_on_what_it_received_in_another_run() -> None:
    """A device that gives what the call before gave is wrong in the second call."""

    class Stale(WrongAt):
        def compile(self, gm: fx.GraphModule, example_inputs: Any) -> Any:
            right, stale = (
                super().compile(gm, example_inputs),
                "mm_1" in {node.name for node in gm.graph.nodes if node.op == "call_function"},
            )
            held: list[Any] = []

            def run(*inputs: Any) -> Any:
                held.append(right(*inputs))
                return held[-2] if stale and len(held) > 1 else held[-1]

            return run

    _, seen = squares()
    _, before = squares()
    search = Search(seen, Stale(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert not search.found
    search = Search(seen, Stale(""), 4.0, lambda: False, lambda text: None, before, 1)
    search.run()
    assert [[node.name for node in item.operations] for item in search.found] == [["mm_1"]]


def test_what_is_bit_for_bit_torchs_own_is_right_without_float64(monkeypatch: Any) -> None:
    asked: list[Any] = []
    original = evaluation._exactly
    monkeypatch.setattr(evaluation, "_exactly", lambda *args: asked.append(args[0]) or original(*args))
    _, seen = squares()
    search = Search(seen, WrongAt(""), 4.0, lambda: False, lambda text: None)
    search.run()
    assert not asked and search.compared["mm_2"].row is not None
    search = Search(seen, WrongAt("mm_2"), 4.0, lambda: False, lambda text: None)
    search.run()
    assert asked and [item.operations[0].name for item in search.found] == ["mm_2"]


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
