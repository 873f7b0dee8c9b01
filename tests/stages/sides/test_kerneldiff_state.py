"""What the kerneldiff stage compares beside outputs, and what it must not take for a pass."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings


class OnCopies(AcceleratorAdapter):
    """Runs the graph on copies of its inputs, so that what it writes into them is lost."""

    name = "on_copies"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return gm(*[arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args])

        return run


class Wrong(AcceleratorAdapter):
    """Every floating output too large by a third."""

    name = "wrong"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * 1.3 if out.is_floating_point() else out for out in gm(*args))


class Raising(AcceleratorAdapter):
    """Can't compile anything."""

    name = "raising"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        raise NotImplementedError("my chip has no gelu")


class WritesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        cache[1] = y[0]
        return y


class DrawsWithNumpy(nn.Module):
    """Dynamo draws these numbers from torch's generator instead of NumPy's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.from_numpy((numpy.random.rand(*x.shape) > 0.5).astype(numpy.float32))
        return self.layer(x * mask)


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x - 100)


def compare(module: nn.Module, *inputs: torch.Tensor, adapter: str) -> StageResult:
    torch._dynamo.reset()
    case = Case("net", module.eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    backend = BackendConfig(adapter, adapter if adapter == "aot_eager" else f"{__name__}.{adapter}")
    context = StageContext(Settings(ModelConfig("net"), backend=backend), MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig()).run(context)


def rows(result: StageResult) -> dict[tuple[str, str], str]:
    table = result.artifacts["kerneldiff/outputs.csv"]
    return {(row.kind, row.path): row.verdict for row in table.itertuples()}


@pytest.mark.parametrize(("adapter", "verdict"), [("aot_eager", "exact"), ("OnCopies", "defect")])
def test_what_a_step_writes_into_an_input_is_compared(adapter: str, verdict: str) -> None:
    cache = torch.zeros(4, 16)
    result = compare(WritesItsInput(), torch.randn(2, 16), cache, adapter=adapter)
    assert rows(result)["input", "cache"] == verdict
    assert ("input", "x") not in rows(result)
    assert not cache.any()


@pytest.mark.parametrize("adapter", ["aot_eager", "Wrong"])
def test_other_draws_on_the_test_side_establish_nothing(adapter: str) -> None:
    torch.manual_seed(0)
    result = compare(DrawsWithNumpy(), torch.randn(8, 64), adapter=adapter)
    assert result.status == "failed" and result.summary["numerics"].verdict == "not_established", result.message
    assert "drew other random numbers" in result.message


def test_a_result_of_nothing_but_nan_says_so() -> None:
    result = compare(Logarithm(), torch.zeros(2, 4), adapter="aot_eager")
    assert "8 of 8 reference elements are NaN" in result.message


def test_the_backends_own_exception_is_told_not_its_wrapper() -> None:
    result = compare(nn.Linear(4, 4), torch.zeros(2, 4), adapter="Raising")
    assert "NotImplementedError: my chip has no gelu" in result.message
    assert "BackendCompilerFailed" in result.artifacts["kerneldiff/diagnosis.json"].error["traceback"]
