"""The stage's verdict and record of who executed it."""

import pytest
import torch
from falling_back import Net, silent
from torch._dynamo.backends import registry
from torch._dynamo.backends.registry import register_backend

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings


def context_of(config: BackendConfig) -> StageContext:
    torch._dynamo.reset()
    case = Case("net", Net(), (torch.randn(6, 8),), {}, "inference", torch.float32, torch.device("cpu"))
    return StageContext(Settings(ModelConfig("net"), backend=config), MemoryArtifacts(), {"case": case})


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """``silent`` under the name ``silent_for_test``, until the test ends."""
    for table in ("_BACKENDS", "_COMPILER_FNS"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    register_backend(silent, name="silent_for_test")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "config",
    [
        BackendConfig("silent_for_test", "dynamo"),
        BackendConfig("mine", "falling_back.SilentAot"),
    ],
    ids=["registered", "adapter"],
)
def test_the_stage_stores_who_executed_it(config: BackendConfig) -> None:
    result = KernelDiffStage(KernelDiffConfig(draws=1, plots=False)).run(context_of(config))
    numerics = result.summary["numerics"]
    assert (result.status, numerics.verdict) == ("passed", "not_exercised") and "in place of" in result.message
    assert numerics.execution.inductor == numerics.execution.graphs == 1
    diagnosis = result.artifacts[files.DIAGNOSIS.path]
    assert diagnosis.execution == numerics.execution is not None


def test_torchs_own_inductor_by_name_is_no_fallback() -> None:
    result = KernelDiffStage(KernelDiffConfig(draws=1, plots=False)).run(
        context_of(BackendConfig("inductor", "dynamo"))
    )
    assert result.summary["numerics"].verdict in ("exact", "within_floor") and "in place" not in result.message
