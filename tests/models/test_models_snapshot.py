"""What a step moves to another device is told apart from what it wrote, and put back; our own errors are our own."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.contents import same_bits
from inductor_debug.models.errors import InternalError
from inductor_debug.models.snapshot import Snapshot
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings

needs_a_second = pytest.mark.skipif(not torch.cuda.is_available(), reason="no device beside the CPU")
SECOND = "cuda"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.offset = nn.Linear(4, 4), torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.offset = self.offset.to(x.device) + 1
        return self.layer(x) + self.offset


def context(module: nn.Module, x: torch.Tensor, mode: str = "inference") -> StageContext:
    torch._dynamo.reset()
    case = Case("net", module.train(mode == "training"), (x,), {}, mode, torch.float32, x.device)
    settings = Settings(ModelConfig("net"), backend=BackendConfig("aot_eager", "aot_eager"), mode=mode)
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: int) -> StageResult:
    return KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False, **options)).run(context)


@needs_a_second
def test_a_tensor_that_was_moved_is_put_back() -> None:
    module = Net()
    before, memory = module.offset, module.offset.data_ptr()
    snapshot = Snapshot(module)
    module.offset.data = torch.zeros(4, device=SECOND)
    assert snapshot.of(before).changed()
    snapshot.restore()
    assert module.offset is before and module.offset.data_ptr() == memory and not module.offset.any()


@needs_a_second
def test_bits_are_compared_over_devices() -> None:
    here = torch.tensor([0.0, float("nan"), 1.0])
    assert same_bits(here, here.to(SECOND)) and not same_bits(-here, here.to(SECOND))


@needs_a_second
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_tensor_that_a_step_makes_on_the_device_is_compared(mode: str) -> None:
    module = nn.Sequential(Net(), nn.utils.weight_norm(nn.Linear(4, 4)), prune.identity(nn.Linear(4, 4), "weight"))
    module.to(SECOND)  # which leaves plain attributes, weight_norm's and prune's weight among them, on the CPU
    assert module[1].weight.device.type == "cpu"
    result = run(context(module, torch.randn(2, 4, device=SECOND), mode))
    assert result.status == "passed", result.message
    assert module[1].weight.device.type == module[0].offset.device.type == "cpu"


def broken(*_: object) -> dict[str, dict[str, torch.Tensor]]:
    raise RuntimeError("Expected all tensors to be on the same device")


@pytest.mark.parametrize("where", ["_written", "_take_gradients", "state"])
def test_our_own_error_is_not_told_as_a_side_s(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    made = context(Net(), torch.randn(2, 4), "training")
    monkeypatch.setattr(Case, where, broken)
    with pytest.raises(InternalError, match=r"inductor-debug itself failed while it .*: RuntimeError: Expected all"):
        run(made)


@pytest.mark.parametrize("steps", [0, 2])
def test_our_own_error_in_putting_state_back_is_not_told_as_a_side_s(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    made = context(Net(), torch.randn(2, 4), "training")
    monkeypatch.setattr(Snapshot, "restore", broken)
    with pytest.raises(InternalError, match="itself failed while it put the case's state back"):
        run(made, steps=steps)


def test_our_own_error_in_the_optimizer_steps_is_not_told_as_a_side_s(monkeypatch: pytest.MonkeyPatch) -> None:
    made = context(Net(), torch.randn(2, 4), "training")
    monkeypatch.setattr("inductor_debug.stages.kerneldiff.extra_runs.parameters", broken)
    with pytest.raises(RuntimeError, match="Expected all tensors"):
        run(made, steps=2)
