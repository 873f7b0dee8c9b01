"""The picture of a training graph of more than a thousand nodes, whose layers are not alike."""

import time
from collections import Counter

import pytest
import torch
from capture_models import case_of
from picture_geometry import all_parts, boxes, check, parse
from torch import nn

from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graph_pictures.grouping import BUDGET
from inductor_debug.stages.graphs.records import GraphRecord

CPU_SECONDS = 5.0


class Uneven(nn.Module):
    """A residual block of some layers."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden)) * hidden
        return x + hidden


class Tower(nn.Module):
    """Blocks of which no two neighbours are alike, so that they don't fold to a stack."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Uneven(1 + index % 3) for index in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def joint() -> GraphRecord:
    torch.manual_seed(0)
    torch._dynamo.reset()
    record = capture(case_of(Tower(36), torch.randn(4, 8), mode="training")).graph("g0.joint")
    assert len(record.nodes) >= 1000
    return record


def test_a_thousand_nodes_are_drawn_whole_within_the_budget_of_boxes(joint: GraphRecord) -> None:
    began = time.process_time()
    picture = draw_graph(joint)
    assert time.process_time() - began < CPU_SECONDS
    drawn = parse(picture)  # raises for what is no XML
    check(drawn)
    shown = Counter(name for box in boxes(drawn) for name in box.nodes or [])
    assert shown == Counter(node.name for node in joint.nodes if node.op.startswith("call_"))
    parts = [part for part in all_parts(drawn) if part.nodes is not None or "frame" in part.kinds]
    assert BUDGET / 2 < len(parts) <= BUDGET


def test_the_budget_holds_whatever_it_is(joint: GraphRecord) -> None:
    began = time.process_time()
    pictures = {budget: draw_graph(joint, budget=budget) for budget in (6, 20, 200)}
    assert time.process_time() - began < CPU_SECONDS
    for budget, picture in pictures.items():
        drawn = parse(picture)
        check(drawn)
        assert len(boxes(drawn)) <= budget
