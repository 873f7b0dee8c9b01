"""The lower stage on a small model in training: kernels of this run alone, down to the user's lines."""

import inspect
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch._inductor.config as inductor_config

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.kernel_records import describe_kernels
from inductor_debug.stages.lower.provenance import map_nodes
from inductor_debug.stages.lower.stage import LowerStage, kernels_of, message_of
from inductor_debug.stages.profile.work import lowered_work
from inductor_debug.stages.report.collect import collect
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.generated_launches import find_launches

from lower_model import Small, line_of  # isort: skip


def small_case(mode: str = "training", dropout: float = 0.0, size: int = 4) -> Case:
    torch.manual_seed(0)
    module = Small(dropout).train(mode == "training")
    return Case("small", module, (torch.randn(size, 8),), {}, mode, torch.float32, torch.device("cpu"))


def context_for(case: Case, **backend: object) -> tuple[StageContext, MemoryArtifacts]:
    artifacts = MemoryArtifacts()
    settings = Settings(ModelConfig("small"), backend=BackendConfig(**backend), mode=case.mode)
    return StageContext(settings, artifacts, {"case": case}), artifacts


def table_of(artifacts: MemoryArtifacts, name: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(artifacts.read_text(name)))


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryArtifacts]:
    """Artifacts of capture and lower for the small model in training."""
    from inductor_debug.stages.capture.config import CaptureConfig
    from inductor_debug.stages.capture.stage import CaptureStage

    context, artifacts = context_for(small_case())
    artifacts.add(CaptureStage(CaptureConfig()).run(context))
    result = LowerStage(LowerConfig()).run(context)
    assert result.status == "passed"
    artifacts.add(result)
    return artifacts


@pytest.mark.parametrize("graph_id", ["g0.forward", "g0.backward"])
def test_every_representation_is_there(lowered: MemoryArtifacts, graph_id: str) -> None:
    text = {name: lowered.read_text(f"lower/{graph_id}/{name}") for name in (
        "pre_grad.py", "post_grad.py", "ir_pre_fusion.txt", "ir_post_fusion.txt", "output_code.py")}  # fmt: skip
    assert "gelu" in text["pre_grad.py"]
    assert "torch.ops.aten" in text["post_grad.py"]
    assert "SchedulerNode" in text["ir_pre_fusion.txt"]
    assert text["ir_pre_fusion.txt"] != text["ir_post_fusion.txt"]
    kernels = lowered.names(f"lower/{graph_id}/kernels/")
    assert kernels
    for name in kernels:
        assert lowered.read_text(name).strip() in text["output_code.py"]
    assert lowered.read_json(f"lower/{graph_id}/provenance.json")["not_established"] == []


@pytest.mark.parametrize("graph_id", ["g0.forward", "g0.backward"])
def test_kernels_tell_what_they_read_and_write(lowered: MemoryArtifacts, graph_id: str) -> None:
    provenance = lowered.read_json(f"lower/{graph_id}/provenance.json")
    calls = [kernel for kernel in provenance["kernels"] if kernel["kind"] == "extern"]
    if graph_id == "g0.forward":
        (call,) = calls  # addmm: bias 16, input 4x8, weight 16x8 → 4x16
        assert (call["bytes_read"], call["bytes_written"]) == (4 * (16 + 4 * 8 + 16 * 8), 4 * 4 * 16)
    else:
        (call,) = calls  # mm: the transposed gradient 16x4, input 4x8 → 16x8; nobody wants the input's gradient
        assert (call["bytes_read"], call["bytes_written"]) == (4 * (16 * 4 + 4 * 8), 4 * 16 * 8)
    assert all(kernel["bytes_read"] and kernel["bytes_written"] for kernel in provenance["kernels"])
    table = table_of(lowered, f"lower/{graph_id}/kernels.csv")
    assert list(table["name"]) == [kernel["name"] for kernel in provenance["kernels"]]


@pytest.mark.parametrize("graph_id", ["g0.forward", "g0.backward"])
def test_the_mapping_can_be_read_from_both_ends(lowered: MemoryArtifacts, graph_id: str) -> None:
    provenance = lowered.read_json(f"lower/{graph_id}/provenance.json")
    before = {node["node"]: node for node in provenance["pre_grad_nodes"]}
    assert list(before) == ["linear", "hidden", "hidden_1", "softmax", "mul"]  # hidden: gelu, hidden_1: dropout
    after = {node["node"]: node for node in lowered.read_json(f"lower/{graph_id}/nodes.json")["nodes"]}
    for kernel in provenance["kernels"]:
        launch = f"{kernel['name']}:{kernel['handle']}"
        assert kernel["nodes"] and kernel["pre_grad"]
        assert all(launch in provenance["post_grad_nodes"][node] for node in kernel["nodes"])
        assert all(launch in before[node]["kernels"] for node in kernel["pre_grad"])
        assert set(kernel["pre_grad"]) == {name for node in kernel["nodes"] for name in after[node]["pre_grad"]}
        for line in kernel["sources"]:
            assert line["own"] and launch in provenance["lines"][f"{line['file']}:{line['line']}"]
    assert all(node["source"].partition(":")[0] == inspect.getsourcefile(Small) for node in before.values())


def test_the_joint_graph_is_shown_in_training_alone(lowered: MemoryArtifacts) -> None:
    assert "tangents_1" in lowered.read_text("lower/g0.backward/joint.py")
    context, artifacts = context_for(small_case("inference"))
    artifacts.add(LowerStage(LowerConfig()).run(context))
    assert "lower/g0.forward/joint.py" not in artifacts.names("lower/")
    assert "lower/g0.forward/fx_graph_readable.py" in artifacts.names("lower/")


def test_the_runnable_graphs_run(lowered: MemoryArtifacts, tmp_path: Path) -> None:
    """Without this project, this process's caches, or anything else of this run."""
    for graph_id in ("g0.forward", "g0.backward"):
        text = lowered.read_text(f"lower/{graph_id}/fx_graph_runnable.py")
        assert "stages." not in text and "CACHE_DIR" not in text
        (tmp_path / f"{graph_id}.py").write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-W", "error::UserWarning:__main__", str(tmp_path / "g0.backward.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_fusions_and_refusals_are_told(lowered: MemoryArtifacts) -> None:
    table = table_of(lowered, "lower/g0.forward/fusions.csv")
    fused = table[table["fused"]]
    assert any("softmax" in nodes or "sum" in nodes or "exp" in nodes for nodes in fused["second_nodes"])
    assert "lower/g0.forward/autotuning.csv" not in lowered.names("lower/")  # nothing was timed


@pytest.mark.parametrize("graph_id", ["g0.forward", "g0.backward"])
def test_kernels_lead_to_the_users_lines(lowered: MemoryArtifacts, graph_id: str) -> None:
    provenance = lowered.read_json(f"lower/{graph_id}/provenance.json")
    assert provenance["kernels_mapped_share"] == 1.0
    lines = {(line["file"], line["line"]) for kernel in provenance["kernels"] for line in kernel["sources"]}
    file = inspect.getsourcefile(Small)
    assert lines == {(file, line_of("gelu(self.linear")), (file, line_of("torch.softmax"))}
    code = {line["code"] for kernel in provenance["kernels"] for line in kernel["sources"]}
    assert "return torch.softmax(hidden, -1) * 2.5" in code
    kinds = [kernel["kind"] for kernel in provenance["kernels"]]
    assert set(kinds) == {"cpp", "extern"}
    facts = lowered.read_json("lower/summary.json")["graphs"][graph_id]
    assert (facts["launches"], facts["extern_launches"]) == (len(kinds), kinds.count("extern"))
    assert all(kernel["nodes"] for kernel in provenance["kernels"])


def test_the_stage_and_the_report_count_kernels_alike(lowered: MemoryArtifacts) -> None:
    stored = files.LOWERING.read(lowered)
    assert stored is not None
    facts = stored.graphs
    data = collect(lowered, Settings(ModelConfig("small")), title=None, max_rows=1)
    assert [graph["graph"] for graph in data["lowering"]] == sorted(facts)
    for graph in data["lowering"]:
        assert (
            message_of({graph["graph"]: facts[graph["graph"]]}, "inductor")
            == f"inductor compiled 1 AOT graph to {graph['calls']}."
        )


@pytest.mark.parametrize("graph_id", ["g0.forward", "g0.backward"])
def test_nodes_lead_to_the_captured_graph(lowered: MemoryArtifacts, graph_id: str) -> None:
    captured = {
        id: {node["name"]: node for node in lowered.read_json(f"capture/graphs/{id}.json")["nodes"]}
        for id in ("g0.forward", "g0.backward")
    }
    nodes = lowered.read_json(f"lower/{graph_id}/nodes.json")["nodes"]
    for record in nodes:
        for place in record["captured"]:
            origin = captured[place["graph"]][place["node"]]
            if record["by"] == "operation":
                assert origin["target"] == (record["original"] or record["target"])
    assert lowered.read_json(f"lower/{graph_id}/provenance.json")["nodes_mapped_share"] == 1.0
    by_operation = [record for record in nodes if record["by"] == "operation"]
    assert len(by_operation) >= 0.9 * len(nodes)


def test_compile_seconds_are_stored(lowered: MemoryArtifacts) -> None:
    summary = lowered.read_json("lower/summary.json")
    assert summary["compile_s"] >= sum(graph["seconds"] for graph in summary["graphs"].values()) > 0
    assert summary["inductor_options"]["fallback_random"] is True


def test_two_compilations_do_not_mix() -> None:
    torch._dynamo.reset()
    adapter = build_adapter(BackendConfig())
    first = compile_case(small_case("inference"), adapter)
    torch._dynamo.reset()  # else Dynamo makes the size that differs symbolic
    second = compile_case(small_case("inference", size=6), adapter)
    assert "f32[4, 8]" in first.graphs["g0.forward"].post_grad
    assert "f32[6, 8]" in second.graphs["g0.forward"].post_grad
    assert list(first.graphs) == list(second.graphs) == ["g0.forward"]
    assert "f32[4, 8]" not in second.graphs["g0.forward"].post_grad


def test_an_option_holds_for_forward_and_backward_and_is_restored() -> None:
    before = inductor_config.get_config_copy()
    adapter = build_adapter(BackendConfig(inductor={"cpp": {"simdlen": 1}, "max_fusion_size": 1}))
    compiled = compile_case(small_case(), adapter)
    assert compiled.options == {"fallback_random": True, "cpp.simdlen": 1, "max_fusion_size": 1}
    for graph in compiled.graphs.values():
        assert "Vectorized" not in graph.source_code
        assert all(len(node.members) == 1 for node in graph.schedule.nodes)
        for option in ("cpp.simdlen = 1", "max_fusion_size = 1", "fallback_random = True"):
            assert f"torch._inductor.config.{option}\n" in graph.runnable
    assert len(compiled.graphs) == 2
    assert inductor_config.get_config_copy() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patern_matcher": False}, r"backend\.inductor\.patern_matcher.*valid: pattern_matcher"),
        ({"cpp": {"thread": 2}}, r"^backend\.inductor\.cpp\.thread: .*valid: cpp\.threads.*\nTry: .*cpp\.threads=2$"),
        ({"TYPE_CHECKING": True}, r"^backend\.inductor\.TYPE_CHECKING: TorchInductor has no such option"),
        ({"pattern_matcher": "no"}, r"backend\.inductor\.pattern_matcher: got 'no' \(str\); valid: bool"),
        ({"max_fusion_size": True}, r"max_fusion_size: got True \(bool\); valid: int"),
    ],
)
def test_a_wrong_option_names_the_key_and_the_choices(options: dict[str, object], message: str) -> None:
    context, _ = context_for(small_case("inference"), inductor=options)
    with pytest.raises(ConfigurationError, match=message) as caught:
        LowerStage(LowerConfig()).check(context)
    told = str(caught.value)
    assert len(told) < 800 and "valid: TYPE_CHECKING" not in told and ", TYPE_CHECKING" not in told


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_dropout_draws_what_eager_draws(backend: str) -> None:
    case = small_case(dropout=0.5)
    compiled = compile_case(case, build_adapter(BackendConfig(backend, backend)))
    eager, test = case.run(), case.run(compiled)
    torch.testing.assert_close(test.output, eager.output)
    for name, gradient in eager.gradients.items():
        torch.testing.assert_close(test.gradients[name], gradient)


def test_a_backend_that_lowers_nothing_is_skipped() -> None:
    context, _ = context_for(small_case("inference"), name="eager", adapter="eager")
    result = LowerStage(LowerConfig()).run(context)
    told = "The backend eager compiles nothing, so there is nothing to show."
    assert (result.status, result.message) == ("skipped", told)
    assert "compiled" not in context.live


def test_nothing_is_written_into_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compile_case(small_case("inference"), build_adapter(BackendConfig()))
    assert list(tmp_path.iterdir()) == []


def test_freezing_makes_the_weights_constants() -> None:
    """Dynamo decides it, before any backend is called: without its consent nothing is frozen, and nothing says so."""
    torch._dynamo.reset()
    case = small_case("inference")
    compiled = compile_case(case, build_adapter(BackendConfig(inductor={"freezing": True})))
    buffers = compiled.graphs["g0.forward"].schedule.buffers.values()
    assert sum(buffer.role == "input" for buffer in buffers) == 1
    assert {"constant"} <= {buffer.role for buffer in buffers}
    torch.testing.assert_close(compiled(*case.args), case.module(*case.args))
    assert not inductor_config.freezing


def test_a_cpp_wrapper_has_the_same_options_in_the_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled when the forward's options are no longer in force."""
    from functorch.compile import make_boxed_func
    from torch._inductor import compile_fx

    seen: list[tuple[bool, bool]] = []

    def inner(gm: torch.fx.GraphModule, inputs: object, **kwargs: object) -> object:
        seen.append((bool(kwargs.get("is_backward")), inductor_config.triton.store_cubin))
        return make_boxed_func(gm.forward)

    monkeypatch.setattr(compile_fx, "compile_fx_inner", inner)
    torch._dynamo.reset()
    compile_case(small_case(), build_adapter(BackendConfig(inductor={"cpp_wrapper": True})))
    assert seen == [(False, True), (True, True)] and not inductor_config.triton.store_cubin


class Random(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.nn.functional.dropout(torch.relu(x), 0.1)
        return torch.nn.functional.dropout(torch.tanh(first), 0.1) + first


def test_what_must_only_come_before_is_not_read() -> None:
    """Of two random operations the second waits for the first."""
    torch._dynamo.reset()
    x = torch.randn(4, 8, requires_grad=True)
    case = Case("random", Random().train(), (x,), {}, "training", torch.float32, torch.device("cpu"))
    graph = compile_case(case, build_adapter(BackendConfig())).graphs["g0.forward"]
    generated = {kernel.name for kernel in kernels_of(graph)[0]}
    calls = [launch for launch in find_launches(graph, generated) if not launch.generated]
    assert [len(launch.reads) for launch in calls] == [1, 1]
    assert [launch.nodes for launch in calls] == [["native_dropout"], ["native_dropout_1"]]


class Normalized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return self.last(hidden)


def test_a_copy_beside_other_work_is_told_with_the_call_that_it_is_for() -> None:
    """The last convolution's result goes into another layout in the kernel that counts the normalization's batches."""
    torch._dynamo.reset()
    inputs = (torch.randn(2, 3, 16, 16),)
    case = Case("normalized", Normalized().train(), inputs, {}, "training", torch.float32, torch.device("cpu"))
    graph = compile_case(case, build_adapter(BackendConfig())).graphs["g0.forward"]
    finder = SourceFinder(case.module)
    work = lowered_work(graph, [], finder)
    records = describe_kernels(graph, kernels_of(graph)[0], map_nodes(graph.nodes, [], finder), finder)
    (record,) = [record for record in records if record.copies and not record.prepares]
    (call,) = [item for item in records if item.launch == record.copies[0].for_]
    assert [line.code for line in record.sources] == ["hidden = torch.relu(self.norm(self.first(x)))"]
    assert call.kind == "extern" and [line.code for line in call.sources] == ["return self.last(hidden)"]
    (item,) = [item for item in work if item.kernel == record.name and item.handle == record.handle]
    assert item.parts[0].code == "return self.last(hidden)" and item.parts[0].weight > 0.9
    assert sum(part.weight for part in item.parts) == pytest.approx(1) and len(item.distinct("source")) == 2


class Widening(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.small(x).relu()
        return self.large(hidden)


def test_a_kernel_that_computes_and_prepares_has_the_line_of_most_of_its_bytes() -> None:
    """One kernel computes 1,568 elements of the ReLU and copies 2,304 of the next convolution's weight."""
    torch._dynamo.reset()
    inputs = (torch.randn(2, 3, 16, 16),)
    case = Case("widening", Widening().eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    graph = compile_case(case, build_adapter(BackendConfig())).graphs["g0.forward"]
    finder = SourceFinder(case.module)
    records = describe_kernels(graph, kernels_of(graph)[0], map_nodes(graph.nodes, [], finder), finder)
    work = {item.handle: item for item in lowered_work(graph, [], finder)}
    (record,) = [record for record in records if record.nodes == ["relu"]]
    relu, weight = "hidden = self.small(x).relu()", "return self.large(hidden)"
    assert (record.main.code, record.main.share) == (weight, pytest.approx(2304 / (1568 + 2304)))
    parts = {part.code: part.weight for part in work[record.handle].parts}
    assert parts == {weight: pytest.approx(2304 / (1568 + 2304)), relu: pytest.approx(1568 / (1568 + 2304))}
    assert [line.code for line in record.sources] == [relu]  # of what it computes
    (copy,) = record.copies
    (call,) = [item for item in records if item.launch == copy.for_]
    assert call.kind == "extern" and call.sources[0].code == weight
    last = records[-1]  # torch returns the call's result in another layout
    assert (last.nodes, last.main.code, last.main.share) == ([], weight, 1.0)
    assert [part.code for part in work[last.handle].parts] == [weight]


class Sliced(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole, self.small = torch.nn.Linear(8, 16), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.whole(x)
        part = whole[:, :4]
        column = whole[:, 0]
        return torch.tanh(self.small(part)) + column[:, None]


def test_a_gradient_of_a_slice_is_the_slices() -> None:
    """Inductor's passes put nodes in its place on which nothing is recorded."""
    torch._dynamo.reset()
    case = Case("sliced", Sliced(), (torch.randn(4, 8),), {}, "training", torch.float32, torch.device("cpu"))
    graph = compile_case(case, build_adapter(BackendConfig())).graphs["g0.backward"]
    finder = SourceFinder(case.module)
    found = {node.target: node for node in graph.nodes if "_scatter" in node.target}
    lines = {target: finder.find(node.stack_trace).code for target, node in found.items()}
    assert lines == {
        "aten.select_scatter.default": "column = whole[:, 0]",
        "aten.slice_scatter.default": "part = whole[:, :4]",
    }
    assert {node.original for node in found.values()} == {"aten.select_backward.default", "aten.slice_backward.default"}
