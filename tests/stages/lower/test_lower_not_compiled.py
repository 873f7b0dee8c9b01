"""A graph that does not compile: what lower leaves of it, at which kernel the compiler stopped, what the page says."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from markupsafe import escape

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.capture.stage import CaptureStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.formatting import place
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.not_compiled import failing_kernel
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.failed_compilation import failed_graph
from inductor_debug.stages.torch_internals.fused_ir import ir_of_buffers
from inductor_debug.stages.torch_internals.generated_kernels import Kernel

BROKEN = {"cpp": {"inject_relu_bug_TESTING_ONLY": "compile_error"}}
IR = """op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {c0: 8})]
op0.outputs = [
    buf0: ComputedBuffer
    buf0.layout = FixedLayout('cpu', torch.float32, size=[8], stride=[1])
    buf0.users = [
        NodeUser(node=SchedulerNode(name='op1'), can_inplace=True, is_weak=False),
    ]
]
class op0_loop_body:
    var_ranges = {p0: 8}


op1_op2: FusedSchedulerNode(SchedulerNode,SchedulerNode)
op1_op2.outputs = [
    buf1: ComputedBuffer
    buf2: ComputedBuffer
]
op1_op2.snodes[0] =
op1: SchedulerNode(ComputedBuffer)
op1.outputs = [
    buf1: ComputedBuffer
]
op1_op2.snodes[1] =
op2: SchedulerNode(ComputedBuffer)
op2.outputs = [
    buf2: ComputedBuffer
]
"""


class Net(torch.nn.Module):
    """Two products with a softmax and a ReLU between them, in kernels of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(torch.softmax(x, -1))
        x = torch.relu(x)
        return self.second(x)


def crashed() -> tuple[MemoryArtifacts, Exception]:
    torch._dynamo.reset()
    case = Case("net", Net().eval(), (torch.randn(4, 8),), {}, "inference", torch.float32, torch.device("cpu"))
    artifacts = MemoryArtifacts()
    settings = Settings(ModelConfig("net"), backend=BackendConfig("inductor", inductor=BROKEN), mode=case.mode)
    context = StageContext(settings, artifacts, {"case": case})
    artifacts.add(CaptureStage(CaptureConfig()).run(context))
    with pytest.raises(Exception, match="compile error") as raised:
        LowerStage(LowerConfig()).run(context)
    for left in context.left:
        artifacts.add(left)
    return artifacts, raised.value


@pytest.fixture(scope="module")
def left() -> tuple[MemoryArtifacts, Exception]:
    return crashed()


def test_the_kernel_at_which_the_compiler_stopped_is_found_with_what_it_computes(
    left: tuple[MemoryArtifacts, Exception],
) -> None:
    record = files.NOT_COMPILED.read(left[0])
    assert record is not None
    assert record.graph == "g0.forward" and "relu" in record.kernel and record.operations == ["aten.relu.default"]
    assert record.statement.endswith("compile error!;")
    assert [line.code for line in record.sources] == ["x = torch.relu(x)"]
    code = left[0].read_text(files.LOWERED.at(record.graph, record.file or ""))
    assert "compile error!" in code


def test_the_other_representations_are_left_and_nothing_that_never_ran(
    left: tuple[MemoryArtifacts, Exception],
) -> None:
    names = set(left[0].names("lower/g0.forward/"))
    assert {f"lower/g0.forward/{name}" for name in ("nodes.json", "output_code.py", "ir_post_fusion.txt")} <= names
    assert not {f"lower/g0.forward/{name}" for name in ("provenance.json", "kernels.csv")} & names
    nodes = left[0].read_json("lower/g0.forward/nodes.json")["nodes"]
    assert "relu" in [node["node"] for node in nodes]


def test_the_report_names_operation_line_and_command(left: tuple[MemoryArtifacts, Exception]) -> None:
    artifacts = MemoryArtifacts()
    for name in left[0].names():
        artifacts.add(StageResult("passed", "", artifacts={name: left[0].read_bytes(name)}))
    stages = [{"name": "lower", "status": "crashed", "message": str(left[1]).partition("\n")[0]}]
    run = {"id": "r", "model": "net", "backend": "inductor", "accel": "none", "dtype": "float32", "device": "cpu",
           "mode": "inference", "overrides": ["model=net", "++backend.inductor.max_fusion_size=1",
                                              "backend.adapter=inductor", "backend.inductor.max_fusion_size=2",
                                              "+backend.options.x=null"]}  # fmt: skip
    summary = {"schema": 1, "verdict": "crashed", "run": run, "stages": stages}
    artifacts.add(StageResult("passed", "", artifacts={"summary.json": summary}))
    result = ReportStage(ReportConfig()).run(StageContext(Settings(ModelConfig("net")), artifacts))
    data = result.artifacts["report/report.json"]
    record = files.NOT_COMPILED.read(artifacts)
    assert record is not None
    at = place(record.sources[0])
    error = str(left[1]).partition("\n")[0]
    assert error and f" stops the compiler at one kernel of 1 operation, from {at} ({error}). " in data["sentence"]
    assert data["then"] == ["inductor-debug minify r", "inductor-debug rerun r backend.inductor.max_fusion_size=null"]
    entry = next(item for item in data["contents"] if item.key == "not_compiled")
    assert f"did not compile: {error}. It computes aten.relu.default, from {at}." in entry.text
    assert entry.state == "bad" and data["contents"][0] is entry
    line = next(known for known in data["source"]["lines"].values() if known.get("stopped"))
    assert line == {"stopped": True}
    page = result.artifacts["report/report.html"]
    assert "in the kernel that did not compile" in page
    assert f"<p>The compiler stopped at this line: <code>{escape(record.statement)}</code></p>" in page


def test_an_error_of_nothing_that_was_lowered_leaves_nothing() -> None:
    assert failed_graph(ValueError("no graph")) is None


@pytest.mark.parametrize(
    "message, found",
    [
        ("at 3:4: def triton_poi_fused_relu_0(in_ptr0): error", "triton_poi_fused_relu_0"),
        ("triton_poi_fused_relu_0 and triton_poi_fused_add_1", None),
        ("no kernel's name", None),
        ("g++ /gone/main.cpp -O3", None),
    ],
)
def test_a_kernel_is_named_where_the_message_is_about_one_alone(message: str, found: str | None) -> None:
    kernels: Sequence[Kernel] = [Kernel("triton_poi_fused_relu_0", "triton", "def f(): pass"),
                                 Kernel("triton_poi_fused_add_1", "triton", "def g(): pass")]  # fmt: skip
    kernel = failing_kernel(kernels, message)
    assert (None if kernel is None else kernel.name) == found


def test_a_kernel_is_found_by_the_file_that_a_message_names(tmp_path: Path) -> None:
    """Of Triton's the message names the module that could not be imported; one with all kernels tells of none."""
    kernels = [Kernel(f"triton_{name}", "triton", f"\ndef triton_{name}(x):\n    pass\n") for name in ("relu", "add")]
    alone, together = tmp_path / "ck7.py", tmp_path / "cab.py"
    alone.write_text(kernels[1].source)
    together.write_text("".join(kernel.source for kernel in kernels))
    found = failing_kernel(kernels, f"RuntimeError: Failed to import {alone}\nSyntaxError: invalid syntax (ck7.py)")
    assert found is kernels[1]
    assert failing_kernel(kernels, f"Failed to import {together}") is None


def test_ir_is_found_by_the_buffers_that_a_node_writes() -> None:
    found = ir_of_buffers(IR)
    assert list(found) == ["buf0", "buf1", "buf2"]
    assert found["buf0"].endswith("var_ranges = {p0: 8}") and "op1" not in found["buf0"].replace("name='op1'", "")
    assert found["buf1"] == found["buf2"] and found["buf1"].startswith("op1_op2: FusedSchedulerNode")
    assert ir_of_buffers("") == {}
