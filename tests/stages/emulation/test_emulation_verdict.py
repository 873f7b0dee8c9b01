"""The verdict on emulated runs: storage rounding alone is no defect, a fault on top of it is one."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.emulated import EmulatedAdapter
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings

from fault_models import Transformer  # isort: skip


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def context_of(numerics: NumericsConfig, mode: str = "inference", backend: str = "emulated") -> StageContext:
    torch.manual_seed(0)
    case = Case(
        "net", Transformer().train(mode == "training"), (torch.randn(2, 16, 16),), {}, mode, torch.float32,
        torch.device("cpu"),
    )  # fmt: skip
    settings = Settings(
        ModelConfig("net"), AccelConfig("chip", numerics=numerics), BackendConfig(backend, backend), mode=mode
    )
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def judged(context: StageContext) -> StageResult:
    return KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False)).run(context)


def rows_of(result: StageResult) -> list[dict[str, Any]]:
    return result.artifacts["kerneldiff/outputs.csv"].to_dict("records")


@pytest.mark.parametrize(("format", "mode"), [("bfloat16", "training"), ("1-6-9", "inference"), ("bfp8", "inference")])
def test_storage_rounding_alone_is_no_defect(format: str, mode: str) -> None:
    result = judged(context_of(NumericsConfig(storage={"float32": format}), mode))
    assert result.status == "passed", result.message
    assert "storage rounding alone raised the floor" in result.message
    assert any("storage rounding alone" in row["message"] for row in rows_of(result))
    assert all(row["ratio"] <= 1 for row in rows_of(result))  # nothing else is emulated, so nothing else is wrong


class Ranked(torch.nn.Module):
    """Values near 1, many of which bfloat16 makes equal, and their order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 30)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = 1 + self.linear(x) / 100
        return y, y.argsort(stable=True, dim=-1)


@pytest.mark.parametrize(("accumulate", "verdict"), [(None, "within_floor"), ("float8_e5m2", "defect")])
def test_integers_that_storage_rounding_alone_gives_are_no_defect(accumulate: str | None, verdict: str) -> None:
    numerics = NumericsConfig(storage={"float32": "bfloat16"}, accumulate=accumulate)
    if accumulate:
        numerics.accumulate_block = 4
    context = context_of(numerics)
    context.case.module, context.case.args = Ranked().eval(), (torch.randn(5, 16),)
    result = judged(context)
    order = next(row for row in rows_of(result) if row["dtype"] == "int64")
    assert order["mismatched"] > 0 and order["verdict"] == verdict
    told = "storage rounding alone gives the integers of 1 of 2 results" in result.message
    assert told is (verdict == "within_floor") and result.status == ("failed" if accumulate else "passed")


def test_without_a_storage_format_the_floor_is_the_references() -> None:
    wrong = NumericsConfig(accumulate="bfloat16", accumulate_block=4)
    result = judged(context_of(wrong))
    assert result.status == "failed" and "storage rounding" not in result.message


def test_without_emulation_nothing_changes() -> None:
    result = judged(context_of(NumericsConfig(storage={"float32": "bfloat16"}), backend="aot_eager"))
    assert result.status == "passed" and "storage rounding" not in result.message


def test_a_sum_in_too_narrow_a_format_is_a_defect() -> None:
    numerics = NumericsConfig(storage={"float32": "bfloat16"}, accumulate="float8_e5m2", accumulate_block=4)
    result = judged(context_of(numerics))
    assert result.status == "failed" and result.summary["numerics"].verdict == "defect"
    assert "storage rounding alone raised the floor" in result.message


def test_random_numbers_drawn_alike_still_count() -> None:
    """Storage rounding's floor is far above that of float32, as one of other dropout masks would be."""
    context = context_of(NumericsConfig(storage={"float32": "bfloat16"}), "training")
    context.case.module = torch.nn.Sequential(context.case.module, torch.nn.Dropout(0.2))
    result = judged(context)
    assert result.status == "passed", result.message
    found = result.artifacts["kerneldiff/diagnosis.json"].random  # an error beyond float32's floor had it looked at
    assert found == "all sides drew the same random numbers"


def test_a_wide_sum_beside_narrow_storage_is_none() -> None:
    numerics = NumericsConfig(storage={"float32": "bfloat16"}, accumulate="float32", accumulate_block=4)
    assert judged(context_of(numerics)).status == "passed"


@pytest.mark.parametrize(
    ("fault", "strength"), [pytest.param("scale", 0.3, marks=pytest.mark.slow), ("dropped_tail", 1)]
)
def test_a_planted_fault_is_a_defect_beside_storage_rounding(fault: str, strength: float) -> None:
    context = context_of(NumericsConfig(storage={"float32": "bfloat16"}))
    adapter = PlantedFault("emulated", "addmm_1", fault, accel=context.settings.accel, strength=strength)
    context.live["compiled"] = compile_case(context.case, adapter)
    assert isinstance(adapter.inner, EmulatedAdapter)
    result = judged(context)
    assert result.status == "failed", result.message
    assert "storage rounding alone raised the floor" in result.message
