"""The profile stage on a CUDA device: the times are those of the device's kernels."""

import pytest
import torch
from profile_models import line_of, lopsided_case

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.profile.config import ProfileConfig
from inductor_debug.stages.profile.stage import ProfileStage
from inductor_debug.stages.settings import BackendConfig, Settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def run(**backend: object) -> tuple[StageResult, MemoryArtifacts]:
    torch._dynamo.reset()
    artifacts = MemoryArtifacts()
    settings = Settings(ModelConfig("lopsided"), backend=BackendConfig(**backend), mode="training", device="cuda")
    context = StageContext(settings, artifacts, {"case": lopsided_case("training", "cuda")})
    result = ProfileStage(ProfileConfig(steps=5)).run(context)
    artifacts.add(result)
    return result, artifacts


@pytest.mark.parametrize("inductor", [{}, {"cpp_wrapper": True}], ids=["python", "cpp"])
def test_triton_kernels_have_the_devices_time(inductor: dict[str, object]) -> None:
    result, artifacts = run(inductor=inductor)
    kernels = result.artifacts["profile/kernels.csv"]
    summary = artifacts.read_json("profile/summary.json")
    assert result.status == "passed" and summary["not_established"] == []
    assert (kernels.kind == "triton").any() and (kernels.time_us > 0).all()
    assert (kernels.launches == 1).all()
    assert kernels.time_us.sum() <= 1.05 * summary["device_us"] and summary["times"] == "device kernels"
    assert result.artifacts["profile/lines.csv"].source[0] == line_of("churn(hidden)")
    products = kernels[kernels.flops.notna()]
    assert len(products) and (products.flops_share < 1.2).all()


def test_cuda_graphs_are_not_taken_for_kernels_that_take_no_time() -> None:
    result, artifacts = run(inductor={"triton.cudagraphs": True})
    notes = artifacts.read_json("profile/summary.json")["not_established"]
    kernels = result.artifacts["profile/kernels.csv"]
    replayed = {note.removeprefix("kernel times of ").partition(":")[0] for note in notes if "CUDA graphs" in note}
    assert "g0.forward" in replayed and f"\nNot established: {'; '.join(notes)}." in result.message
    assert kernels.time_us[kernels.graph.isin(replayed)].isna().all()
    assert not (kernels.time_us == 0).any()


def test_eager_is_told_by_operation() -> None:
    result, _ = run(name="eager", adapter="eager")
    kernels = result.artifacts["profile/kernels.csv"]
    assert result.artifacts["profile/lines.csv"].source[0] == line_of("churn(hidden)")
    assert (kernels[kernels.kind == "backward"].time_us > 0).any()
