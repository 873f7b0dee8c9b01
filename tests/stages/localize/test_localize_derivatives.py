"""The derivative of one operation: by formula, by autograd, or told that there is none."""

import operator
from typing import Any

import pytest
import torch
from test_localize_shares import graph_of
from torch import Tensor, nn

from inductor_debug.stages.localize.accounting.derivatives import FORMULAS, NoDerivative, derivative
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
