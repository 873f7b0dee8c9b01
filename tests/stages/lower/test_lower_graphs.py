"""A training model of two graphs, lowered once: each graph's kernels, decisions and pictures are its own."""

import io
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import torch
from halves_model import Halves, lines_of
from picture_geometry import all_parts, boxes, check, parse
from torch._functorch import aot_autograd
from torch._inductor import compile_fx

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.capture.stage import CaptureStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.inductor import LoweredGraph

GRAPHS = ["g0.forward", "g0.backward", "g1.forward", "g1.backward"]
FIRST, SECOND = ("torch.tanh",), ("torch.sigmoid", "scaled.sum", "self.last(hidden)")
COUNTED = {
    "autograd": (aot_autograd, "aot_stage1_graph_capture"),
    "joint": (compile_fx, "_recursive_joint_graph_passes"),
    "compile": (compile_fx, "compile_fx_inner"),
}


class Lowered:
    """What capture and lower left, what was compiled, and how often each of ``COUNTED`` ran while lower did."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch._dynamo.reset()
        inputs = (torch.randn(6, 8),)
        case = Case("halves", Halves().train(), inputs, {}, "training", torch.float32, torch.device("cpu"))
        self.artifacts = MemoryArtifacts()
        settings = Settings(ModelConfig("halves"), backend=BackendConfig(), mode=case.mode)
        context = StageContext(settings, self.artifacts, {"case": case})
        self.artifacts.add(CaptureStage(CaptureConfig()).run(context))
        spies = {
            name: mock.patch.object(owner, attribute, wraps=getattr(owner, attribute))
            for name, (owner, attribute) in COUNTED.items()
        }
        counting = {name: spy.start() for name, spy in spies.items()}
        try:
            self.artifacts.add(LowerStage(LowerConfig()).run(context))
        finally:
            mock.patch.stopall()
        self.calls = {name: spy.call_count for name, spy in counting.items()}
        self.graphs: dict[str, LoweredGraph] = context.live["compiled"].graphs

    def json(self, graph_id: str, name: str) -> dict:
        return self.artifacts.read_json(f"lower/{graph_id}/{name}")


@pytest.fixture(scope="module")
def lowered() -> Iterator[Lowered]:
    yield Lowered()
    torch._dynamo.reset()


def test_each_graph_is_traced_and_compiled_once(lowered: Lowered) -> None:
    """The graphs shown are the graphs compiled: two of Dynamo's, each with a forward and a backward."""
    assert lowered.calls == {"autograd": 2, "joint": 2, "compile": 4}


def test_there_are_the_graphs_that_capture_has(lowered: Lowered) -> None:
    names = (Path(name).stem for name in lowered.artifacts.names("capture/graphs/") if name.endswith(".json"))
    captured = {name for name in names if name.endswith((".forward", ".backward"))}
    stored = {name.split("/")[1] for name in lowered.artifacts.names("lower/")} - {"summary.json"}
    assert captured == stored == set(GRAPHS) == set(lowered.graphs)


@pytest.mark.parametrize("graph_id", GRAPHS)
def test_nothing_of_another_graph_gets_in(lowered: Lowered, graph_id: str) -> None:
    graph = lowered.graphs[graph_id]
    nodes = {node["node"] for node in lowered.json(graph_id, "nodes.json")["nodes"]}
    assert nodes == {node.name for node in graph.nodes}
    assert all(f"{name} = " in graph.post_grad or f"{name}: " in graph.post_grad for name in nodes)
    told = [set(found) for found in graph.kernel_nodes.values()]
    assert told and all(found and found <= nodes for found in told)
    assert all(name.partition(":")[0] in graph.source_code for name in (*graph.kernel_nodes, *graph.kernel_stacks))
    provenance = lowered.json(graph_id, "provenance.json")
    assert {f"{kernel['name']}:{kernel['handle']}" for kernel in provenance["kernels"]} == set(graph.kernel_nodes)
    assert all(kernel["nodes"] and set(kernel["nodes"]) <= nodes for kernel in provenance["kernels"])
    lines = {line["line"] for kernel in provenance["kernels"] for line in kernel["sources"]}
    assert lines == lines_of(*(FIRST if graph_id.startswith("g0") else SECOND))


@pytest.mark.parametrize("graph_id", GRAPHS)
def test_refused_fusions_are_of_the_graphs_own_nodes_and_say_why(lowered: Lowered, graph_id: str) -> None:
    table = pd.read_csv(io.StringIO(lowered.artifacts.read_text(f"lower/{graph_id}/fusions.csv"))).fillna("")
    nodes = {node["node"] for node in lowered.json(graph_id, "nodes.json")["nodes"]}
    refused = table[~table["fused"]]
    for row in refused.itertuples():
        assert row.reason and row.times >= 1
        assert set(row.first_nodes.split()) | set(row.second_nodes.split()) <= nodes
        assert row.first_nodes and row.second_nodes
    pairs = {frozenset((row.first_nodes, row.second_nodes)) for row in refused.itertuples()}
    assert graph_id != "g1.forward" or frozenset(("sum_1", "sum_2")) in pairs  # over either dimension
    assert graph_id != "g0.forward" or len(table[table["fused"]]) > 0


def test_the_mapping_can_be_read_from_the_models_end(lowered: Lowered) -> None:
    """By hand from ``pre_grad.py`` and ``post_grad.py`` of the second half."""
    provenance = lowered.json("g1.forward", "provenance.json")
    before = {node["node"]: (node["module"], node["post_grad"]) for node in provenance["pre_grad_nodes"]}
    assert before == {
        "sigmoid": ("", ["sigmoid"]),
        "scaled": ("", ["mul"]),
        "rows": ("", ["sum_1"]),
        "columns": ("", ["sum_2"]),
        "linear": ("last", ["permute", "addmm"]),
    }
    assert provenance["modules"] == {"last": provenance["post_grad_nodes"]["addmm"]}
    modules = lowered.json("g0.backward", "provenance.json")["modules"]
    assert list(modules) == ["first", "norm"] and any(kernel.startswith("extern") for kernel in modules["first"])
    assert all("batch_norm" in kernel for kernel in modules["norm"])


@pytest.mark.parametrize("graph_id", GRAPHS)
def test_what_was_compiled_is_drawn_with_its_kernels(lowered: Lowered, graph_id: str) -> None:
    drawn = parse(lowered.artifacts.read_text(f"lower/{graph_id}/post_grad.svg"))
    check(drawn)
    nodes = {node["node"]: node for node in lowered.json(graph_id, "nodes.json")["nodes"]}
    shown = {name: box for box in boxes(drawn) for name in box.nodes or []}
    assert set(shown) == set(nodes) and sum(len(box.nodes or []) for box in boxes(drawn)) == len(nodes)
    for name, kernels in lowered.json(graph_id, "provenance.json")["post_grad_nodes"].items():
        (line,) = [text for text in shown[name].tooltip.splitlines() if text.startswith(f"{name}  ")]
        assert f"  {nodes[name]['target']}  " in line and line.endswith(f"  → {', '.join(kernels)}")
        assert f"{Path(nodes[name]['source']).name}  →" in line
    texts = " ".join(text for part in all_parts(drawn) for text in part.texts)
    assert {role for role in ("parameters", "buffer", "saved tensor") if f" {role}" in texts} == {
        "g0.forward": {"parameters", "buffer"},
        "g0.backward": {"parameters", "saved tensor"},
        "g1.forward": {"parameters"},
        "g1.backward": {"parameters"},
    }[graph_id]
