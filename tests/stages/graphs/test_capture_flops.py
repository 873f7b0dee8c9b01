"""FLOPs of captured graphs against counts made by hand; a multiply-add is two."""

from typing import Any

import pytest
import torch
from capture_models import case_of
from torch import nn

from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.flops import count_flops

aten = torch.ops.aten

PRODUCTS = {
    "_int_mm": (aten._int_mm.default, [(32, 8), (8, 16)], 2 * 32 * 8 * 16),
    "addbmm": (aten.addbmm.default, [(4, 6), (3, 4, 5), (3, 5, 6)], 2 * 3 * 4 * 5 * 6),
    "mv": (aten.mv.default, [(4, 5), (5,)], 2 * 4 * 5),
    "addmv": (aten.addmv.default, [(4,), (4, 5), (5,)], 2 * 4 * 5),
    "dot": (aten.dot.default, [(7,), (7,)], 2 * 7),
    "mm": (aten.mm.default, [(4, 5), (5, 6)], 2 * 4 * 5 * 6),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    target, shapes, by_hand = PRODUCTS[name]
    tensors = tuple(torch.empty(shape, device="meta") for shape in shapes)
    assert count_flops(target, tensors, {}, torch.empty(0, device="meta")) == by_hand


# Output positions (transposed: input positions) x weights of one position x multiply-add; batch 2.
CONVOLUTIONS = {
    "plain": (nn.Conv2d(4, 6, 3), 2 * (6 * 6) * (6 * 4 * 9) * 2),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), 2 * (6 * 6) * (6 * 2 * 9) * 2),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4, padding=1), 2 * (8 * 8) * (4 * 1 * 9) * 2),
    "strided": (nn.Conv2d(4, 6, 3, stride=2, groups=2), 2 * (3 * 3) * (6 * 2 * 9) * 2),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), 2 * (8 * 8) * (4 * 6 * 9) * 2),
    "transposed grouped": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), 2 * (8 * 8) * (4 * 3 * 9) * 2),
}


def _counted(module: nn.Module, *args: Any) -> dict[str, int | None]:
    graphs = capture(case_of(module, *args, mode="training")).graphs
    return {
        graph.kind: node.flops for graph in graphs for node in graph.nodes
        if str(node.target).startswith("aten.convolution") and graph.kind in ("forward", "backward")
    }  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("gradients", [1, 2])
def test_convolutions_and_their_gradients(name: str, gradients: int) -> None:
    module, forward = CONVOLUTIONS[name]
    x = torch.randn(2, 4, 8, 8, requires_grad=gradients == 2)  # the weight's alone, or the input's too
    assert _counted(module, x) == {"forward": forward, "backward": gradients * forward}
