"""Probes: what is switched off and what stays as it was; in a process of their own what ends that."""

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import bisect_children
import pytest
import torch
from bisect_faults import Perceptron, Pointwise, wrong_lowering
from faulty_adapters import CrashOnOperation, WrongOperation
from torch import Tensor, nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.backends.inductor_switches import inductor_switches
from inductor_debug.stages.bisect import isolated
from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.bisect.isolated import IsolatedProber
from inductor_debug.stages.bisect.options import option_values
from inductor_debug.stages.bisect.partial import PartialAdapter
from inductor_debug.stages.bisect.probing import failure_class
from inductor_debug.stages.bisect.records import Setting
from inductor_debug.stages.bisect.stage import BisectStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.sides.running import describe
from inductor_debug.stages.torch_internals.switch_records import Group, Switch
from inductor_debug.stages.torch_internals.switches import Switchboard, inductor_defaults, installed

aten = torch.ops.aten


def test_an_unfinished_bisection_of_torchs_own_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status file would put eager in the place of every backend."""
    from torch._inductor.compiler_bisector import CompilerBisector  # looks for one when it is imported

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "bisect"
    folder.mkdir()
    (folder / "bisect_status.txt").write_text("backend=eager\nsubsystem=\n")
    assert CompilerBisector.get_backend() == "eager"
    with installed(Switchboard()):
        backend = WrongOperation("aten.cos.default")
        seen: list[Any] = []
        compiled = torch.compile(Pointwise(), backend=lambda gm, inputs: seen.append(gm) or backend.compile(gm, inputs))
        compiled(torch.randn(2, 3))
    assert seen
    assert [path.name for path in folder.iterdir()] == ["bisect_status.txt"]


def test_tables_are_as_they_were() -> None:
    from torch._inductor import decomposition, lowering

    before = dict(lowering.lowerings), dict(decomposition.decompositions), set(lowering.fallbacks)
    with installed(Switchboard(), fallback=["aten.erf.default"], undecomposed=["aten.gelu.default"]):
        assert lowering.lowerings[aten.erf.default] is not before[0][aten.erf.default]
        assert aten.gelu.default not in decomposition.decompositions
    assert (lowering.lowerings, decomposition.decompositions, set(lowering.fallbacks)) == before


class Several(nn.Module):
    """Operations with several results, a buffer, and a tensor that is written into."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(6), nn.Linear(6, 6)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        values, indices = torch.max(self.norm(self.linear(x)), -1)
        first, second = torch.split(torch.cumsum(x, 0), 2)
        return values * first.sum() + indices + self.count, second


@pytest.mark.parametrize(
    ("mode", "off"),
    [
        ("training", ["aten.addmm.default", "aten.max.dim"]),
        ("training", ["*"]),
        ("inference", ["aten.split.Tensor"]),
        ("inference", []),
    ],
)
def test_operations_left_to_torch_give_what_they_give(mode: str, off: list[str]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = Case("s", Several().train(), (torch.randn(4, 6),), {}, mode, torch.float32, torch.device("cpu"))
    board = Switchboard([Switch(Group.OPERATIONS, key) for key in off])
    given: list[list[str]] = []

    class Noted(AotEagerAdapter):
        def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
            assert len(example_inputs) == sum(node.op == "placeholder" for node in gm.graph.nodes)
            given.append([str(node.target) for node in gm.graph.nodes if node.op == "call_function"])
            return super().compile(gm, example_inputs)

    expected = case.run()
    found = case.run(torch.compile(case.module, backend=PartialAdapter(Noted(), board).dynamo_backend()))
    torch.testing.assert_close(found.output, expected.output, rtol=0, atol=0)
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=0, atol=0)
    torch.testing.assert_close(found.written, expected.written, rtol=0, atol=0)
    compiled = {target for targets in given for target in targets}
    assert not compiled & set(off) and bool(compiled) == (off != ["*"])
    assert {"aten.addmm.default", "aten.split.Tensor"} <= {item.key for item in board.applications}


def test_the_module_is_left_as_found() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.BatchNorm1d(6), nn.GELU()).train(), torch.randn(4, 6)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    result = bisect(module, (x,), backend=CrashOnOperation())
    assert result.names == ["aten.gelu.default"]
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)


def test_failures_are_told_apart_by_type_and_words_but_not_by_numbers() -> None:
    def of(kind: str, message: str) -> str:
        return failure_class({"type": kind, "message": message})

    assert of("RuntimeError", "no room for buf12 at 0x7f") == of("RuntimeError", "\nno room for buf7 at 0x9\nmore")
    assert of("RuntimeError", "no room") != of("RuntimeError", "no code")
    assert of("CppCompileError", "one source") == of("CppCompileError", "another") == "CppCompileError"


def test_a_failure_is_the_same_in_a_process_that_compiles_for_torch() -> None:
    from torch._inductor.compile_worker.subproc_pool import SubprocException

    try:
        try:
            raise NameError("name 'compile_error' is not defined")
        except NameError as cause:
            raise ImportError("at 12:4") from cause
    except ImportError as error:
        here, text = describe(error), traceback.format_exc()
    there = describe(SubprocException(text).with_name("triton_poi_fused_relu_0"))
    assert there["type"] == "SubprocException"
    assert failure_class(there) == failure_class(here) == "NameError"
    generic = describe(
        SubprocException('Traceback (most recent call last):\n  File "x.py", line 3\nRuntimeError: no 12')
    )
    assert failure_class(generic) == failure_class({"type": "RuntimeError", "message": "no 13"})


def test_options_of_the_user_are_tried_without() -> None:
    values = option_values(inductor_switches({"freezing": True, "fallback_random": True, "cpp.simdlen": 8}, "cpu"))
    assert values["freezing=false"] == ("freezing", False)
    assert values["cpp.simdlen=null"] == ("cpp.simdlen", None)
    assert "cpp.simdlen=1" not in values and "triton.cudagraphs=false" not in values
    assert "pattern_matcher=false" in values
    assert inductor_switches({"pattern_matcher": False}, "cpu")["pattern_matcher"] is True


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.setattr(isolated, "_serve", getattr(bisect_children, request.param))
    made = IsolatedProber(Settings(ModelConfig("x")), KernelDiffConfig(), timeout_s=20)
    yield made
    made.close()


@pytest.mark.parametrize("prober", ["ended_by_a_signal"], indirect=True)
def test_a_probe_that_is_killed_is_a_failure_and_the_next_has_a_new_process(prober: IsolatedProber) -> None:
    off = Setting(off=frozenset({Switch(Group.LOWERINGS, "a")}))
    assert prober.facts() == {"name": "child"}
    first, killed, second = prober.probe(off), prober.probe(Setting()), prober.probe(off)
    assert (killed.verdict, killed.failure, killed.died) == ("raised", "killed by SIGSEGV", True)
    assert first.verdict == second.verdict == "ok" and len({first.message, second.message, str(os.getpid())}) == 3


@pytest.mark.parametrize("prober", ["never_answers"], indirect=True)
def test_a_probe_that_hangs_is_ended(prober: IsolatedProber) -> None:
    prober._timeout_s = 0.5
    hung = prober.probe(Setting())
    assert (hung.verdict, hung.failure, hung.died) == ("raised", "a hang: it took more than 0.5 s", True)


@pytest.mark.parametrize("prober", ["raises"], indirect=True)
def test_what_ends_the_stage_is_raised_here(prober: IsolatedProber) -> None:
    with pytest.raises(MemoryError, match="no more"):
        prober.probe(Setting())


UNCLOSED = """
import bisect_children
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.bisect import isolated
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.settings import Settings

isolated._serve = bisect_children.ended_by_a_signal
prober = isolated.IsolatedProber(Settings(ModelConfig("x")), KernelDiffConfig(), timeout_s=60)
print(prober.facts())
"""


def test_a_process_that_was_not_closed_keeps_nobody_from_ending() -> None:
    folders = [str(Path(__file__).parents[3]), str(Path(__file__).parents[1])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    ended = subprocess.run([sys.executable, "-P", "-c", UNCLOSED], env=variables, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, b"{'name': 'child'}\n"), ended.stderr.decode()


def context_of(adapter: str, artifacts: dict[str, Any] | None = None, **options: Any) -> StageContext:
    torch.manual_seed(0)
    case = Case("p", Perceptron().eval(), (torch.randn(4, 8),), {}, "inference", torch.float32, torch.device("cpu"))
    settings = Settings(ModelConfig("p"), backend=BackendConfig("x", f"faulty_adapters.{adapter}", options))
    return StageContext(settings, MemoryArtifacts(artifacts), {"case": case})


def test_the_stage_goes_on_from_kerneldiff() -> None:
    context = context_of("WrongOperation")
    context.artifacts.add(KernelDiffStage(KernelDiffConfig(plots=False)).run(context))  # type: ignore[attr-defined]
    assert "compiled" in context.live
    result = BisectStage(BisectConfig()).run(context)
    assert result.status == "failed" and "the operation aten.sigmoid.default at sigmoid" in result.message
    stored = result.artifacts["bisect/bisect.json"]
    assert (stored.verdict, stored.subsystem, stored.names) == ("found", "backend", ["aten.sigmoid.default"])
    assert stored.established.chain["aot_autograd"].fault == "gone"
    rows = result.artifacts["bisect/probes.csv"]
    assert len(rows) == stored.probes and rows.fault.isin(["present", "gone", "other"]).all()
    assert rows.set_index("probe").fault[stored.established.confirmed["off"]] == "gone"
    assert "compiled" not in context.live, "Dynamo has forgotten it"


def test_the_stage_judges_as_kerneldiff_did() -> None:
    """By its options: with another factor the same result is right."""
    context = context_of("WrongOperation")
    options = KernelDiffConfig(factor=1e9, plots=False)
    context.artifacts.add(KernelDiffStage(options).run(context))  # type: ignore[attr-defined]
    assert context.artifacts.read_json("kerneldiff/options.json")["factor"] == 1e9
    crashed = context_of("WrongOperation", {"kerneldiff/options.json": {"factor": 1e9}})
    result = BisectStage(BisectConfig(isolate=False)).run(crashed)
    assert result.status == "passed" and result.message.startswith("There is nothing to bisect: within_floor")


def test_a_fault_that_only_a_later_call_shows_is_not_established() -> None:
    context = context_of("WrongOperation")
    planted = "inductor_debug.stages.backends.planted.PlantedFault"
    options = {"inner": "aot_eager", "node": "addmm", "fault": "stale_buffer"}
    context.settings.backend = BackendConfig("x", planted, options)
    found = KernelDiffStage(KernelDiffConfig(plots=False)).run(context)
    context.artifacts.add(found)  # type: ignore[attr-defined]
    assert found.status == "failed" and "draws of the inputs" in found.message
    result = BisectStage(BisectConfig()).run(context)
    assert result.status == "failed"
    told = (
        "Which part of the compiler it is, is not established: kerneldiff's fault did not show again in a run that "
        "compiles and calls once.\n"
    )
    assert result.message.startswith(told), result.message


def diagnosis(verdict: str, side: str | None = None) -> dict[str, Any]:
    error = None if side is None else {"side": side, "type": "X", "message": "y"}
    return {"kerneldiff/diagnosis.json": {"verdict": verdict, "message": "it said so", "error": error}}


def test_nothing_is_compiled_where_kerneldiff_passed_or_had_no_reference() -> None:
    passed = BisectStage(BisectConfig()).run(context_of("CrashInCompile", diagnosis("within_floor")))
    told = "There is nothing to bisect: kerneldiff's verdict is within_floor."
    assert (passed.status, passed.message) == ("passed", told)
    skipped = BisectStage(BisectConfig()).run(context_of("CrashInCompile", diagnosis("not_established", "reference")))
    assert (skipped.status, skipped.message) == ("skipped", "There is nothing to compare with: it said so.")


@pytest.mark.parametrize("options", [{"max_probes": 0}, {"timeout_s": 0.0}])
def test_options_that_leave_nothing_to_do_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigurationError, match=rf"stages\.bisect\.{name}: got 0.*\nTry: stages\.bisect\.{name}="):
        BisectStage(BisectConfig(**options)).check(context_of("WrongOperation"))


@pytest.mark.slow
def test_torchs_own_backend_by_name_is_bisected_too() -> None:
    """No adapter of ours: Inductor as torch registers it, whose switches are where they are."""
    with wrong_lowering(aten.erf.default):
        result = bisect(Pointwise(), (torch.randn(4, 8),), backend=torch._dynamo.lookup_backend("inductor"))
    assert (result.verdict, result.subsystem, result.names) == ("found", "inductor", ["aten.erf.default"])
    said = "TorchInductor behind the backend inductor: it goes away without the lowering of aten.erf.default"
    assert said in result.answer


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_a_plain_compilation_is_tried_without_is_other_than_torchs_default(device: str) -> None:
    defaults = inductor_defaults()
    tried = inductor_switches({}, device)
    assert all(value != defaults[name] for name, value in tried.items())
    assert tried.keys() >= {
        "pattern_matcher", "joint_graph_constant_folding", "epilogue_fusion", "max_fusion_size", "split_reductions",
        "inplace_buffers", "allow_buffer_reuse", "emulate_precision_casts", "layout_optimization",
        "comprehensive_padding",
    }  # fmt: skip
