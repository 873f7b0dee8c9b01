"""Pictures of captured graphs: whole, legible, the same bytes for the same record."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch
from capture_models import case_of
from constrain_graphs import call, placeholder, tensor
from picture_geometry import SVG, all_parts, boxes, check, parse
from torch import nn

from inductor_debug.stages.capture.compilation import Capture, capture
from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine

HOSTILE = "<script>alert('x')</script>\"&\x00\x1b\ud800 ]]>"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer, self.act = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x + self.outer(self.act(self.inner(self.norm(x)))))


class Net(nn.Module):
    """Equal residual blocks between a stem and a head."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


@pytest.fixture(scope="module")
def captured() -> Capture:
    torch.manual_seed(0)
    return capture(case_of(Net(5), torch.randn(2, 6, 8), mode="training"))


KINDS = ["dynamo", "forward", "backward", "joint"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_graph_is_drawn_whole_and_nothing_overlaps(captured: Capture, kind: str) -> None:
    record = captured.graph(f"g0.{kind}")
    picture = draw_graph(record, small=0)
    drawn = parse(picture)
    check(drawn)
    assert sorted(name for box in boxes(drawn) for name in box.nodes or []) == sorted(
        node.name for node in record.nodes if node.op.startswith("call_")
    )
    assert picture == draw_graph(GraphRecord.from_json(json.loads(json.dumps(record.to_json()))), small=0)


def test_equal_layers_are_drawn_once_with_their_number(captured: Capture) -> None:
    drawn = parse(draw_graph(captured.graph("g0.forward"), small=0))
    (frame,) = [part for part in drawn.parts if "frame" in part.kinds]
    assert frame.texts[0] == "blocks.0 … 4"
    assert frame.texts[1].startswith("5 alike, one after the other")
    inner = [part.texts[0] for part in frame.inside.parts]
    assert inner == ["norm", "inner", "act", "outer", "add", "act"]
    outer = [part.texts[0] for part in drawn.parts]
    assert outer[:4] == ["stem", "blocks.0 … 4", "mean", "head"] and outer[-1] == "output" and len(outer) == 6


def test_the_backward_has_the_layers_too_the_last_first(captured: Capture) -> None:
    drawn = parse(draw_graph(captured.graph("g0.backward"), small=0))
    (frame,) = [part for part in drawn.parts if "frame" in part.kinds]
    assert frame.texts[0] == "blocks.4 … 0"
    assert "saved tensor" in " ".join(frame.texts)


def test_a_joint_graph_shows_both_and_what_is_kept(captured: Capture) -> None:
    picture = draw_graph(captured.graph("g0.joint"), small=0)
    frames = [part for part in parse(picture).parts if "frame" in part.kinds]
    assert [("backward" in part.kinds, part.texts[0]) for part in frames] == [
        (False, "blocks.0 … 4"), (True, "blocks.4 … 0"),
    ]  # fmt: skip
    assert 'class="wire kept"' in picture


def test_a_small_graph_is_drawn_operation_by_operation(captured: Capture) -> None:
    record = captured.graph("g0.dynamo")
    drawn = parse(draw_graph(record))
    check(drawn)
    assert all(len(box.nodes or []) == 1 for box in boxes(drawn))
    assert not [part for part in drawn.parts if "frame" in part.kinds]


def test_tooltips_tell_target_shape_dtype_and_line(captured: Capture) -> None:
    drawn = parse(draw_graph(captured.graph("g0.forward"), small=0))
    (head,) = [box for box in boxes(drawn) if box.texts[0] == "head"]
    assert "aten.addmm.default  2×4 float32" in head.tooltip
    assert "test_graph_pictures.py:" in head.tooltip


def test_lines_tell_shape_and_dtype(captured: Capture) -> None:
    picture = draw_graph(captured.graph("g0.forward"), small=0)
    labels = [text.text for wire in ElementTree.fromstring(picture).iter(f"{SVG}g") if wire.get("class") == "wire"
              for text in wire.iter(f"{SVG}text")]  # fmt: skip
    assert "2×6×16 float32" in labels


def test_figures_of_a_box_are_those_of_its_operations() -> None:
    nodes = [
        placeholder("x", 4, 100),
        placeholder("w", 100, 24, role="parameter"),
        call("mm", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=19200, module="net"),
        call("gelu", "aten.gelu.default", ["mm"], tensor(4, 24), module="net"),
        call("view", "aten.view.default", ["gelu"], tensor(96), module="net", aliases=True),
        call("split", "aten.split.Tensor", ["view"], tensor(48), tensor(48), module="end"),
        call("item", "_operator.getitem", ["split"], tensor(48), module="end"),
    ]
    output = NodeRecord("output", "output", "output", inputs=["item", "gelu"])
    found = boxes(parse(draw_graph(GraphRecord("g0.forward", "forward", [*nodes, output]), small=0)))
    assert [box.nodes for box in found] == [["mm", "gelu", "view"], ["split", "item"]]
    assert found[0].texts == [
        "net", "3 operations: mm, gelu", "19.2 kFLOP · 768 B made", "2.4 k parameters", "returns 1 result, 384 B",
    ]  # fmt: skip


def test_names_of_any_kind_are_shown_and_harm_nothing() -> None:
    nodes = [
        NodeRecord("x", "placeholder", HOSTILE, outputs=[tensor("s0", 4, hints=[3, 4])], role="input"),
        NodeRecord("a b", "call_function", HOSTILE, inputs=["x"], outputs=[tensor("s0*2", 4)], module=f"net.{HOSTILE}",
                   source=SourceLine(HOSTILE, 3, HOSTILE)),
        NodeRecord("模型" * 40, "call_method", "层" * 80, inputs=["a b"], outputs=[tensor(4)], module="网络" * 30),
        NodeRecord("output", "output", "output", inputs=["模型" * 40]),
    ]  # fmt: skip
    record = GraphRecord("g0.dynamo", "dynamo", nodes, {"s0": {"hint": 3, "min": 2, "max": None}})
    picture = draw_graph(record, {"a b": (HOSTILE, HOSTILE)})
    picture.encode()
    drawn = parse(picture)
    check(drawn)
    assert {tuple(box.nodes or []) for box in boxes(drawn)} == {("a b",), ("模型" * 40,)}
    assert "<script" not in picture and "s0*2×4 float32" in picture and "s0 = 3" in picture
    for part in all_parts(drawn):
        wide = max(len(text.encode("gb18030")) // 2 if not text.isascii() else len(text) for text in part.texts)
        assert 6.6 * wide < part.rect[2] - part.rect[0]


@pytest.mark.parametrize(
    "nodes", [[], [placeholder("x", 4), NodeRecord("output", "output", "output", inputs=["x"])]], ids=["no", "identity"]
)
def test_a_graph_without_operation_says_so(nodes: list[NodeRecord]) -> None:
    picture = draw_graph(GraphRecord("g0.forward", "forward", nodes))
    assert "This graph has no operation" in picture and not parse(picture).parts


def test_findings_are_outlined_the_worst_of_a_box_first() -> None:
    nodes = [
        placeholder("x", 4, 8),
        placeholder("w", 8, 8, role="parameter"),
        call("mm", "aten.mm.default", ["x", "w"], tensor(4, 8), module="net"),
        call("relu", "aten.relu.default", ["mm"], tensor(4, 8), module="net"),
        call("exp", "aten.exp.default", ["relu"], tensor(4, 8), module="end"),
        NodeRecord("output", "output", "output", inputs=["exp"]),
    ]
    record = GraphRecord("g0.forward", "forward", nodes)
    findings = {
        "w": ("copy", "w is cut"),
        "relu": ("reject", "no relu here"),
        "mm": ("pad", "mm is narrow"),
        "x": ("cast", "x is int"),
    }
    drawn = parse(draw_graph(record, findings, small=0))
    net, end = boxes(drawn)
    assert "found" in net.kinds and "found" not in end.kinds
    assert net.texts[-1] == "! reject 1, copy 1, cast 1, pad 1"
    assert net.tooltip.index("reject: no relu here") < net.tooltip.index("pad: mm is narrow")
    (given,) = [part for part in drawn.parts if part.texts[0] == "x"]
    assert "found" in given.kinds and "cast: x is int" in given.tooltip
    assert "found" not in draw_graph(record, small=0).partition("</style>")[2]


def test_drawing_needs_no_torch() -> None:
    code = (
        "import sys, inductor_debug.stages.graph_pictures as p\n"
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
