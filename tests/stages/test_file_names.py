"""Names that a model or a compiler made become names of files, however long and in whatever alphabet."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.file_names import LIMIT, file_name
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import write_repros
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.tensor_pictures.plots import pictures

NAMES = ["x" * 300, "x" * 299 + "y", "层" * 120, "层" * 119 + "a", "a/b", "a_b", "a b", "..", ".", "", "\udcff", "é.py"]


def test_names_are_short_safe_and_never_one_for_two(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    made = [file_name(name, ".cpp") for name in NAMES]
    assert len(set(made)) == len(NAMES)
    for name in made:
        assert directory.store(f"lower/{name}", name).read_text() == name
        assert len(name.encode()) <= LIMIT and name.endswith(".cpp")
    assert [name for name in made if name in ("a_b.cpp", "é.py.cpp")] == ["a_b.cpp", "é.py.cpp"]


class Fused(torch.nn.Module):
    """One kernel, which TorchInductor names after all that it fused."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.softplus(F.hardsigmoid(F.hardswish(F.elu(F.leaky_relu(F.hardtanh(F.logsigmoid(F.celu(x))))))))
        x = torch.special.expm1(x).sinh().cosh().asinh().acosh().tanh().atan().erf().erfc().digamma().lgamma()
        x = (x.floor() + x.ceil() + x.round() + x.trunc()).sigmoid().reciprocal().rsqrt().log1p().log2().log10().exp2()
        return torch.logical_and(x > 0, x < 3).float() + torch.atan2(x, x + 1).clamp(0, 1).fmod(0.5).remainder(0.1)


def test_a_kernel_with_a_long_name_is_stored(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    case = Case("fused", Fused(), (torch.rand(32),), {}, "inference", torch.float32, torch.device("cpu"))
    context = StageContext(Settings(ModelConfig("fused")), directory, {"case": case})
    for name, content in LowerStage(LowerConfig()).run(context).artifacts.items():
        directory.store(name, content)
    kernels = directory.read_json("lower/g0.forward/provenance.json")["kernels"]
    assert max(len(kernel["name"]) for kernel in kernels) > 255
    for kernel in kernels:
        assert 'extern "C"' in directory.read_text(f"lower/g0.forward/{kernel['file']}")


def test_a_tensor_with_a_long_name_has_its_picture(tmp_path: Path) -> None:
    one, other = torch.zeros(4), torch.ones(4)
    paths = ["я" * 200 + "0", "я" * 200 + "1"]
    rows = [replace(compare_tensors(one, other, path=path), kind="gradient") for path in paths]
    found = pictures(rows, rows, {"gradient": dict.fromkeys(paths, one)}, {"gradient": dict.fromkeys(paths, other)})
    assert len(found) == 3
    for name, content in found.items():
        RunDirectory(tmp_path).store(name, content)


@pytest.mark.parametrize("name", ["x" * 300, "层" * 100])
def test_a_violation_of_a_node_with_a_long_name_has_its_script(name: str, tmp_path: Path) -> None:
    tensor = TensorRecord([3], "float32", [1], "cpu")
    nodes = [NodeRecord("x", "placeholder", "x", outputs=[tensor], role="input")]
    for end in "ab":
        target = f"aten.{'cos' if end == 'a' else 'sin'}.default"
        nodes.append(NodeRecord(name + end, "call_function", target, [{"node": "x"}], inputs=["x"], outputs=[tensor]))
    graphs = [GraphRecord("g0.forward", "forward", nodes)]
    config = AccelConfig("chip", strict=True, denied=["aten.sin", "aten.cos"])
    repros = write_repros(graphs, check(graphs, config), verified=0)
    assert len(repros.files) >= 2
    for file, text in repros.files.items():
        RunDirectory(tmp_path).store(f"repros/{file}", text)
