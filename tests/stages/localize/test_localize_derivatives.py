"""The derivative of one operation: by formula, by autograd, or told that there is none."""

import operator
from typing import Any

import pytest
import torch
from test_localize_shares import graph_of
from torch import Tensor, fx, nn

from inductor_debug.stages.localize.accounting.derivatives import FORMULAS, NoDerivative, derivative
from inductor_debug.stages.localize.accounting.products import PRODUCTS, error_of, gradients_of
from inductor_debug.stages.localize.runs.regions import Seen

aten = torch.ops.aten


def test_attention_has_its_derivative_forward_and_backward() -> None:
    """The formulas give what torch's own operators give, and their derivatives agree with differences."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.randn(1, 1, 5, 5, dtype=torch.float64)
    for causal, options in ((False, {"attn_mask": mask}), (True, {}), (False, {"scale": 0.3})):
        forward = aten._scaled_dot_product_flash_attention_for_cpu.default
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        with torch.no_grad():
            theirs = forward(query, key, value, 0.0, causal, **options)
            gradient = torch.randn_like(theirs[0])
            back = backward(gradient, query, key, value, *theirs, 0.0, causal, **options)
        mine = FORMULAS[forward](query, key, value, 0.0, causal, **options)
        torch.testing.assert_close(mine[0], theirs[0])
        torch.testing.assert_close(mine[1], theirs[1])
        torch.testing.assert_close(
            FORMULAS[backward](gradient, query, key, value, *theirs, 0.0, causal, **options), back
        )
        inputs = (gradient.requires_grad_(), query, key, value, *(item.clone().requires_grad_() for item in theirs))

        def function(*tensors: Tensor, causal: bool = causal, options: dict[str, Any] = options) -> Any:
            return FORMULAS[backward](*tensors, 0.0, causal, **options)  # noqa: B023

        assert torch.autograd.gradcheck(function, inputs)


CONVOLVED = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
PRODUCTS_GIVEN = {
    aten.mm.default: ((5, 4), (4, 3)),
    aten.bmm.default: ((2, 5, 4), (2, 4, 3)),
    aten.addmm.default: ((3,), (5, 4), (4, 3)),
    aten.baddbmm.default: ((1, 5, 3), (2, 5, 4), (2, 4, 3)),
    aten.convolution.default: ((2, 3, 8, 8), (4, 3, 3, 3), (4,)),
}


@pytest.mark.parametrize("target", PRODUCTS, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_products_have_the_derivative_that_autograd_has(target: Any, scaled: bool) -> None:
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in PRODUCTS_GIVEN[target]]
    rest: tuple[Any, ...] = CONVOLVED if target is aten.convolution.default else ()
    options = {"beta": 0.5, "alpha": 3.0} if scaled and len(given) == 3 and not rest else {}
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{number}") for number in range(len(given))]
    node = graph.call_function(target, (*nodes, *rest), options)
    result = target(*given, *rest, **options)
    cotangent = torch.randn_like(result)
    right = torch.autograd.grad(result, given, cotangent)
    values = {source: value.detach() for source, value in zip(nodes, given, strict=True)}
    seen = Seen("g0.forward", graph, nn.Module())
    found = derivative(node, values, seen, {0: cotangent}, set(nodes))
    for source, expected in zip(nodes, right, strict=True):
        torch.testing.assert_close(found[source].double(), expected, rtol=1e-5, atol=1e-5)
    assert set(derivative(node, values, seen, {0: cotangent}, {nodes[1]})) == {nodes[1]}


def test_a_product_of_a_value_with_itself_has_both_parts_of_its_derivative() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value, cotangent = torch.randn(2, 4, 4, dtype=torch.float64)
    found = derivative(graph.call_function(aten.mm.default, (x, x)), {x: value}, Seen("g0.forward", graph, nn.Module()),
                       {0: cotangent}, {x})  # fmt: skip
    torch.testing.assert_close(found[x].double(), cotangent @ value.T + value.T @ cotangent, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", PRODUCTS, ids=str)
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
def test_what_errors_make_of_a_product_is_what_it_would_be_without_them_less(
    target: Any, which: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    values = [torch.randn(shape, dtype=torch.float64) for shape in PRODUCTS_GIVEN[target]]
    wrong = [1e-3 * torch.randn_like(value) for value in values]
    rest: tuple[Any, ...] = CONVOLVED if target is aten.convolution.default else ()
    options = {"beta": 0.5, "alpha": 3.0} if len(values) == 3 and not rest else {}
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{number}") for number in range(len(values))]
    node = graph.call_function(target, (*nodes, *rest), options)
    places = [place for place in which if place < len(values)]
    if not places:
        return
    found = error_of(node, dict(zip(nodes, values, strict=True)), {nodes[place]: wrong[place] for place in places})
    right = [value - wrong[place] if place in places else value for place, value in enumerate(values)]
    expected = target(*values, *rest, **options) - target(*right, *rest, **options)
    torch.testing.assert_close(found.double().expand(expected.shape), expected, rtol=1e-5, atol=1e-8)


def test_products_of_what_float32_can_not_hold_are_made_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_function(aten.mm.default, (x, y))
    large = {x: torch.full((2, 2), 1e200, dtype=torch.float64), y: torch.ones(2, 2)}
    assert error_of(node, large, {y: torch.ones(2, 2)}).equal(torch.full((2, 2), 2e200, dtype=torch.float64))
    assert gradients_of(node, large, torch.ones(2, 2), {x, y})[y].equal(torch.full((2, 2), 2e200, dtype=torch.float64))
    small = {x: torch.ones(2, 2), y: torch.ones(2, 2)}
    assert error_of(node, small, {y: torch.ones(2, 2)}).dtype == torch.float32
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")  # products of bfloat16, on some CPUs
    assert error_of(node, small, {y: torch.ones(2, 2)}).dtype == torch.float64


def test_what_has_no_derivative_is_told() -> None:
    graph = graph_of(lambda graph, x: graph.call_function(aten.nonzero_static.default, (x,), {"size": 2}), 1)
    (node,) = (item for item in graph.nodes if item.op == "call_function")
    assert (
        derivative(
            node,
            {node.args[0]: torch.randn(3).double()},
            Seen("g0.forward", graph, nn.Module()),
            {0: torch.ones(2, 1)},
            graph.nodes,
        )
        == {}
    )
    graph = graph_of(lambda graph, x: graph.call_function(aten.bucketize.Tensor, (x, x)), 1)
    (node,) = (item for item in graph.nodes if item.op == "call_function")
    assert (
        derivative(
            node,
            {node.args[0]: torch.randn(3).double()},
            Seen("g0.forward", graph, nn.Module()),
            {0: torch.ones(3)},
            graph.nodes,
        )
        == {}
    )
    graph = graph_of(
        lambda graph, x: graph.call_function(operator.getitem, (graph.call_function(aten.frexp.Tensor, (x,)), 0)), 1
    )
    (node,) = (item for item in graph.nodes if item.target is aten.frexp.Tensor)
    found = derivative(
        node,
        {node.args[0]: torch.rand(3).double() + 0.1},
        Seen("g0.forward", graph, nn.Module()),
        {0: torch.ones(3)},
        graph.nodes,
    )
    assert found[node.args[0]].shape == (3,)
    graph = graph_of(lambda graph, x: graph.call_function(aten.histc.default, (x, 4)), 1)
    (node,) = (item for item in graph.nodes if item.op == "call_function")
    with pytest.raises(NoDerivative):
        derivative(
            node,
            {node.args[0]: torch.randn(3).double()},
            Seen("g0.forward", graph, nn.Module()),
            {0: torch.ones(4)},
            graph.nodes,
        )
