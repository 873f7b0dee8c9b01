"""The whole stage on a CUDA device: convolutions, dropout and fused attention, baseline runs across devices."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.cuda_graphs import recorded_graphs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Block(nn.Module):
    """Convolutions with batch statistics, attention and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.down = nn.Conv2d(64, 64, 3, stride=4)
        self.head = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.down(self.stem(image)).flatten(2).transpose(1, 2)
        heads = F.dropout(tokens, 0.2, self.training).view(tokens.shape[0], -1, 2, 32).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.1 if self.training else 0.0)
        return self.head(mixed.transpose(1, 2).flatten(2)).mean(1)


def context(
    device: str,
    mode: str,
    dtype: str,
    precision: str,
    backend: str,
    tf32: str = "none",
    inductor: dict[str, Any] | None = None,
) -> StageContext:
    torch._dynamo.reset()
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    stored = torch.float32 if precision == "autocast" else kind
    module = Block().to(device, stored).train(mode == "training")
    image = torch.randn(4, 3, 32, 32).to(device, stored)
    place = torch.device(device)
    case = Case("block", module, (image,), {}, mode, kind, place, precision=precision, tf32=tf32, seed=1)
    config = BackendConfig(backend, backend, inductor=inductor or {})
    settings = Settings(
        ModelConfig("block"), backend=config, mode=mode, dtype=dtype, precision=precision, device=device
    )
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    stage = KernelDiffStage(KernelDiffConfig(plots=False, **options))
    stage.check(context)
    return stage.run(context)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("float32", "cast"), ("bfloat16", "cast"), ("float16", "cast"), ("bfloat16", "autocast"), ("float16", "autocast")],
)
def test_inductor_is_within_the_floor(dtype: str, precision: str, mode: str) -> None:
    result = run(context("cuda", mode, dtype, precision, "inductor"))
    assert result.summary["numerics"].verdict in ("exact", "within_floor", "within_tolerance"), result.message
    if mode == "training":
        assert result.artifacts["kerneldiff/diagnosis.json"].random == "all sides drew the same random numbers"


def test_tf32_raises_the_floor() -> None:
    result = run(context("cuda", "inference", "float32", "cast", "inductor", tf32="all"))
    assert result.summary["numerics"].verdict == "within_floor", result.message


@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_baseline_of_the_other_device(here: str, there: str, tmp_path: Path) -> None:
    first = run(context(here, "inference", "float32", "cast", "eager"), store_baseline=True)
    for name, content in first.artifacts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encode(name, content))
    second = run(context(there, "inference", "float32", "cast", "aot_eager"), baseline=str(tmp_path))
    assert second.summary["numerics"].verdict == "within_floor", second.message


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_the_next_replay_of_a_cuda_graph_overwrites_is_no_defect(mode: str) -> None:
    """Torch refuses to read what the recording left, and lets a replay overwrite what the one before left."""
    graphs = {"triton": {"cudagraphs": True}}
    result = run(context("cuda", mode, "float32", "cast", "inductor", inductor=graphs), draws=4)
    assert recorded_graphs(torch.cuda.current_device()) > 0
    assert result.status == "passed" and "a CUDA graph's next replay may overwrite them" in result.message, (
        result.message
    )


def test_a_fault_under_cuda_graphs_is_localized() -> None:
    wrong = {"triton": {"cudagraphs": True, "inject_relu_bug_TESTING_ONLY": "accuracy"}}
    result = run(context("cuda", "inference", "float32", "cast", "inductor", inductor=wrong))
    first = result.artifacts["kerneldiff/diagnosis.json"].first_divergence
    assert result.status == "failed" and first["target"] == "aten.relu.default", result.message
