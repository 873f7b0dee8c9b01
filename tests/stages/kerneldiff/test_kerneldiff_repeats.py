"""Later runs of the test side: judged like the first, and no fault of the reference's."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff import storage_floor
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.repeats import repeated
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.tensor_pictures.plots import pictures

SUMMARY = "kerneldiff/plots/summary.png"

Kernel = Callable[[int, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""From the call's number (0 is the first run's), the arguments, and the right outputs, what a forward gives."""


class Faulty(AcceleratorAdapter):
    """The right forward, changed by ``kernel``."""

    name = "faulty"
    kernel: Kernel = staticmethod(lambda call, args, outs: outs)

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        calls = itertools.count(-1)  # the first step is taken to compile
        kernel = Faulty.kernel
        backward = any("tangents" in node.name for node in gm.graph.nodes)
        return lambda *args: gm(*args) if backward else kernel(next(calls), args, gm(*args))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.register_buffer("table", torch.rand(5))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"y": self.norm(self.layer(x)) + self.table.sum(), "length": x.shape[0]}


def run(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, mode: str = "inference", **options: Any) -> StageResult:
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(Faulty, "kernel", staticmethod(kernel))
    module = Net().train(mode == "training")
    case = Case("net", module, (torch.randn(6, 8),), {}, mode, torch.float32, torch.device("cpu"))
    settings = Settings(ModelConfig("net"), backend=BackendConfig("faulty", f"{__name__}.Faulty"), mode=mode)
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig(plots=False, repeats=3, **options)).run(context)


def rows(result: StageResult) -> Any:
    return result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])


def wrong_later(call: int, args: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
    return outs if call < 1 else tuple(out * 1.5 for out in outs)


def test_a_backend_that_is_wrong_later_is_no_fault_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(wrong_later, monkeypatch, store_baseline=True)
    assert result.summary["numerics"].verdict == "defect", result.message
    found = rows(result)
    assert found.loc[("output", "y"), "verdict"] == "exact"
    assert found.loc[("output", "y (run 2)"), "verdict"] == found.loc[("output", "y (run 3)"), "verdict"] == "defect"
    stored = result.artifacts["kerneldiff/baseline/baseline.json"]["leaves"]["reference"]
    assert not [record for record in stored if "(run" in str(record)]


def writes_the_table_later(call: int, args: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
    for tensor in args:
        if call >= 1 and tensor.shape == (5,):
            tensor.detach().zero_()
    return outs


def test_a_buffer_that_a_later_run_alone_writes_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(writes_the_table_later, monkeypatch)
    found = rows(result)
    assert found.loc[("buffer", "table (run 2)"), "verdict"] == "defect", result.message
    assert ("buffer", "table") not in found.index
    jitter = result.artifacts["kerneldiff/jitter.csv"].set_index("path")
    assert jitter.loc["table", "differing"] == 2 and jitter.loc["y", "differing"] == 0


def loses_statistics_later(call: int, args: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
    if call >= 1:
        for tensor in args:
            if tensor.shape == (16,) and not isinstance(tensor, nn.Parameter):
                tensor.detach().copy_(torch.full((16,), float(tensor.mean() > 0.5)))
    return outs


def test_a_write_that_a_later_run_loses_is_within_no_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(run(loses_statistics_later, monkeypatch, mode="training")).loc["buffer", "verdict"]
    assert found["norm.running_mean"] == "exact"
    assert found["norm.running_mean (run 2)"] == found["norm.running_var (run 2)"] == "defect"


def test_the_dtypes_of_later_runs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_dtype(call: int, args: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
        return outs if call < 1 else tuple(out.double() for out in outs)

    assert rows(run(other_dtype, monkeypatch)).loc[("output", "y (run 2)"), "bound"] == "dtype"


def test_what_is_no_tensor_is_compared_in_later_runs_too() -> None:
    case = Case("net", Net().eval(), (torch.randn(6, 8),), {}, "inference", torch.float32, torch.device("cpu"))
    first = [sides.run_side("any", case, lambda: case.module) for _ in range(2)]
    calls, difference = itertools.count(2), KernelDiff()

    def later(x: torch.Tensor) -> dict[str, Any]:
        return case.module(x) | ({"length": 7} if next(calls) == 3 else {})

    repeated(case, later, (first[0], first[1], sides.Side()), 3, difference)
    assert [(row.path, row.verdict) for row in difference.rows] == [("length (run 3)", "defect")]


def test_a_row_knows_its_place() -> None:
    row = TensorComparison("output", "y (run 2)")
    row.in_run(3)
    assert (row.path, row.place, "run" in row.row()) == ("y (run 2) (run 3)", "y (run 2)", False)


def test_a_later_runs_row_finds_the_leaves_of_sides_that_ran_once() -> None:
    torch.manual_seed(0)
    exact = torch.rand(64, dtype=torch.float64) + 1
    reference, rounded, test = exact.float(), exact.bfloat16().float(), exact.float() * 1.0001
    difference = KernelDiff()
    (row,) = difference.compare_leaves({"y": reference}, {"y": test}, {"y": exact}, kind="output")
    row.in_run(2)
    assert pictures([row], [row], {"output": {"y": reference}}, {"output": {"y (run 2)": test}}).keys() > {SUMMARY}
    leaves = {"output": {"y": rounded}}, {"output": {"y (run 2)": test}}, {"output": {"y": exact}}
    judgement = storage_floor._raised(row, *leaves)
    assert judgement is not None and judgement.verdict == "within_floor", judgement
