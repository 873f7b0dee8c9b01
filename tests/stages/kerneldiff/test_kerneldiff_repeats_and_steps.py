"""Differences between repeated runs, and parameters after several optimizer steps."""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch
from baseline_runs import Flipping, Gate, at_the_branch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff import extra_runs
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings

CALLS = itertools.count()


class Unsteady(AcceleratorAdapter):
    """Its results depend on how often it was called, by a rounding error's size."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            outs = gm(*args)
            return tuple(out * (1 + 1e-7 * (next(CALLS) % 3)) if out.is_floating_point() else out for out in outs)

        return run


class WrongBackward(AcceleratorAdapter):
    """Right forward; gradients too small by a tenth."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        backward = any("tangents" in node.name for node in gm.graph.nodes if node.op == "placeholder")
        scale = 0.9 if backward else 1.0
        return lambda *args: tuple(
            out * scale if isinstance(out, torch.Tensor) and backward else out for out in gm(*args)
        )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.tanh(self.norm(self.first(x)))))


def context(adapter: str = "aot_eager", mode: str = "training") -> StageContext:
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = Case(
        "net", Net().train(mode == "training"), (torch.randn(6, 8),), {}, mode, torch.float32, torch.device("cpu")
    )
    backend = BackendConfig(adapter, adapter if adapter == "aot_eager" else f"{__name__}.{adapter}")
    return StageContext(Settings(ModelConfig("net"), backend=backend, mode=mode), MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    return KernelDiffStage(KernelDiffConfig(**options)).run(context)


def test_parameters_after_steps_are_those_of_a_plain_loop_and_the_module_is_left_alone() -> None:
    found = context()
    case = found.case
    before = copy.deepcopy(case.module.state_dict())
    plain = copy.deepcopy(case.module)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    losses, projection = [], numpy.random.default_rng([0, 0, 0]).standard_normal((6, 4), numpy.float32)
    for index in range(3):
        seed_everything(case.seed + index)
        optimizer.zero_grad()
        output = plain(*case.args)
        loss = (output * torch.from_numpy(projection)).sum() / output.numel() ** 0.5
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    result = run(found, steps=3, learning_rate=0.1)
    rows = result.artifacts["kerneldiff/outputs.csv"]
    parameters = rows[rows["kind"] == "parameter"]
    assert set(parameters["path"]) == {name for name, _ in plain.named_parameters()}
    assert result.status == "passed" and "after 3 steps" in result.message, result.message
    drift = result.artifacts["kerneldiff/drift.csv"]
    assert drift["loss_reference"].tolist() == pytest.approx(losses) and drift["step"].tolist() == [1, 2, 3]
    worst = parameters.set_index("path")
    for name, parameter in plain.named_parameters():
        assert worst.loc[name, "reference_rms"] == pytest.approx(parameter.double().square().mean().sqrt().item())
    for name, value in case.module.state_dict().items():
        assert torch.equal(value, before[name]), name


class Stateful(nn.Module):
    """Changes what a step may change: an input, a counter, a plain tensor, a buffer's size, a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls, self.plain = nn.Linear(8, 8), 0, torch.ones(8)
        self.generator = torch.Generator().manual_seed(3)
        self.mean = nn.Parameter(torch.zeros(8), requires_grad=False)
        self.register_buffer("keys", torch.zeros(0, 8))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        cache.add_(x)
        self.plain = self.plain + 1
        y = self.layer(x) * self.plain * torch.rand(8, generator=self.generator) + cache.mean() * self.calls
        self.keys = torch.cat([self.keys, y.detach()])
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0) * 0.1)
        return y + self.keys.mean()


def stateful(adapter: str) -> StageContext:
    found = context(adapter)
    found.case.module, found.case.args = Stateful().train(), (torch.randn(6, 8), torch.randn(6, 8))
    return found


def test_each_side_steps_its_own_state() -> None:
    found = stateful("aot_eager")
    module, before = found.case.module, found.case.args[1].clone()
    result = run(found, steps=3)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert set(rows.loc["parameter", "verdict"]) == {"exact"}, result.message
    assert set(rows.loc["parameter"].index) == {"layer.weight", "layer.bias", "mean", "mean (written)"}
    drift = result.artifacts["kerneldiff/drift.csv"]
    assert drift["loss_reference"].tolist() == drift["loss_test"].tolist()
    assert (module.calls, module.keys.shape, module.plain.tolist()) == (0, (0, 8), [1.0] * 8)
    assert torch.equal(found.case.args[1], before) and torch.equal(module.mean, torch.zeros(8))


class WritesAnInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cache.add_(x)
        return self.layer(x) * cache.mean(), cache


class WrongLater(AcceleratorAdapter):
    """Gradients too large by 30 % from its third backward on, which is the second optimizer step's."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        backward, calls = any("tangents" in node.name for node in gm.graph.nodes), itertools.count()
        return lambda *args: tuple(
            out * 1.3 if isinstance(out, torch.Tensor) and wrong else out
            for wrong in [backward and next(calls) >= 2]
            for out in gm(*args)
        )


def test_inputs_written_in_place_hide_no_wrong_gradients() -> None:
    found = context("WrongLater")
    found.case.module, found.case.args = WritesAnInput().train(), (torch.randn(6, 8), torch.randn(6, 8))
    result = run(found, steps=3, draws=1)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert set(rows.loc["gradient", "verdict"]) == {"exact"}
    assert rows.loc[("parameter", "layer.weight"), "verdict"] == "defect", result.message


@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adamw"])
def test_wrong_gradients_show_in_the_parameters(optimizer: str) -> None:
    result = run(context("WrongBackward"), steps=2, learning_rate=0.1, optimizer=optimizer)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert result.status == "failed"
    if optimizer == "sgd":  # adamw divides by the gradient's own size
        assert rows.loc[("parameter", "last.weight"), "verdict"] == "defect"
        assert result.artifacts["kerneldiff/drift.csv"]["ratio"].min() > 100


@pytest.mark.parametrize(("adapter", "unsteady"), [("aot_eager", False), ("Unsteady", True)])
def test_repeats_show_how_runs_of_the_backend_differ(adapter: str, unsteady: bool) -> None:
    result = run(context(adapter, mode="inference"), repeats=4)
    table = result.artifacts["kerneldiff/jitter.csv"]
    assert table["path"].tolist() == ["output"] and table["runs"].tolist() == [4]
    assert (table["differing"].item() > 0) is unsteady and (table["max_abs"].item() > 0) is unsteady
    assert f"differs from itself in {int(unsteady)} of 1" in result.message


@pytest.mark.parametrize(
    ("options", "mode", "words"),
    [
        ({"steps": 2}, "inference", "mode=training"),
        ({"optimizer": "adagard"}, "training", "adamw, sgd"),
        ({"repeats": 0}, "training", "got 0; valid: a whole number above 0.\nTry: stages.kerneldiff.repeats=5"),
        ({"steps": -1}, "training", "steps: got -1; valid: a whole number from 0."),
        ({"perturbations": -1}, "inference", "perturbations: got -1; valid: a whole number from 0."),
        ({"worst": -1}, "inference", "worst: got -1; valid: a whole number from 0."),
        ({"atol": -1e-3}, "inference", "stages.kerneldiff.atol: got -0.001; valid: a finite number from 0."),
        ({"rtol": math.nan}, "inference", "stages.kerneldiff.rtol: got nan; valid: a finite number from 0."),
        ({"factor": math.inf}, "inference", "factor: got inf; valid: a finite number above 0.\nTry: "),
        ({"learning_rate": -0.1}, "training", "learning_rate: got -0.1; valid: a finite number above 0."),
        ({"steps": 1, "baseline": "somewhere"}, "training", "steps=0"),
    ],
)
def test_options_that_cannot_be_meant_are_rejected(options: dict[str, Any], mode: str, words: str) -> None:
    settings = context(mode=mode).settings
    with pytest.raises(ConfigurationError, match="got") as error:
        extra_runs.check(KernelDiffConfig(**options), settings)
    assert words in str(error.value)


@pytest.mark.parametrize(("perturbations", "status"), [(12, "passed"), (0, "failed")])
def test_a_branch_within_rounding_is_no_defect_of_trained_parameters(perturbations: int, status: str) -> None:
    found = context("Flipping")
    found.case.module, found.case.args = Gate(), at_the_branch()
    result = run(found, steps=2, learning_rate=0.01, perturbations=perturbations)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert result.status == status, result.message
    if perturbations:
        assert rows.loc[("parameter", "weight"), "bound"] == "conditioning"
        assert torch.equal(found.case.module.weight, torch.tensor([1.0, 2.0, 3.0]))


class FlipsLater(Flipping):
    """Takes the other branch from its third backward on: runs after the first."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        other, calls = super().compile(gm, example_inputs), itertools.count()
        return lambda *args: (other if next(calls) >= 2 else gm)(*args)


@pytest.mark.parametrize(("perturbations", "status"), [(12, "passed"), (0, "failed")])
def test_a_later_run_gets_the_same_second_chance(perturbations: int, status: str) -> None:
    found = context("FlipsLater")
    found.case.module, found.case.args = Gate(), at_the_branch()
    result = run(found, repeats=2, perturbations=perturbations)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert result.status == status, result.message
    assert rows.loc[("gradient", "weight (run 2)"), "bound"] == ("conditioning" if perturbations else "floor_max")
