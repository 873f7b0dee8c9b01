"""At which other shapes an operation at fault is wrong, for faults whose condition is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

from inductor_debug import localize
from inductor_debug.stages.artifacts.localization import Culprit, Neighbour, Place
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.localize.engine import Localized
from inductor_debug.stages.localize.messages import told
from inductor_debug.stages.localize.searching.pieces import ALONE

aten = torch.ops.aten
Wrong = Callable[[Any, tuple[Any, ...], Any], Any]
"""Operator, arguments and what is right → what the backend gives."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Parameter(torch.randn(70, 48)), nn.Parameter(torch.randn(48, 10))
        self.norm = nn.LayerNorm(48)

    def forward(self, x: Tensor) -> Tensor:
        return (self.norm(x @ self.first) @ self.last).t().softmax(-1)


def found_with(wrong: Wrong) -> Localized:
    class Backend(fx.Interpreter):
        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return wrong(target, args, super().call_function(target, args, kwargs))

    def backend(gm: fx.GraphModule, examples: Any) -> Any:
        return aot_autograd(fw_compiler=lambda graph, inputs: Backend(graph).run)(gm, examples)

    torch.manual_seed(0)
    return localize(Net(), (torch.randn(33, 70),), backend=backend)


def culprit(found: Localized, target: str) -> tuple[Culprit, dict[int | None, dict[str, set[int | None]]]]:
    """The one culprit, and by size what was tried in its place, by state."""
    (item,) = found.localization.culprits
    assert item.place.target == target
    states: dict[int | None, dict[str, set[int | None]]] = {}
    for tried in item.neighbours:
        states.setdefault(tried.size, {"right": set(), "wrong": set()})[tried.state].add(tried.other)
    return item, states


def test_a_tail_that_is_left_out_is_told_by_the_sizes_that_have_one() -> None:
    def tail(target: Any, args: tuple[Any, ...], right: Any) -> Any:
        if target is not aten.mm.default or not args[0].shape[1] % 32:
            return right
        kept = args[0].shape[1] // 32 * 32
        return args[0][:, :kept] @ args[1][:kept] if kept < args[0].shape[1] != 48 else right

    found = found_with(tail)
    _, states = culprit(found, "aten.mm.default")
    assert states[70] == {"right": {64, 96}, "wrong": {35, 71}}
    assert all(not states[size]["right"] for size in (33, 48))
    assert "It depends on the size 70: right at 64, 96 and wrong at 35, 71 in its place." in str(found)


def test_a_fault_above_a_size_is_right_at_half_of_it() -> None:
    found = found_with(lambda target, args, right: right * 1.01 if target is aten.mm.default and args[0].shape[1] > 60
                       else right)  # fmt: skip
    _, states = culprit(found, "aten.mm.default")
    assert states[70] == {"right": {35}, "wrong": {64, 71, 96}}


def test_an_operation_of_several_results_is_varied_with_its_list_of_sizes() -> None:
    def norm(target: Any, args: tuple[Any, ...], right: Any) -> Any:
        if target is aten.native_layer_norm.default and args[1][0] % 16 == 0:
            return right[0] * 1.01, *right[1:]
        return right

    _, states = culprit(found_with(norm), "aten.native_layer_norm.default")
    assert states[48] == {"wrong": {32, 64}, "right": {24, 47, 49}}


def test_a_fault_of_one_shape_alone_and_one_of_every_shape_say_so() -> None:
    alone = found_with(lambda target, args, right: right * 1.01 if target is aten.mm.default
                       and right.shape == (33, 48) and args[0].shape[1] == 70 else right)  # fmt: skip
    item, _ = culprit(alone, "aten.mm.default")
    assert {tried.state for tried in item.neighbours} == {"right"}
    assert "It shows at this shape alone: at none of 12 others that were tried." in str(alone)
    always = found_with(lambda target, args, right: right * 1.01 if target is aten._softmax.default else right)
    assert "So it does at each of" in str(always)


def test_strides_are_varied_where_there_are_other_than_contiguous_ones() -> None:
    found = found_with(lambda target, args, right: right * 1.01 if target is aten._softmax.default
                       and not args[0].is_contiguous() else right)  # fmt: skip
    item, states = culprit(found, "aten._softmax.default")
    assert Neighbour(None, None, "right") in item.neighbours
    assert all(not states[size]["right"] for size in (10, 33))
    assert "It is right where what it receives is contiguous." in str(found)


@pytest.mark.parametrize("refused", [4, 96])
def test_a_shape_that_the_backend_does_not_take_is_told_and_the_others_are_tried(refused: int) -> None:
    def wrong(target: Any, args: tuple[Any, ...], right: Any) -> Any:
        if target is aten.mm.default and refused in args[0].shape:
            raise RuntimeError(f"no size {refused}")
        return right * 1.01 if target is aten.mm.default and args[0].shape[1] == 70 else right

    (item,) = found_with(wrong).localization.culprits
    by_size = {(tried.size, tried.other): tried.state for tried in item.neighbours}
    assert by_size[70, 64] == "right" and by_size[48, 64] == "wrong"
    if refused == 96:
        assert "no size 96" in by_size[70, 96]


def test_a_fault_that_goes_by_its_nodes_name_says_nothing_of_other_shapes() -> None:
    """The neighbours' nodes have other names: that they are right does not tell that the fault needs its shape."""
    torch.manual_seed(0)
    found = localize(Net(), (torch.randn(33, 70),), backend=PlantedFault("aot_eager", "mm", "scale", strength=0.1))
    (item,) = found.localization.culprits
    assert item.place.node == "mm" and not item.neighbours
    assert "at this shape alone" not in found.localization.message


PLACE = Place("g0.forward", "mm", "aten.mm.default", ["mm"])
CULPRIT = Culprit(PLACE, "operation", 9.0, None, 0, shows=[ALONE])


def test_a_message_has_the_first_culprit_and_those_that_cost_most() -> None:
    culprits = [
        replace(CULPRIT, place=replace(CULPRIT.place, node=name), remains=remains)
        for name, remains in (("a", 0.9), ("b", 0.95), ("c", None), ("d", 0.2), ("e", 0.5))
    ]
    localization = replace(localize(Net(), (torch.randn(33, 70),), backend="aot_eager").localization, culprits=culprits)
    message = told(localization, failed=False).message
    assert [name for name in "abcde" if f"(g0.forward {name})" in message] == ["a", "d", "e"]
    assert "2 further ones in diagnosis.json" in message
