"""Programs at other sizes, and simpler ones: no process runs here."""

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx

from inductor_debug.stages.minify.candidate import Candidate, Given, Normal, NumberGiven, Stored, TensorGiven, Whole
from inductor_debug.stages.minify.simpler import simplified
from inductor_debug.stages.minify.sizes import dense, inferred, resized, smaller

aten = torch.ops.aten


def given(name: str, *shape: int, **fields: Any) -> TensorGiven:
    stride = dense(shape, tuple(range(len(shape), 0, -1)))
    made = TensorGiven(name, shape, stride, torch.float32, "cpu", 0, Stored(name), Normal(2.0, 0.5))
    return replace(made, **fields)


def program(calls: Callable[..., Any], *items: Given) -> Candidate:
    """The program that ``calls`` makes of a graph and its placeholders."""
    graph = fx.Graph()
    nodes = [graph.placeholder(item.name) for item in items]
    results = calls(graph, *nodes)
    graph.output(results if isinstance(results, tuple) else (results,))
    candidate = inferred(Candidate(graph, items))
    assert candidate is not None
    return candidate


def view_of_product(graph: fx.Graph, x: fx.Node, w: fx.Node) -> fx.Node:
    """[B, S, W] @ [W, O] as a product of matrices."""
    flat = graph.call_function(aten.view.default, (x, [48, 24]))
    product = graph.call_function(aten.mm.default, (flat, w))
    return graph.call_function(aten.view.default, (product, [4, 12, 40]))


def shapes(candidate: Candidate) -> list[tuple[int, ...]]:
    return [item.shape for item in candidate.given if isinstance(item, TensorGiven)]


def test_a_size_goes_wherever_it_stands() -> None:
    candidate = program(view_of_product, given("x", 4, 12, 24), given("w", 24, 40))
    other = resized(candidate, 12, 3)
    assert other is not None and shapes(other) == [(4, 3, 24), (24, 40)]
    assert [node.args[1] for node in other.calls if node.target is aten.view.default] == [[12, 24], [4, 3, 40]]
    assert [tuple(node.meta["val"].shape) for node in other.calls][-1] == (4, 3, 40)
    assert isinstance(other.given[0], TensorGiven) and other.given[0].values == Normal(2.0, 0.5)  # as many no more
    assert isinstance(other.given[1], TensorGiven) and other.given[1].values == Stored("w")
    assert shapes(candidate) == [(4, 12, 24), (24, 40)]


def test_indices_of_all_elements_of_a_window_stay_within_it() -> None:
    """Of ``max_pool2d_with_indices_backward``, which does not check them."""
    indices = replace(given("i", 2, 3, 8, 8), dtype=torch.int64, drawn=Whole(0, 1024), values=Stored("i"))

    def pooled(graph: fx.Graph, grad: fx.Node, x: fx.Node, i: fx.Node) -> fx.Node:
        arguments = (grad, x, [3, 3], [4, 4], [1, 1], [1, 1], False, i)
        return graph.call_function(aten.max_pool2d_with_indices_backward.default, arguments)

    candidate = program(pooled, given("grad", 2, 3, 8, 8), given("x", 2, 3, 32, 32), indices)
    other = resized(candidate, 32, 29)
    assert other is not None and shapes(other)[1] == (2, 3, 29, 29)
    assert isinstance(other.given[2], TensorGiven) and other.given[2].values == Whole(0, 29 * 29)


def test_arithmetic_of_tensors_is_an_operation_and_that_of_sizes_is_none() -> None:
    candidate = program(
        lambda graph, x, n: graph.call_function(operator.mul, (x, graph.call_function(operator.mul, (n, 2)))),
        given("x", 4),
        NumberGiven("n", 3),
    )
    assert candidate.operations == 1


def test_what_torch_refuses_is_no_program() -> None:
    halves = program(lambda graph, x: graph.call_function(aten.slice.Tensor, (x, 1, 3, 9)), given("x", 4, 12))
    chunk = program(lambda graph, x: graph.call_function(aten.view.default, (x, [2, 6])), given("x", 12))
    assert resized(halves, 4, 2) is not None
    assert resized(chunk, 12, 5) is None


def test_indices_stay_below_what_they_index() -> None:
    indices = replace(given("i", 7), dtype=torch.int64, drawn=Whole(2, 19), values=Whole(2, 19))
    candidate = program(
        lambda graph, t, i: graph.call_function(aten.embedding.default, (t, i)), given("t", 20, 8), indices
    )
    other = resized(candidate, 20, 3)
    assert other is not None and isinstance(other.given[1], TensorGiven) and other.given[1].values == Whole(2, 3)


def test_strides_keep_their_order() -> None:
    assert dense((2, 3, 4), (12, 1, 3)) == (12, 1, 3)
    assert dense((2, 3, 4), (40, 1, 10)) == (12, 1, 3)
    assert dense((2, 3), (0, 1)) == (0, 1)
    assert dense((5, 1), (1, 1)) == (1, 1)


@pytest.mark.parametrize("size", [2, 37, 768])
def test_sizes_that_are_tried_are_smaller_and_have_residues(size: int) -> None:
    candidate = program(lambda graph, x: graph.call_function(aten.relu.default, (x,)), given("x", size))
    ((old, others),) = smaller(candidate)
    assert old == size and others == sorted(set(others)) and others[0] == 1 and others[-1] < size
    for residue in (8, 16):
        assert size <= 2 * residue or any(other % residue == size % residue for other in others)


def relu(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return graph.call_function(aten.relu.default, (x,))


def never() -> bool:
    return False


def test_the_simplest_program_of_a_failure_that_needs_a_residue() -> None:
    """It shows where the last size is 5 modulo 16 and above 16: 21."""
    candidate = program(relu, given("x", 64, 197))
    tried = []

    def shows(other: Candidate) -> bool:
        tried.append(other)
        return shapes(other)[0][-1] % 16 == 5 and shapes(other)[0][-1] > 16

    found = simplified(candidate, shows, never)
    assert shapes(found) == [(1, 21)] and isinstance(found.given[0], TensorGiven)
    assert found.given[0].values == Normal() and len(tried) < 40


def test_numbers_that_matter_stay() -> None:
    """One input must hold what it held; the other needs its mean."""

    def shows(other: Candidate) -> bool:
        x, y = other.given
        assert isinstance(x, TensorGiven) and isinstance(y, TensorGiven)
        return isinstance(x.values, Stored) and (isinstance(y.values, Stored) or y.values == Normal(2.0, 0.5))

    both = program(lambda graph, x, y: graph.call_function(aten.add.Tensor, (x, y)), given("x", 4), given("y", 4))
    found = simplified(both, shows, never)
    assert [item.values for item in found.given if isinstance(item, TensorGiven)] == [Stored("x"), Normal(2.0, 0.5)]


def test_layouts_that_matter_stay() -> None:
    gaps = given("x", 8, 4, stride=(6, 1), offset=3, values=Normal(), drawn=Normal())
    plain = simplified(program(relu, gaps), lambda other: True, never).given[0]
    assert isinstance(plain, TensorGiven) and (plain.offset, plain.stride) == (0, (1, 1))
    offset = simplified(program(relu, gaps), lambda other: other.given[0].offset == 3, never).given[0]  # type: ignore[union-attr]
    assert isinstance(offset, TensorGiven) and (offset.offset, offset.shape) == (3, (1, 1))


def test_results_that_nothing_hangs_on_are_left_out() -> None:
    candidate = program(lambda graph, x: (relu(graph, x), graph.call_function(aten.exp.default, (x,))), given("x", 4))

    def shows(other: Candidate) -> bool:
        (output,) = (node for node in other.graph.nodes if node.op == "output")
        return any(node.target is aten.exp.default for node in output.args[0])

    (output,) = (node for node in simplified(candidate, shows, never).graph.nodes if node.op == "output")
    assert [node.target for node in output.args[0]] == [aten.exp.default]


@pytest.mark.parametrize("needed", [False, True])
def test_symbolic_sizes_become_numbers_where_they_do_not_matter(needed: bool) -> None:
    def expanded(graph: fx.Graph, x: fx.Node, n: fx.Node) -> fx.Node:
        return graph.call_function(aten.expand.default, (x, [n, 4]))

    candidate = replace(program(expanded, given("x", 1, 4), NumberGiven("n", 6)), dynamic=True)
    found = simplified(candidate, lambda other: other.dynamic or not needed, never)
    assert found.dynamic is needed and any(isinstance(item, NumberGiven) for item in found.given) is needed
    (call,) = found.calls
    assert needed or call.args[1] == [1, 1] or call.args[1][0] in (1, 6)  # type: ignore[index]


@pytest.mark.parametrize("right", [True, False])
def test_nothing_is_executed_when_time_is_up(right: bool) -> None:
    tried: list[Candidate] = []

    def shows(other: Candidate) -> bool:
        tried.append(other)
        return right

    simplified(program(relu, given("x", 64, 64)), shows, lambda: len(tried) == 2)
    assert len(tried) == 2
