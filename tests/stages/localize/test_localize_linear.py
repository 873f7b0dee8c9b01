"""What is linear in each of what it takes: its errors against the operation, its gradients against autograd."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import fx

from inductor_debug.stages.localize.accounting.linear import LINEAR

aten = torch.ops.aten

CONVOLVED = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
SHAPES: dict[Any, tuple[tuple[int, ...], ...]] = {
    aten.mm.default: ((5, 4), (4, 3)),
    aten.bmm.default: ((2, 5, 4), (2, 4, 3)),
    aten.addmm.default: ((3,), (5, 4), (4, 3)),
    aten.baddbmm.default: ((1, 5, 3), (2, 5, 4), (2, 4, 3)),
    aten.convolution.default: ((2, 3, 8, 8), (4, 3, 3, 3), (4,)),
    aten.mul.Tensor: ((5, 4), (4,)),
    aten.add.Tensor: ((1, 4), (5, 4)),
    aten.sub.Tensor: ((5, 4), (5, 1)),
}
SCALED = {
    aten.addmm.default: {"beta": 0.5, "alpha": 3.0},
    aten.baddbmm.default: {"beta": 0.5, "alpha": 3.0},
    aten.add.Tensor: {"alpha": 3.0},
    aten.sub.Tensor: {"alpha": 3.0},
}
SUBSETS = [(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)]


def given(target: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64) for shape in SHAPES[target]]


def call(target: Any, count: int, *, scaled: bool) -> tuple[fx.Node, list[fx.Node], Any]:
    """A call, what it takes, and the operation with its further arguments."""
    rest: tuple[Any, ...] = CONVOLVED if target is aten.convolution.default else ()
    options = SCALED.get(target, {}) if scaled else {}
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{number}") for number in range(count)]
    return graph.call_function(target, (*nodes, *rest), options), nodes, lambda *args: target(*args, *rest, **options)


def gradients(
    node: fx.Node, values: Mapping[fx.Node, torch.Tensor], cotangent: torch.Tensor, asked: Any
) -> dict[fx.Node, torch.Tensor]:
    return LINEAR[node.target].gradients(node, values, lambda source: values[source].shape, cotangent, asked)


def test_each_has_shapes_to_be_tested_with() -> None:
    assert set(SHAPES) == set(LINEAR)


@pytest.mark.parametrize("target", LINEAR, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_derivative_is_that_of_autograd(target: Any, scaled: bool) -> None:
    values = [value.requires_grad_() for value in given(target)]
    node, nodes, run = call(target, len(values), scaled=scaled)
    result = run(*values)
    cotangent = torch.randn_like(result)
    right = torch.autograd.grad(result, values, cotangent)
    by_node = {source: value.detach() for source, value in zip(nodes, values, strict=True)}
    found = gradients(node, by_node, cotangent, set(nodes))
    for source, expected in zip(nodes, right, strict=True):
        torch.testing.assert_close(found[source].double(), expected, rtol=1e-5, atol=1e-5)
    assert set(gradients(node, by_node, cotangent, {nodes[1]})) == {nodes[1]}


@pytest.mark.parametrize(
    ("target", "which"),
    [(target, which) for target in LINEAR for which in SUBSETS if max(which) < len(SHAPES[target])],
    ids=str,
)
def test_what_errors_make_is_what_the_operation_gives_less_what_it_would(target: Any, which: tuple[int, ...]) -> None:
    values = given(target)
    wrong = {place: 1e-3 * torch.randn_like(values[place]) for place in which}
    node, nodes, run = call(target, len(values), scaled=True)
    found = LINEAR[target].error(
        node, dict(zip(nodes, values, strict=True)), {nodes[place]: wrong[place] for place in which}
    )
    right = [value - wrong[place] if place in wrong else value for place, value in enumerate(values)]
    expected = run(*values) - run(*right)
    torch.testing.assert_close(found.double().expand(expected.shape), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("target", [aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor], ids=str)
def test_of_a_value_and_a_number_only_the_value_counts(target: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value, error = torch.randn(2, 3, 4, dtype=torch.float64)
    for args in ((x, 2.5), (x, x)):
        node = graph.call_function(target, args)
        now, before = (target(*(each if item is x else item for item in args)) for each in (value, value - error))
        torch.testing.assert_close(LINEAR[target].error(node, {x: value}, {x: error}), now - before)
        leaf = value.clone().requires_grad_()
        result = target(*(leaf if item is x else item for item in args))
        (expected,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
        torch.testing.assert_close(gradients(node, {x: value}, torch.ones_like(value), {x})[x], expected)


def test_a_product_of_a_value_with_itself_has_both_parts_of_its_derivative() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value, cotangent = torch.randn(2, 4, 4, dtype=torch.float64)
    found = gradients(graph.call_function(aten.mm.default, (x, x)), {x: value}, cotangent, {x})
    torch.testing.assert_close(found[x].double(), cotangent @ value.T + value.T @ cotangent, rtol=1e-5, atol=1e-5)


def test_products_of_what_float32_can_not_hold_are_made_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_function(aten.mm.default, (x, y))
    product, ones = LINEAR[aten.mm.default], torch.ones(2, 2)
    large = {x: torch.full((2, 2), 1e200, dtype=torch.float64), y: ones}
    expected = torch.full((2, 2), 2e200, dtype=torch.float64)
    assert product.error(node, large, {y: ones}).equal(expected)
    assert gradients(node, large, ones, {x, y})[y].equal(expected)
    assert product.error(node, {x: ones, y: ones}, {y: ones}).dtype == torch.float32
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")  # products of bfloat16, on some CPUs
    assert product.error(node, {x: ones, y: ones}, {y: ones}).dtype == torch.float64
