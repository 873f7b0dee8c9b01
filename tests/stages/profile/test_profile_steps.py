"""Which steps a profile is of: those of a model that has settled, and which range each of autograd's numbers is of."""

from typing import Any

import pytest
import torch
from profile_models import lopsided_case

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.lower.attribution import Part
from inductor_debug.stages.profile.config import ProfileConfig
from inductor_debug.stages.profile.messages import message
from inductor_debug.stages.profile.observation import Observation, Times
from inductor_debug.stages.profile.stage import ProfileStage
from inductor_debug.stages.profile.tables import Profile, timed
from inductor_debug.stages.profile.work import Work
from inductor_debug.stages.settings import BackendConfig, Settings


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def profiled(
    module: torch.nn.Module, mode: str, steps: int = 4, rows: int = 16, **backend: Any
) -> tuple[StageResult, MemoryArtifacts]:
    torch._dynamo.reset()
    artifacts = MemoryArtifacts()
    case = Case("settles", module, (torch.randn(rows, 32),), {}, mode, torch.float32, torch.device("cpu"))
    context = StageContext(Settings(ModelConfig("settles"), backend=BackendConfig(**backend), mode=mode), artifacts)
    context.live["case"] = case
    options = ProfileConfig(steps=steps, warmup=1, trace_steps=0, ceiling=False)
    result = ProfileStage(options).run(context)
    artifacts.add(result)
    return result, artifacts


class Prepares(torch.nn.Module):
    """Its first step keeps what the later ones use."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = torch.sin(x)
            return self.kept
        return torch.tanh(x @ self.kept.T)


@pytest.mark.parametrize("name", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_profile_is_of_the_graph_that_later_steps_run(name: str) -> None:
    result, artifacts = profiled(Prepares(), "inference", name=name, adapter=name)
    kernels = result.artifacts["profile/kernels.csv"]
    seen = kernels[kernels.launches > 0]
    assert set(seen.graph) == {"g1.forward"} and (seen.time_us > 0).all()
    assert "tanh" in " ".join(seen.operations) and "return torch.tanh(x @ self.kept.T)" in result.message
    (note,) = artifacts.read_json("profile/summary.json")["not_established"]
    assert note.startswith("kernel times of g0.forward: none of its launches was seen")
    assert "CUDA" not in note


class Restless(torch.nn.Module):
    """Every step is compiled anew, until Dynamo gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return torch.sin(x) * self.count


def test_graphs_that_are_compiled_while_steps_are_recorded_are_told() -> None:
    _, artifacts = profiled(Restless(), "inference", steps=3, name="aot_eager", adapter="aot_eager")
    notes = artifacts.read_json("profile/summary.json")["not_established"]
    (note,) = [note for note in notes if "compiled while" in note]
    assert "stages.profile.warmup" in note


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.linear(x)
        return logits, logits.argmax(-1)


def test_the_backward_of_the_loss_is_not_taken_for_that_of_the_last_operation() -> None:
    """An operation without a gradient has the number that autograd gives to the next one that has one: the loss's."""
    result, _ = profiled(Classifier(), "training", name="eager", adapter="eager")
    kernels = result.artifacts["profile/kernels.csv"]
    backward = kernels[kernels.kind == "backward"].set_index("operations")
    assert backward.launches.to_dict() == {"torch.nn.functional.linear": 2, "argmax": 0}


def test_modules_that_can_not_be_given_ranges_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_debug.stages.profile import stage

    compiled: list[str] = []

    def counted(case: Case, adapter: Any, *args: Any, **options: Any) -> CompiledCase:
        compiled.append(adapter.name)
        return compile_case(case, adapter, *args, **options)

    monkeypatch.setattr(stage, "compile_case", counted)
    settings = Settings(ModelConfig("lopsided"), backend=BackendConfig(name="aot_inductor", adapter="aot_inductor"))
    artifacts, case = MemoryArtifacts(), lopsided_case("inference")
    plain = CompiledCase(case, build_adapter(settings))
    context = StageContext(settings, artifacts, {"case": case, "compiled": plain})
    ranged, *_ = stage.with_ranges(context, plain)
    assert ranged is plain and compiled == []


@pytest.mark.parametrize(
    ("plain", "on_device", "told"), [(100.0, False, True), (330.0, False, False), (100.0, True, False)]
)
def test_what_recording_adds_to_a_step_is_told(plain: float, on_device: bool, told: bool) -> None:
    """Of a device's step it is left out: shares there are of the step without the profiler."""
    launch = Work("g0.forward", "mm", 1, "extern", "g0.forward|mm:1", [Part("mm", "", "net.py:1", "x @ y", 1.0)])
    times = Times([1, 1], [50.0, 50.0], [50.0, 50.0])
    observation = Observation([plain] * 2, [340.0] * 2, {launch.range: times}, on_device=on_device)
    text = message(Profile(timed([launch], observation), observation, None, None))
    assert ("Recording adds 240 % to a step." in text.splitlines()) is told
    assert ("recording" in text.lower()) is told


class Exponential(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp()


def test_a_batch_of_no_rows_needs_no_kernel_and_passes() -> None:
    result, artifacts = profiled(Exponential(), "inference", rows=0)
    said = "There is nothing to time: the graphs hold no operation that needs a kernel."
    assert (result.status, result.message) == ("passed", said)
    assert artifacts.read_json("profile/summary.json")["launches"] == 0


def test_a_busy_machine_and_medians_that_do_not_add_up_are_told() -> None:
    launches = [Work("g0.forward", name, 1, "extern", f"g0.forward|{name}:1", [Part(name, "", "", "", 1.0)])
                for name in ("mm", "bmm")]  # fmt: skip
    times = [Times([1] * 3, each, each) for each in ([90.0, 5.0, 5.0], [5.0, 5.0, 90.0])]
    ranges = {launch.range: each for launch, each in zip(launches, times, strict=True)}
    observation = Observation([100.0, 100.0, 100.0], [50.0, 100.0, 200.0], ranges)
    text = message(Profile(timed(launches, observation), observation, None, None))
    trained = message(Profile(timed(launches, observation), observation, None, None), training=True)
    assert trained == text.replace("A step takes 0.1 ms", "Forward and backward take 0.1 ms") != text
    told, *figures = text.splitlines()
    assert told == (
        "A step takes 0.1 ms, 48 % of it in 2 kernel launches. The steps differ by 75 % (interquartile range): "
        "was the machine busy? Shares may be off."
    )
    assert "The tables' medians add up to 10 % of the step." in figures and "recording" not in text.lower()
