"""Predicates, and backends that take Dynamo's graphs, as scripts import them."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that knows none of the names of what it decorates."""
    times: list[int] = []

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        times.append(1)
        return function(*args, **kwargs)

    return run


def has_low_column(program: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether a program gives a matrix with a column below -40."""
    results = [x for x in program(*inputs) if isinstance(x, torch.Tensor) and x.dim() == 2]
    return any(bool((x < -40).all(0).any()) for x in results)


def raises(program: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    raise RuntimeError("no answer")


def refusing_gelu(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Refuses a function of torch that Dynamo's graphs hold; of AOTAutograd's graphs all, otherwise."""
    for node in gm.graph.nodes:
        if node.target is torch.nn.functional.gelu or node.target is torch._C._nn.gelu:
            raise NotImplementedError("gelu")
        if isinstance(node.target, torch._ops.OpOverload):
            raise TypeError("operators of ATen are not for this backend")
    return gm.forward


class _Twice(torch.autograd.Function):
    """What it receives; its gradient is twice what it should be."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2


def twice(x: torch.Tensor) -> torch.Tensor:
    return _Twice.apply(x)  # type: ignore[no-any-return]


def wrong_gradient(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Right forward; the gradient of torch's ``tanh`` is twice what it should be."""
    for node in gm.graph.nodes:
        if node.target is torch.tanh:
            with gm.graph.inserting_after(node):
                wrong = gm.graph.call_function(twice, (node,))
            node.replace_all_uses_with(wrong, lambda user, wrong=wrong: user is not wrong)  # type: ignore[misc]
    gm.recompile()
    return gm.forward


def slow(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """A compiler that takes 0.1 s for each operation."""
    time.sleep(0.1 * len(gm.graph.nodes))
    return gm.forward


def slow_and_hanging(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """A compiler that takes 0.1 s for each operation, and comes to no end where there is a sine."""
    time.sleep(0.1 * len(gm.graph.nodes))
    while any("sin" in str(node.target) for node in gm.graph.nodes):
        time.sleep(0.1)
    return gm.forward


def wrong_from_third_call(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """The result of what it compiled has the wrong sign from the third call on, where it takes a hyperbolic tangent."""
    if not any("tanh" in str(node.target) for node in gm.graph.nodes):
        return gm.forward
    calls = 0

    def run(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return tuple(-x if calls >= 3 else x for x in gm.forward(*args))

    return run
