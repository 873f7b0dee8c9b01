"""Results of another kind than they should be, and what a graph leaves in its inputs."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

from inductor_debug import ConfigurationError, localize
from inductor_debug.stages.localize.config import LocalizeConfig

aten = torch.ops.aten

Edit = Callable[[fx.GraphModule], None]


def edited(edit: Edit) -> Any:
    def compile_graph(gm: fx.GraphModule, example_inputs: list[Tensor]) -> Any:
        edit(gm)
        gm.recompile()
        return make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=compile_graph, keep_inference_input_mutations=True)


def after(target: Any, wrong: Any, *args: Any) -> Edit:
    """``wrong`` reads what ``target`` gives, in the place of all that did."""

    def edit(gm: fx.GraphModule) -> None:
        for node in [item for item in gm.graph.nodes if item.target is target]:
            with gm.graph.inserting_after(node):
                further = gm.graph.call_function(wrong, (node, *args))
            node.replace_all_uses_with(further)
            further.args = (node, *args)

    return edit


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.exp(x) * 2)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (
            after(aten.exp.default, aten.slice.Tensor, 0, 0, -1),
            "shape is [20, 8] in the reference, [19, 8] in the test",
        ),
        (after(aten.exp.default, aten.to.dtype, torch.float64), "dtype is float32 in the reference, float64 in the"),
    ],
    ids=["shape", "dtype"],
)
def test_a_result_of_another_shape_or_dtype_is_named(edit: Edit, told: str) -> None:
    found = localize(Net(), (torch.randn(20, 8),), backend=edited(edit)).localization
    assert [culprit.place.node for culprit in found.culprits] == ["exp"]
    assert told in found.message


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x * 2


def dropped(gm: fx.GraphModule) -> None:
    for node in [item for item in gm.graph.nodes if item.target is aten.copy_.default]:
        gm.graph.erase_node(node)


def larger(gm: fx.GraphModule) -> None:
    for node in [item for item in gm.graph.nodes if item.target is aten.copy_.default]:
        with gm.graph.inserting_before(node):
            node.args = (node.args[0], gm.graph.call_function(aten.mul.Tensor, (node.args[1], 1.01)))


@pytest.mark.parametrize(("edit", "names"), [(dropped, ["copy_"]), (larger, ["copy_"]), (lambda gm: None, [])])
def test_what_is_left_in_an_input_is_looked_at(edit: Edit, names: list[str]) -> None:
    found = localize(Counts(), (torch.randn(20, 8),), backend=edited(edit)).localization
    assert [culprit.place.node for culprit in found.culprits] == names
    assert found.checked == found.operations


def test_where_nothing_could_be_checked_nothing_is_said_to_be_right() -> None:
    def refusing(gm: fx.GraphModule) -> None:
        raise RuntimeError("no such unit")

    found = localize(Net(), (torch.randn(20, 8),), backend=edited(refusing)).localization
    assert found.message.startswith("Which operation is wrong is not established: none could be checked.")
    assert "no such unit" in found.message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"module": lambda x: x}, "module: got a function"),
        ({"args": torch.ones(3)}, "args: got a tensor"),
        ({"config": {"most": 3}}, "config: got a dict"),
        ({"factor": -1.0}, "factor: got -1.0"),
        ({"config": LocalizeConfig(steps=2)}, "steps=2 in mode=inference"),
    ],
)
def test_arguments_that_can_not_be_meant_are_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        localize(**{"module": Net(), "args": (torch.ones(3),), **arguments})
