"""Generated kernels lead to the lines that a reader of the model would name: labels written by hand.

One compilation a model, mode and device, which all tests of it read.
"""

import re
from typing import Any

import pytest
import torch

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.capture.stage import CaptureStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.settings import BackendConfig, Settings

from provenance_by_hand import (  # isort: skip
    FIRST, GRADIENT_FIRST, GRADIENT_GELU, LABELS, LINES, RESNET18_BLOCKS, RESNET18_CALLS, RESNET18_COPIES,
    RESNET18_COPIES_FIRST,
)  # fmt: skip
from provenance_lines import Line, place, places, run_lines  # isort: skip

BUILDS = {
    "resnet18": {"_target_": "models.torchvision_models.build", "name": "resnet18"},
    "bert": {"_target_": "models.bert.build"},
    "ssm": {"_target_": "models.ssm.build"},
}
FILES = {"resnet18": "torchvision/models/resnet.py", "bert": "bert/modeling_bert.py", "ssm": "models/ssm.py"}
"""The end of the name of each model's own file."""

REPRESENTATIONS = (
    "pre_grad.py", "post_grad.py", "ir_pre_fusion.txt", "ir_post_fusion.txt", "output_code.py", "fusions.csv",
    "kernels.csv", "fx_graph_readable.py", "fx_graph_runnable.py", "provenance.json", "nodes.json",
)  # fmt: skip

Kernel = dict[str, Any]


class Run:
    """What the capture and lower stages left of one model."""

    def __init__(self, model: str, mode: str, device: str) -> None:
        self.model, self.mode, self.device = model, mode, device
        config = ModelConfig(model, BUILDS[model])
        case = build_case(config, mode=mode, device=device)
        context = StageContext(Settings(config, backend=BackendConfig(), mode=mode), MemoryArtifacts(), {"case": case})
        self.artifacts: Any = context.artifacts
        torch._dynamo.reset()
        stages = [] if model == "ssm" else [CaptureStage(CaptureConfig())]
        for stage in (*stages, LowerStage(LowerConfig())):
            result = stage.run(context)
            assert result.status == "passed"
            self.artifacts.add(result)
        self.graphs = ["g0.forward"] if mode == "inference" else ["g0.forward", "g0.backward"]

    def provenance(self, graph: str) -> dict[str, Any]:
        return self.artifacts.read_json(f"lower/{graph}/provenance.json")

    def generated(self, graph: str) -> list[Kernel]:
        return [kernel for kernel in self.provenance(graph)["kernels"] if kernel["kind"] != "extern"]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Run:
    model, mode, device = request.param
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    return Run(model, mode, device)


def runs(models: tuple[str, ...], modes: tuple[str, ...], devices: tuple[str, ...]) -> pytest.MarkDecorator:
    """Slow tests of these; each compiles once, whatever tests read it."""
    chosen = [(model, mode, device) for device in devices for model in models for mode in modes]
    return pytest.mark.parametrize(
        "run", [pytest.param(item, id="-".join(item), marks=pytest.mark.slow) for item in chosen], indirect=True
    )


LABELLED, MODES, DEVICES = ("resnet18", "bert"), ("inference", "training"), ("cpu", "cuda")


def own_places(kernel: Kernel) -> set[str]:
    return {f"{line['file']}:{line['line']}" for line in kernel["sources"] if line["own"]}


def differences(kernels: list[Kernel], labels: list[set[Line]]) -> list[str]:
    """Kernels that do not lead to exactly the lines of their label, in words."""
    pairs = zip(kernels, labels, strict=True)
    return [
        f"{kernel['name']}:{kernel['handle']} leads to {sorted(own_places(kernel))}, not {sorted(places(label))}"
        for kernel, label in pairs
        if own_places(kernel) != places(label) or len(kernel["sources"]) != len(label)
    ]


@runs(LABELLED, MODES, ("cpu",))
def test_kernels_lead_to_the_labelled_lines(run: Run) -> None:
    labels = LABELS[run.model, run.mode]
    assert list(labels) == run.graphs
    for graph, expected in labels.items():
        computing = [kernel for kernel in run.generated(graph) if not kernel["prepares"]]
        assert differences(computing, expected) == []


def test_there_are_enough_labels_of_every_kind() -> None:
    graphs = [labels for graphs in LABELS.values() for labels in graphs.values()]
    assert sum(map(len, graphs)) >= 50
    assert len({frozenset(label) for labels in graphs for label in labels}) >= 25


@runs(("resnet18",), MODES, ("cpu",))
def test_kernels_of_equal_blocks_lead_to_the_right_one(run: Run) -> None:
    """Eight blocks share their lines; which of them it is stands in the module's path."""
    for graph in run.graphs:
        label = places(FIRST if graph == "g0.forward" else GRADIENT_FIRST)
        found = [kernel["modules"] for kernel in run.generated(graph) if own_places(kernel) == label]
        ordered = RESNET18_BLOCKS if graph == "g0.forward" else RESNET18_BLOCKS[::-1]
        assert found == [[f"{block}.bn1", f"{block}.relu"] for block in ordered]


@runs(("bert",), ("training",), ("cpu",))
def test_kernels_of_a_layers_backward_lead_to_that_layer(run: Run) -> None:
    label = places(GRADIENT_GELU)
    found = [kernel["modules"] for kernel in run.generated("g0.backward") if own_places(kernel) == label]
    assert [{module.split(".")[2] for module in modules} for modules in found] == [{str(11 - i)} for i in range(12)]


@runs(("resnet18",), ("inference",), ("cpu",))
def test_copies_and_library_calls_lead_to_their_lines(run: Run) -> None:
    kernels = run.provenance("g0.forward")["kernels"]
    copies = [kernel for kernel in run.generated("g0.forward") if kernel["prepares"]]
    assert all(own_places(kernel) <= places(RESNET18_COPIES) and not kernel["nodes"] for kernel in copies)
    assert f"{copies[0]['main']['file']}:{copies[0]['main']['line']}" == place(RESNET18_COPIES_FIRST)
    assert copies[0]["main"]["share"] == pytest.approx(0.52, abs=0.005)
    for kernel in copies:
        prepared = dict.fromkeys(own_places(kernel), 0.0)
        for buffer in kernel["writes"]:
            for user in (user for user in kernels if buffer["name"] in [read["name"] for read in user["reads"]]):
                (line,) = own_places(user)
                prepared[line] += buffer["bytes"]
        assert f"{kernel['main']['file']}:{kernel['main']['line']}" == max(prepared, key=lambda line: prepared[line])
    calls = [line for kernel in kernels if kernel["kind"] == "extern" for line in own_places(kernel)]
    assert sorted(calls) == sorted(map(place, RESNET18_CALLS)) and calls[0] == place(RESNET18_CALLS[0])
    assert all(kernel["bytes_read"] and kernel["bytes_written"] for kernel in kernels)


@runs(LABELLED, ("training",), DEVICES)
def test_a_backward_kernel_has_the_lines_of_the_operations_whose_gradient_it_computes(run: Run) -> None:
    """Its lines come from the stack of each node, its operations from autograd's sequence numbers."""
    provenance = run.provenance("g0.backward")
    sources = {node["node"]: node["source"] for node in provenance["pre_grad_nodes"]}
    for kernel in run.generated("g0.backward"):
        if not kernel["prepares"]:
            assert own_places(kernel) <= {sources[name] for name in kernel["pre_grad"]}, kernel["name"]


@runs(("resnet18", "bert", "ssm"), MODES, ("cpu",))
def test_nearly_all_generated_kernels_map_to_a_line_that_the_model_runs(run: Run) -> None:
    for graph in run.graphs:
        assert run.provenance(graph)["generated_mapped_share"] >= 0.98
        found = [leads_to_a_run_line(kernel, FILES[run.model]) for kernel in run.generated(graph)]
        assert found and sum(found) >= 0.98 * len(found)


def leads_to_a_run_line(kernel: Kernel, file: str) -> bool:
    """Whether a line is in a function of the model's own file, and not in a constructor, by that file's syntax."""
    own = (line for line in kernel["sources"] if line["file"].endswith(f"/{file}"))
    return any(line["line"] in run_lines(line["file"]) for line in own)


@runs(LABELLED, MODES, DEVICES)
def test_every_representation_is_there(run: Run) -> None:
    for graph in run.graphs:
        stored = {name.removeprefix(f"lower/{graph}/") for name in run.artifacts.names(f"lower/{graph}/")}
        files = REPRESENTATIONS + (("joint.py",) if run.mode == "training" else ())
        assert {name for name in files if name not in stored} == set()
        assert {name for name in stored if not run.artifacts.read_text(f"lower/{graph}/{name}").strip()} == set()
        assert "joint.py" not in stored or run.mode == "training"
        assert "autotuning.csv" not in stored  # nothing was timed
        assert run.provenance(graph)["not_established"] == []


@runs(LABELLED, MODES, DEVICES)
def test_every_generated_kernel_has_a_file_of_its_own(run: Run) -> None:
    for graph in run.graphs:
        code = run.artifacts.read_text(f"lower/{graph}/output_code.py")
        defined = set(re.findall(r"^(\w+) = async_compile\.\w+\(", code, re.MULTILINE))
        files = run.artifacts.names(f"lower/{graph}/kernels/")
        kernels = {kernel["name"]: kernel["file"] for kernel in run.generated(graph)}
        assert set(kernels) == defined and len(set(kernels.values())) == len(files) == len(defined) > 0
        assert {f"lower/{graph}/{file}" for file in kernels.values()} == set(files)
        for file in files:
            assert run.artifacts.read_text(file).strip() in code


@runs(LABELLED, MODES, DEVICES)
def test_nearly_all_nodes_lead_to_the_captured_graph(run: Run) -> None:
    for graph in run.graphs:
        assert run.provenance(graph)["nodes_mapped_share"] >= 0.98  # 1.0 where this was written


@runs(LABELLED, MODES, DEVICES)
def test_the_mapping_can_be_read_from_both_ends(run: Run) -> None:
    for graph in run.graphs:
        provenance = run.provenance(graph)
        nodes = {node["node"]: node for node in provenance["pre_grad_nodes"]}
        for kernel in run.generated(graph):
            launch = f"{kernel['name']}:{kernel['handle']}"
            assert all(launch in nodes[node]["kernels"] for node in kernel["pre_grad"])
            assert all(launch in provenance["lines"][line] for line in own_places(kernel))


@runs(LABELLED, MODES, ("cuda",))
def test_triton_kernels_lead_to_labelled_lines(run: Run) -> None:
    """Other operations are a library's there, and others are fused: each has some of the model's labelled lines."""
    allowed = places(LINES[run.model])
    for graph in run.graphs:
        provenance = run.provenance(graph)
        assert {kernel["kind"] for kernel in provenance["kernels"]} == {"triton", "extern"}
        assert provenance["generated_mapped_share"] >= 0.98
        for kernel in run.generated(graph):
            assert "@triton.jit" in run.artifacts.read_text(f"lower/{graph}/{kernel['file']}")
            found = own_places(kernel)
            assert found, f"{kernel['name']} leads to no line"
            assert found <= allowed, f"{kernel['name']} leads to {sorted(found - allowed)}"


def test_a_label_that_may_mean_several_lines_is_refused() -> None:
    with pytest.raises(LookupError, match=r"has 2 lines 'out = self\.relu\(out\)'; a label names one"):
        place(Line("torchvision.models.resnet:BasicBlock.forward", "out = self.relu(out)"))
    with pytest.raises(LookupError, match=r"has 2 lines .*, not 3"):
        place(Line("torchvision.models.resnet:BasicBlock.forward", "out = self.relu(out)", 3))
