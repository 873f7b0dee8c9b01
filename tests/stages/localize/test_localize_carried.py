"""Faults that the state of the first step hides."""

import pytest
import torch
from torch import Tensor, nn

from inductor_debug import localize
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.settings import BackendConfig, Settings


class Gated(nn.Module):
    """What it adds is nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(8, 8), nn.Parameter(torch.zeros(8)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.gate * torch.tanh(self.first(x)))


class WrongGate(PlantedFault):
    """Wrong by a tenth in what the gate lets through."""

    def __init__(self) -> None:
        super().__init__(AotEagerAdapter(), "mul", "scale", strength=0.1)


def test_a_state_that_training_leaves_is_looked_at() -> None:
    torch.manual_seed(0)
    module, x = Gated(), torch.randn(6, 8)
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    first = localize(module, (x,), backend=WrongGate(), mode="training").localization
    assert not first.culprits, first.message
    found = localize(module, (x,), backend=WrongGate(), mode="training", config=LocalizeConfig(steps=1)).localization
    assert [culprit.place.node for culprit in found.culprits] == ["mul"]
    assert "with the state that 1 optimizer step leaves, and not before" in found.message
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())


def test_a_comparison_of_trained_parameters_names_the_step() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = Case("gated", Gated().train(), (torch.randn(6, 8),), {}, "training", torch.float32, torch.device("cpu"))
    adapter = f"{__name__}.WrongGate"
    settings = Settings(ModelConfig("gated"), backend=BackendConfig("wrong", adapter), mode="training")
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    result = KernelDiffStage(KernelDiffConfig(draws=1, steps=3, learning_rate=0.5)).run(context)
    assert result.status == "failed"
    drift = result.artifacts["kerneldiff/drift.csv"]
    assert list(drift["ratio"] > 4) == [False, True, True], "the first step starts from the same gate on each side"
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert diagnosis.first_divergence["node"] == "mul"
    assert "with the state that 1 optimizer step leaves" in diagnosis.localization


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_clean_later_call_accuses_nothing(backend: str, mode: str) -> None:
    """Its inputs hold other values while it runs than they do when it is judged."""
    torch.manual_seed(0)
    config = LocalizeConfig(call=2)
    found = localize(nn.Linear(33, 65), (torch.randn(9, 33),), backend=backend, mode=mode, config=config).localization
    assert not found.culprits, found.message
    assert found.closure == pytest.approx(1, abs=0.02)
