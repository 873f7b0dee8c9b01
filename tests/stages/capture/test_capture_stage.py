"""The stage's files, summary and statistics; liveness on a graph counted by hand."""

import subprocess
import sys

import pytest
import torch
from capture_models import Broken, NoTensors, Small, case_of
from torch import nn

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.capture.stage import CaptureStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.graphs.liveness import peak_live
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.graphs.statistics import statistics
from inductor_debug.stages.settings import Settings


def run(case: object, dynamic: bool | None = None) -> tuple[StageResult, MemoryArtifacts]:
    artifacts = MemoryArtifacts()
    context = StageContext(Settings(model=ModelConfig(name="small")), artifacts, live={"case": case})
    result = CaptureStage(CaptureConfig(dynamic)).run(context)
    artifacts.add(result)
    return result, artifacts


@pytest.fixture(scope="module")
def broken() -> tuple[StageResult, MemoryArtifacts]:
    return run(case_of(Broken(), torch.randn(5, 4), scale=torch.ones(8), mode="training"))


def test_every_file_is_there(broken: tuple[StageResult, MemoryArtifacts]) -> None:
    result, artifacts = broken
    ids = [f"g{number}.{kind}" for number in range(3) for kind in ("dynamo", "joint", "forward", "backward")]
    graphs = [f"capture/graphs/{id}.{ending}" for id in ids for ending in ("json", "py", "svg")]
    tables = ["statistics.csv", "breaks.json", "guards.json", "recompiles.json", "sources.json"]
    assert artifacts.names("capture/") == sorted([*graphs, *(f"capture/{name}" for name in tables)])
    assert result.status == "passed"
    compile(artifacts.read_text("capture/graphs/g2.forward.py"), "g2.forward.py", "exec")


def test_summary_counts(broken: tuple[StageResult, MemoryArtifacts]) -> None:
    result, artifacts = broken
    counts = result.summary["graphs"]
    assert (counts.dynamo, counts.forward, counts.backward, counts.breaks) == (3, 3, 3, 2)
    assert counts.guards == len(artifacts.read_json("capture/guards.json")) > 0
    stored = [artifacts.read_json(name) for name in artifacts.names("capture/graphs/") if name.endswith("ward.json")]
    calls = [node for graph in stored for node in graph["nodes"] if node["op"].startswith("call")]
    items = sum(node["target"] == "_operator.getitem" for node in calls)
    assert items > 0 and counts.nodes == len(calls) - items
    assert result.message == (
        "Dynamo captured 3 graphs, with 2 graph breaks; Python runs what lies between. "
        f"AOTAutograd turned them into {counts.nodes} operations.\n"
        f"AOTAutograd: 3 forward, 3 backward. {counts.guards} guards."
    )


def test_the_message_names_the_setting_of_dynamos_that_would_make_a_graph() -> None:
    result, _ = run(case_of(nn.Sequential(nn.LSTM(4, 4)), torch.randn(3, 2, 4)))
    assert result.summary["graphs"].dynamo == 0
    assert "Try: backend.dynamo.allow_rnn=true" in result.message


def test_sizes_traced_otherwise_than_they_are_compiled_are_told() -> None:
    result, artifacts = run(case_of(Small(), torch.ones(5, 4)), dynamic=True)
    said = "Traced with dynamic=True here alone: stages that compile let torch decide."
    assert said in result.message.splitlines()
    shapes = [tensor["shape"] for node in artifacts.read_json("capture/graphs/g0.forward.json")["nodes"]
              for tensor in node["outputs"]]  # fmt: skip
    assert any(isinstance(size, str) for shape in shapes for size in shape)


def test_stored_graphs_are_records(broken: tuple[StageResult, MemoryArtifacts]) -> None:
    data = broken[1].read_json("capture/graphs/g0.backward.json")
    assert GraphRecord.from_json(data).to_json() == data
    assert set(broken[0].digest) == {name for name in broken[1].names("capture/graphs/") if name.endswith(".json")}


def test_two_captures_of_one_case_agree() -> None:
    torch.manual_seed(0)
    case = case_of(Small(), torch.randn(5, 4), mode="training")
    first, second = run(case)[1], run(case)[1]
    for name in first.names("capture/"):
        assert first.read_bytes(name) == second.read_bytes(name), name


def test_no_graph_is_not_a_pass() -> None:
    result, _ = run(case_of(NoTensors(), torch.ones(3)))
    assert result.status == "failed"
    assert result.message == "Nothing was captured: torch.compile made no graph of this model."
    assert result.summary["graphs"].dynamo == 0


def test_statistics_add_up() -> None:
    from inductor_debug.stages.capture.compilation import capture

    rows = statistics(capture(case_of(Small(), torch.ones(5, 4))).graphs)
    table = files.STATISTICS.frame(rows).set_index(["graph", "scope", "operator"]).sort_index()
    product = table.loc["g0.forward", "operator", "aten.addmm.default"]
    assert (product["count"], product["output_bytes"], product["flops"], product["dtype"]) == (1, 160, 320, "float32")
    view = table.loc["g0.forward", "operator", "aten.t.default"]
    assert (view["output_bytes"], view["allocated_bytes"]) == (4 * 8 * 4, 0)
    whole = table.loc["g0.forward", "graph"].iloc[0]
    assert whole["count"] == table.loc["g0.forward", "operator"]["count"].sum() == 5
    assert whole["flops"] == 320 and whole["flops_unknown"] == 3  # of t, native_layer_norm and relu; getitem is none
    assert whole["input_bytes"] == 4 * (4 * 8 + 8 + 5 * 4 + 8 + 8)
    # caller's tensors throughout; at the norm its input and its three outputs are alive together
    assert whole["peak_live_bytes"] == whole["input_bytes"] + 160 + (160 + 20 + 20)
    assert whole["peak_live_node"] == "native_layer_norm"


def node(name: str, op: str, elements: int, *inputs: str, **more: object) -> NodeRecord:
    outputs = [TensorRecord([elements], "uint8", [1], "cpu")] if elements else []
    return NodeRecord(name, op, name, inputs=list(inputs), outputs=outputs, **more)  # type: ignore[arg-type]


def test_liveness_frees_saved_tensors_and_keeps_what_views_look_at() -> None:
    graph = GraphRecord("g0.backward", "backward", [
        node("weight", "placeholder", 100, role="parameter"),
        node("saved", "placeholder", 1000, role="saved"),
        node("a", "call_function", 10, "saved"),  # 100 + 1000 + 10, then saved is freed
        node("view", "call_function", 10, "a", aliases=True),
        node("b", "call_function", 500, "weight"),  # 100 + 10 + 500
        node("c", "call_function", 700, "view", "b"),  # a lives on through its view: 100 + 10 + 500 + 700
        node("output", "output", 0, "c"),
    ])  # fmt: skip
    assert peak_live(graph) == (1310, "c")


def test_liveness_of_an_unknown_size_is_unknown() -> None:
    unbacked = NodeRecord("x", "placeholder", "x", outputs=[TensorRecord(["u0"], "float32", [1], "cpu")], role="input")
    assert peak_live(GraphRecord("g0.forward", "forward", [unbacked])) == (None, "x")


def test_the_package_imports_without_torch() -> None:
    code = (
        "import sys, inductor_debug.stages.capture, inductor_debug.stages.capture.config\n"
        "import inductor_debug.stages.graphs.statistics; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
