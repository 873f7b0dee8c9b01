"""Kernels lead to lines where torch makes that hard: its own layers, calls in place, subgraphs."""

import dataclasses
import io

import pandas as pd
import torch
from growing_graphs import call, given, graph

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.provenance import MOST, map_nodes
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.inductor_nodes import PostGradNode


def lowered(module: torch.nn.Module, *inputs: torch.Tensor) -> MemoryArtifacts:
    """What the stage stores of an inference."""
    torch._dynamo.reset()
    case = Case("hard", module.eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    artifacts = MemoryArtifacts()
    settings = Settings(ModelConfig("hard"), backend=BackendConfig())
    artifacts.add(LowerStage(LowerConfig()).run(StageContext(settings, artifacts, {"case": case})))
    return artifacts


def test_a_model_of_torchs_own_layers_names_these_and_says_that_no_line_is_its_own() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    artifacts = lowered(layers, torch.randn(4, 8))
    assert "linear.py:" in artifacts.read_text("lower/g0.forward/post_grad.svg")
    provenance = artifacts.read_json("lower/g0.forward/provenance.json")
    assert provenance["kernels_mapped_share"] == 0.0
    assert any(note.startswith("lines of the model's own: ") for note in provenance["not_established"])
    (product, relu) = provenance["kernels"]
    for record, path, kind in ((product, "0", torch.nn.Linear), (relu, "1", torch.nn.ReLU)):
        (source,) = record["sources"]
        code = kind.forward.__code__
        assert (source["file"], source["line"]) == (code.co_filename, code.co_firstlineno) and not source["own"]
        assert record["modules"] == [path]


class InPlace(torch.nn.Module):
    """Dropout in place fills memory that a kernel prepares, by a call that has no handle."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        return torch.nn.functional.dropout(x.relu(), 0.5, True, True)


def test_memory_prepared_for_a_call_in_place_has_the_line_of_the_call() -> None:
    kernels = lowered(InPlace(), torch.randn(4, 8)).read_json("lower/g0.forward/provenance.json")["kernels"]
    (filled,) = [record for record in kernels if record["kind"] == "cpp" and not record["nodes"]]
    assert "dropout" in filled["sources"][0]["code"] and filled["own"]


class Branches(torch.nn.Module):
    """Two subgraphs and the graph that calls them each have nodes called ``mul`` and ``sum_1``."""

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return torch.cond(condition, self.first, self.second, (x,)).mul(5).sum(1)

    def first(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().mul(2).sum(0) * x

    def second(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos().mul(3).sum(1, keepdim=True) * x


def test_a_branch_s_kernel_has_its_own_lines_where_nodes_of_several_graphs_are_called_alike() -> None:
    artifacts = lowered(Branches(), torch.randn(4, 8), torch.tensor(True))
    kernels = artifacts.read_json("lower/g0.forward/provenance.json")["kernels"]
    found = {}
    for record in kernels:
        (source,) = record["sources"]
        found[source["code"]] = {name.rpartition("/")[0] for name in record["nodes"]}
        assert {"sin", "cos"}.isdisjoint({name.rpartition("/")[2] for name in record["nodes"]}) == (
            "cond" in source["code"]
        )
    assert found == {
        "return torch.cond(condition, self.first, self.second, (x,)).mul(5).sum(1)": {""},
        "return x.sin().mul(2).sum(0) * x": {"true_graph_0"},
        "return x.cos().mul(3).sum(1, keepdim=True) * x": {"false_graph_0"},
    }
    names = {node["node"] for node in artifacts.read_json("lower/g0.forward/nodes.json")["nodes"]}
    fused = pd.read_csv(io.StringIO(artifacts.read_text("lower/g0.forward/fusions.csv")))
    decided = {name for column in ("first_nodes", "second_nodes") for cell in fused[column] for name in cell.split()}
    assert decided and decided <= names


class Joined(torch.nn.Module):
    """What is concatenated is written in parts, and read as a whole."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x.sin(), x.cos()], 1)
        return joined.gather(1, index).sum(0)


def test_a_concatenation_is_computed_where_its_parts_are_written_and_only_read_by_its_reader() -> None:
    artifacts = lowered(Joined(), torch.randn(4, 8), torch.randint(0, 16, (4, 16)))
    kernels = artifacts.read_json("lower/g0.forward/provenance.json")["kernels"]
    of = {name: record for record in kernels for name in record["nodes"]}
    assert any("cat" in line["code"] for line in of["cat"]["sources"])
    written = [buffer for record in kernels for buffer in record["writes"]]
    assert sum(buffer["bytes"] for buffer in written) == 4 * (4 * 16 + 16)  # each part once, and the sum


class Mixed(torch.nn.Module):
    """A layer of many elements after a line of few; a layer between ends with a view."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.sum().sigmoid() * 3
        x = self.up(x)
        return (x * scale).sin()


def test_the_first_line_handles_the_most_elements_and_views_give_no_module() -> None:
    artifacts = lowered(Mixed(), torch.randn(2, 3, 16))
    kernels = artifacts.read_json("lower/g0.forward/provenance.json")["kernels"]
    (last,) = [record for record in kernels if "sin" in record["nodes"]]
    assert last["sources"][0]["code"] == "return (x * scale).sin()" and len(last["sources"]) > 1
    assert last["modules"] == []


def test_of_very_many_operations_of_one_line_none_is_named_where_their_numbers_differ() -> None:
    """Else a loop that was unrolled would take the square of its length."""

    def looped(captured: int, lowered: int) -> list[int]:
        nodes = [call("forward", f"relu_{index}", "relu", ["x"], 0) for index in range(captured)]
        graphs = [graph("forward", [given("x", "input"), *nodes], ["relu_0"])]
        trace = '  File "net.py", line 0, in forward\n    x = f(x)\n'
        made = [PostGradNode(f"r{n}", "aten.relu.default", "", n, (), "", trace) for n in range(lowered)]
        return [len(node.captured) for node in map_nodes(made, graphs, SourceFinder(torch.nn.Identity()))]

    assert looped(5000, 5000) == [1] * 5000
    assert looped(MOST, 2) == [MOST] * 2
    assert looped(MOST + 1, 2) == [0] * 2


def test_where_numbers_differ_the_operations_of_the_same_dynamo_call_are_named() -> None:
    """Layers of one class share line and operation; decomposition makes their numbers differ."""
    nodes = [dataclasses.replace(call("forward", f"relu_{layer}", "relu", ["x"], 0), origins=[f"layer_{layer}"])
             for layer in range(3)]  # fmt: skip
    graphs = [graph("forward", [given("x", "input"), *nodes], ["relu_0"])]
    trace = '  File "net.py", line 0, in forward\n    x = f(x)\n'
    origins = (("layer_2",), ("layer_2",), ("layer_0",), ("elsewhere",))
    made = [PostGradNode(f"r{n}", "aten.relu.default", "", n, origin, "", trace) for n, origin in enumerate(origins)]
    mapped = map_nodes(made, graphs, SourceFinder(torch.nn.Identity()))
    found = [[item.node for item in node.captured] for node in mapped]
    assert found == [["relu_2"], ["relu_2"], ["relu_0"], ["relu_0", "relu_1", "relu_2"]]
