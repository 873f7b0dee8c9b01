"""Compilers with one fault each, planted where their developer would make it, and small models that meet them."""

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx, nn

aten = torch.ops.aten


class Pointwise(nn.Module):
    """A few pointwise operations and a sum, one kernel."""

    def __init__(self, scale: float = 2.5) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(torch.erf(x) * self.scale + x)
        return torch.cos(hidden).sum(-1)


class Perceptron(nn.Module):
    """Two projections with a GELU between them, and a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.down(nn.functional.gelu(self.up(x))))


class Logarithm(nn.Module):
    """A few pointwise operations with a log1p among them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(torch.log1p(x * x) + x).sum(-1)


class Scales(nn.Module):
    """One input scaled twice: by 2 and by 3."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x * 2.0) + torch.cos(x * 3.0)


@contextlib.contextmanager
def entry(table: Any, key: Any, value: Any) -> Iterator[None]:
    before = table[key]
    table[key] = value
    try:
        yield
    finally:
        table[key] = before


@contextlib.contextmanager
def wrong_lowering(operator: Any) -> Iterator[None]:
    """Inductor's lowering of an operator gives 1 % more."""
    from torch._inductor.lowering import lowerings

    right = lowerings[operator]

    def wrong(*args: Any, **kwargs: Any) -> Any:
        return lowerings[aten.mul.Tensor](right(*args, **kwargs), 1.01)

    with entry(lowerings, operator, wrong):
        yield


def misread_scale(graph: fx.Graph) -> None:
    """A pass that takes another constant for 2.5; it changes its node in place."""
    for node in graph.nodes:
        if node.target is aten.mul.Tensor and 2.5 in node.args:
            node.args = tuple(2.6 if each == 2.5 else each for each in node.args)


def relu_as_silu(graph: fx.Graph) -> None:
    """A pass that puts another activation in the place of a ReLU."""
    for node in graph.nodes:
        if node.target is torch.relu:
            node.target = nn.functional.silu


def after_tracing(change: Callable[[fx.Graph], None]) -> Any:
    """Dynamo changes each graph that it has traced, before any backend is given it."""
    from torch._dynamo.output_graph import OutputGraph

    right = OutputGraph.remove_unused_graphargs

    def wrong(self: Any) -> None:
        right(self)
        change(self.graph)

    return mock.patch.object(OutputGraph, "remove_unused_graphargs", wrong)


def double_constants(graph: fx.Graph) -> None:
    """Doubles the constant of each product."""
    for node in graph.nodes:
        if node.target in (operator.mul, aten.mul.Tensor):
            node.args = tuple(2 * each if isinstance(each, float) else each for each in node.args)


def refuse_products(graph: fx.Graph) -> None:
    """Can't handle a product."""
    if any(node.target is operator.mul for node in graph.nodes):
        raise AssertionError("planted: no product was expected here")


def careless_cse() -> Any:
    """AOTAutograd's elimination of common subexpressions takes products by different constants for the same."""
    from torch._functorch import partitioners

    right = partitioners.fx_graph_cse

    def wrong(graph: fx.Graph) -> fx.Graph:
        made, first = right(graph), {}
        for node in made.nodes:
            if node.target is aten.mul.Tensor and len(node.all_input_nodes) == 1:
                kept = first.setdefault(node.args[0], node)
                if kept is not node:
                    node.replace_all_uses_with(kept)
        made.eliminate_dead_code()
        return made

    return mock.patch.object(partitioners, "fx_graph_cse", wrong)


def wrong_partition() -> Any:
    """AOTAutograd's partitioner changes the backward that it cuts from the joint graph."""
    from torch._functorch import partitioners

    right = partitioners._extract_fwd_bwd_modules

    def wrong(*args: Any, **kwargs: Any) -> Any:
        forward, backward = right(*args, **kwargs)
        double_constants(backward.graph)
        backward.recompile()
        return forward, backward

    return mock.patch.object(partitioners, "_extract_fwd_bwd_modules", wrong)


@contextlib.contextmanager
def inductor_config(**options: Any) -> Iterator[None]:
    import torch._inductor.config as config

    with config.patch(options):
        yield


def wrong_post_grad_pass() -> Any:
    return inductor_config(post_grad_custom_post_pass=misread_scale)


def wrong_pre_grad_pass() -> Any:
    return inductor_config(pre_grad_custom_pass=relu_as_silu)


@contextlib.contextmanager
def wrong_joint_pattern() -> Iterator[None]:
    """A replacement of the joint graph's pattern matcher computes with another constant."""
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.pattern_matcher import Arg, CallFunction, Match, register_graph_pattern

    joint_graph.lazy_init()
    patterns = joint_graph.pass_patterns[1]
    place = patterns.patterns["call_function", aten.mul.Tensor]

    @register_graph_pattern(CallFunction(aten.mul.Tensor, Arg(), 2.5), pass_dict=patterns)
    def fold_scale(match: Match, x: Any) -> None:
        match.replace_by_example(lambda x: x * 2.6, [x])

    try:
        yield
    finally:
        place.pop()


@contextlib.contextmanager
def wrong_gelu_decomposition() -> Iterator[None]:
    """The rough approximation by a sigmoid, where the exact one was asked for."""
    from torch._inductor.decomposition import decompositions

    def rough_gelu(x: Tensor, approximate: str = "none") -> Tensor:
        return x * torch.sigmoid(1.702 * x)

    with entry(decompositions, aten.gelu.default, rough_gelu):
        yield


def injected_bug(of: str = "cpp.inject_relu_bug_TESTING_ONLY", kind: str = "accuracy") -> Any:
    """torch's own, in the code that is generated for a ReLU, or of C++ for a log1p."""
    return inductor_config(**{of: kind})


Plant = Callable[[], Any]
