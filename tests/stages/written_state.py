"""Models and backends that write into what they were given, and the comparison of one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings


class Scaled(AcceleratorAdapter):
    """Multiplies every floating result by a factor."""

    name = "scaled"
    factor = 1.0

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return tuple(
                result * self.factor if isinstance(result, torch.Tensor) and result.is_floating_point() else result
                for result in gm(*args)
            )

        return run


class Doubled(Scaled):
    factor = 1.5


def compared(module: nn.Module, *args: Any, adapter: type[AcceleratorAdapter], **options: Any) -> StageResult:
    torch._dynamo.reset()
    case = Case("small", module.eval(), args, {}, "inference", torch.float32, torch.device("cpu"))
    backend = BackendConfig("x", f"{adapter.__module__}.{adapter.__name__}")
    settings = Settings(ModelConfig("small"), backend=backend, mode="inference")
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig(plots=False, **options)).run(context)


def verdict_of(result: StageResult, kind: str, path: str) -> str:
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    return str(rows.loc[(kind, path), "verdict"])


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)


class Plain(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
