"""docs/how-to/add-a-backend.md's samples are backends of which every stage tells the truth; its
entry points are real."""

import io
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from bisect_faults import Perceptron

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.registry import build_stage, declared
from inductor_debug.stages.settings import BackendConfig, Settings

PROJECT = Path(__file__).resolve().parents[3]
GUIDE = (PROJECT / "docs/how-to/add-a-backend.md").read_text()


def samples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample in the file that its first line names."""
    for code in samples("python"):
        (tmp_path / code.partition("\n")[0].removeprefix("# ")).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_sample_is_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(BackendConfig("inductor", "inductor", {"lanes": 32}, _target_="my_chip.MyChip"))
    assert [(rule.rule, rule.value) for rule in adapter.capabilities().rules] == [("alignment", 32)]
    x = NodeRecord("x", "placeholder", "x", outputs=[TensorRecord([2, 48], "float32", [48, 1], "cpu")])
    six = [replace(x, name=f"x{index}") for index in range(6)]
    cat = NodeRecord("cat", "call_function", "aten.cat.default", inputs=[node.name for node in six])
    found = adapter.check(GraphRecord("g0.forward", "forward", [*six, cat]))
    assert [(row.node, row.rule, row.measured) for row in found] == [
        *((node.name, "alignment", "48") for node in six), ("cat", "custom", "6"),
    ]  # fmt: skip
    seen: list[str] = []
    compile_graph = adapter.compile

    def compile(gm: torch.fx.GraphModule, example_inputs: object) -> object:
        seen.extend(str(node.target) for node in gm.graph.nodes)
        return compile_graph(gm, example_inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(adapter, "compile", compile)
    module, given = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU()), torch.randn(2, 4)
    torch.testing.assert_close(torch.compile(module, backend=adapter.dynamo_backend())(given), module(given))
    assert "aten.exp.default" in seen and "aten.silu.default" not in seen


def test_the_entry_points_are_those_of_the_example_package() -> None:
    package = tomllib.loads((PROJECT / "tests" / "vendor_package" / "pyproject.toml").read_text())
    assert tomllib.loads(samples("toml")[0])["project"]["entry-points"] == package["project"]["entry-points"]


def test_the_readme_links_the_guide() -> None:
    assert "(docs/how-to/add-a-backend.md)" in (PROJECT / "README.md").read_text()


class Finished:
    """Stages that ran one after the other in one run: result by name, and what they stored."""

    def __init__(self, target: str, *stages: str, mode: str = "inference", **options: Any) -> None:
        torch._dynamo.reset()
        torch.manual_seed(0)
        module = Perceptron().eval() if mode == "inference" else Perceptron()
        case = Case("p", module, (torch.randn(4, 8),), {}, mode, torch.float32, torch.device("cpu"))
        settings = Settings(ModelConfig("p"), backend=BackendConfig("x", target, options), mode=mode)
        self.stored = MemoryArtifacts()
        context = StageContext(settings, self.stored, {"case": case})
        self.results: dict[str, StageResult] = {}
        for name in stages:
            stage = build_stage(name, declared()[name].options(**OPTIONS.get(name, {})))
            stage.check(context)
            self.results[name] = stage.run(context)
            self.stored.add(self.results[name])

    def told(self) -> dict[str, tuple[str, str]]:
        return {name: (result.status, result.message) for name, result in self.results.items()}

    def table(self, name: str) -> pandas.DataFrame:
        return pandas.read_csv(io.StringIO(self.stored.read_text(name)), keep_default_na=False)


OPTIONS: dict[str, dict[str, Any]] = {
    "kerneldiff": {"plots": False, "repeats": 1, "store_baseline": False},
    "profile": {"steps": 2, "warmup": 1, "trace_steps": 0, "ceiling": False},
    "bisect": {"isolate": False},
}
ALL = ("capture", "constrain", "lower", "kerneldiff", "bisect", "profile", "report")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_compiler_tells_what_it_lowered(mode: str) -> None:
    run = Finished("my_compiler.MyCompiler", *ALL, mode=mode)
    told = run.told()
    graphs = ["g0.forward", "g0.backward"] if mode == "training" else ["g0.forward"]
    status, message = told["lower"]
    assert status == "passed" and message.startswith(f"my_compiler compiled {counted(len(graphs), 'AOT graph')} to ")
    assert "not established" not in message
    facts = run.stored.read_json("lower/summary.json")["graphs"]
    assert list(facts) == graphs and all(facts[graph]["kernels"] == facts[graph]["launches"] for graph in graphs)
    launches = {
        launch["name"]: launch for launch in run.stored.read_json("lower/g0.forward/provenance.json")["kernels"]
    }
    assert launches["k_gelu"]["nodes"] == ["gelu"] and launches["k_gelu"]["captured"] == [
        {"graph": "g0.forward", "node": "gelu"}
    ]
    assert launches["k_gelu"]["main"]["code"].strip().startswith("return torch.sigmoid")
    assert run.stored.read_text("lower/g0.forward/kernels/k_gelu.txt") == "; aten.gelu.default"
    assert "launch gelu\n" in run.stored.read_text("lower/g0.forward/program.s")
    assert not [name for name in run.stored.names("lower/") if name.endswith(("fusions.csv", "ir_pre_fusion.txt"))]
    assert told["kerneldiff"][0] == "passed" and "no graph" not in told["kerneldiff"][1]
    assert told["bisect"][0] == "passed" and told["bisect"][1].startswith("There is nothing to bisect: ")
    assert told["profile"][0] == "passed" and "The longest: aten." in told["profile"][1]
    assert "k_gelu" in run.stored.read_text("report/report.html")


def test_a_compilers_own_flags_bisect() -> None:
    run = Finished("my_compiler.MyCompiler", "kerneldiff", "bisect", fast_math=True)
    assert run.results["kerneldiff"].status == "failed"
    found = run.stored.read_json("bisect/bisect.json")
    assert (found["verdict"], found["subsystem"], found["kind"], found["names"]) == (
        "found", "backend", "option", ["fast_math=false"],
    )  # fmt: skip
    assert found["relation"] == "goes_away_with"
    assert found["remedy"]["text"] == "backend.options.fast_math=false"
    said = "The fault comes in with the backend my_compiler: it goes away with fast_math=false. "
    assert run.results["bisect"].message.startswith(said)


@pytest.mark.parametrize("lower", [True, False])
def test_a_simulator_tells_what_it_emulated(lower: bool) -> None:
    run = Finished("my_simulator.MySimulator", *(("lower",) if lower else ()), "kerneldiff", "profile", "report")
    first = run.results["lower" if lower else "kerneldiff"]
    assert first.status == "passed"
    assert "The emulation of every result rounded to bfloat16 found nothing." in first.message.split("\n")
    assert ("emulat" in run.results["kerneldiff"].message) == (not lower)
    assert "storage rounding alone" in run.results["kerneldiff"].message
    facts = run.stored.read_json("lower/emulation.json")
    assert facts["profile"] == "my_chip" and facts["findings"] == {}
    assert run.results["profile"].status == "passed"


def test_a_simulators_findings_are_of_nodes_and_lines() -> None:
    import my_simulator  # type: ignore[import-not-found]

    adapter = my_simulator.MySimulator()
    torch._dynamo.reset()
    torch.compile(Perceptron().eval(), backend=adapter.dynamo_backend())(1e6 * torch.ones(1, 8))
    rows = adapter.emulation().artifacts()["lower/emulation.csv"]
    assert set(rows.kind) == {"overflow"} and set(rows.graph) == {"g0.forward"}
    lines = rows.set_index("node").source
    assert all("bisect_faults.py:" in lines[node] for node in ("addmm", "gelu", "addmm_1"))
    assert "overflow" in adapter.emulation().message and adapter.emulation().status == "passed"


def test_a_taker_of_dynamos_graph() -> None:
    run = Finished("my_tracer.MyTracer", *ALL, mode="training")
    told = run.told()
    said = "The backend my_tracer tells nothing of what it compiles (no lowering()), so there is nothing to show."
    assert told["lower"] == ("skipped", said)
    assert told["kerneldiff"][0] == "passed" and "no graph" not in told["kerneldiff"][1]
    assert told["bisect"][1].startswith("There is nothing to bisect: ")
    assert told["profile"][0] == "passed"
