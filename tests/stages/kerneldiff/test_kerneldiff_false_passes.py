"""Faults that once passed: each must show, and what is told must be what was found."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from wrong_adapters import DropsCopies

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.numerics.comparison import KernelDiff, assert_matches, compare, compare_tensors
from inductor_debug.stages.settings import BackendConfig, Settings

CALLS = {"backward": 0, "forward": 0}


class Later(AcceleratorAdapter):
    """Right in its first two calls (the first step is taken to compile), then as ``fault`` says."""

    name = "later"
    fault = "zero"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kind = "backward" if any("tangents" in node.name for node in gm.graph.nodes) else "forward"
        CALLS[kind] = 0

        def run(*args: Any) -> Any:
            CALLS[kind] += 1
            outs = gm(*args)
            if kind == "forward" or CALLS[kind] <= 2:
                return outs
            if self.fault == "raise":
                raise RuntimeError("kernel launch failed")
            factor = 0.0 if self.fault == "zero" else float("nan")
            return tuple(out * factor if isinstance(out, torch.Tensor) else out for out in outs)

        return run


class LaterRaises(Later):
    fault = "raise"


class LaterNan(Later):
    fault = "nan"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.gelu(self.first(x)))


class Average(nn.Module):
    """A running mean of tiny numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x * 2


def context(
    adapter: str, module: nn.Module, *, x: torch.Tensor, mode: str = "training", autocast: bool = False
) -> StageContext:
    torch._dynamo.reset()
    dtype, precision = (torch.bfloat16, "autocast") if autocast else (torch.float32, "cast")
    module.train(mode == "training")
    case = Case("small", module, (x,), {}, mode, dtype, torch.device("cpu"), precision=precision)
    backend = BackendConfig(adapter, f"{__name__}.{adapter}")
    settings = Settings(ModelConfig("small"), backend=backend, mode=mode)
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    return KernelDiffStage(KernelDiffConfig(plots=False, **options)).run(context)


def small(adapter: str, **more: Any) -> StageContext:
    torch.manual_seed(0)
    return context(adapter, Small(), x=torch.randn(6, 8), **more)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_backend_that_never_trains_is_a_defect(optimizer: str, autocast: bool) -> None:
    result = run(small("Later", autocast=autocast), steps=3, optimizer=optimizer, draws=1)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "defect"), result.message
    assert rows.loc[("parameter", "last.weight"), "verdict"] == "defect"
    assert set(rows.loc["gradient", "verdict"]) <= {"exact", "within_floor"}


@pytest.mark.parametrize(
    ("adapter", "verdict", "told"),
    [
        ("Later", "defect", "(run 2)"),
        ("LaterNan", "defect", "NaN or infinity on one side alone"),
        ("LaterRaises", "not_established", "raised RuntimeError: kernel launch failed"),
    ],
)
def test_a_later_run_that_fails_is_a_result(adapter: str, verdict: str, told: str) -> None:
    result = run(small(adapter), repeats=3)
    assert (result.status, result.summary["numerics"].verdict) == ("failed", verdict), result.message
    assert told in result.message
    assert "kerneldiff/jitter.csv" in result.artifacts
    paths = set(result.artifacts["kerneldiff/outputs.csv"]["path"])
    later = {f"last.weight (run {number})" for number in (2, 3)}
    assert adapter == "LaterRaises" or later <= paths
    assert not any(path.count("(run") > 1 for path in paths)


def test_steps_that_raise_leave_what_was_compared() -> None:
    result = run(small("LaterRaises"), steps=2)
    assert result.summary["numerics"].verdict == "not_established"
    assert "in the optimizer steps the test side raised RuntimeError: kernel launch failed" in result.message
    assert "gradient" in set(result.artifacts["kerneldiff/outputs.csv"]["kind"])


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_lost_write_is_a_defect_however_small(scale: float) -> None:
    torch.manual_seed(0)
    result = run(context(DropsCopies.__name__, Average(), x=scale * torch.rand(8, 4), mode="inference"))
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index(["kind", "path"])
    assert rows.loc[("buffer", "mean"), "verdict"] == "defect", result.message


def test_jagged_tensors_differ_in_their_offsets() -> None:
    values = torch.randn(6, 3)
    left, right = (
        torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets)) for offsets in ([0, 2, 6], [0, 3, 6])
    )
    difference = compare(left, right)
    assert [row.path for row in difference.failed] == ["output.offsets()"]
    assert compare(left, left).verdict == "exact"


@dataclass
class Holder:
    value: Any


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({0: torch.ones(2), "output": [torch.ones(2)]}, {0: torch.zeros(2), "output": [torch.ones(2)]}),
        ({"output": [torch.ones(2)]}, [torch.ones(2)]),
        ([torch.ones(2)], {"output": [torch.ones(2)]}),
        ((torch.ones(2),), [torch.ones(2)]),
        ({"value": torch.ones(2)}, Holder(torch.ones(2))),
    ],
)
def test_structures_whose_paths_meet_are_told_apart(left: Any, right: Any) -> None:
    assert compare(left, left).verdict == compare(right, right).verdict == "exact"
    assert compare(left, right).verdict == "defect"


def test_a_gold_coarser_than_the_reference_is_no_floor() -> None:
    x = torch.rand(100) + 1
    assert compare_tensors(x, x + 1e-3, gold=x.bfloat16()).verdict == "defect"
    assert compare_tensors(x, x + 1e-3, gold=x.bfloat16()).bound == "tolerance"


def test_what_counts_as_equal_without_being_a_number_is_told() -> None:
    nan = torch.full((4,), float("nan"))
    row = compare_tensors(nan, nan, gold=torch.ones(4))
    assert (row.verdict, row.message) == ("exact", "4 of 4 elements are NaN on both sides")


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ({"n": 2**70}, "exact"),
        (torch.empty(3, device="meta"), "not_established"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "exact"),
        (torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "exact"),
    ],
)
def test_what_has_no_values_is_a_result(value: Any, verdict: str) -> None:
    difference = compare({"a": value, "b": torch.ones(2)}, {"a": value, "b": torch.ones(2)})
    assert difference.rows[0].verdict == verdict
    if verdict == "not_established":
        assert "not compared" in difference.rows[0].message
        with pytest.raises(AssertionError, match="not compared"):
            assert_matches({"a": value, "b": torch.ones(2)}, {"a": value, "b": torch.ones(2)})


def test_a_list_that_holds_itself_is_told() -> None:
    endless: list[Any] = [torch.ones(2)]
    endless.append(endless)
    with pytest.raises(ValueError, match=r"output\[1\] holds itself"):
        compare(endless, endless)


def test_a_comparison_of_nothing_says_so() -> None:
    with pytest.raises(AssertionError, match="no element of any tensor was compared"):
        assert_matches({"x": torch.empty(0)}, {"x": torch.empty(0)})


def test_what_the_noise_hides_is_told() -> None:
    """A tensor of sums that cancel: in bfloat16 eager's own error is larger than the result."""

    class Cancels(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1000) - 1000

    torch.manual_seed(0)
    case = Case("c", Cancels(), (torch.randn(64, 64),), {}, "inference", torch.bfloat16, torch.device("cpu"))
    case.args = (case.args[0].bfloat16(),)
    settings = Settings(ModelConfig("c"), backend=BackendConfig("zeros", f"{__name__}.Zeros"), dtype="bfloat16")
    torch._dynamo.reset()
    result = run(StageContext(settings, MemoryArtifacts(), {"case": case}))
    (row,) = result.artifacts["kerneldiff/outputs.csv"].to_dict("records")
    assert row["verdict"] == "within_floor" and row["resolution"] > 1
    assert "in 1 the noise of this dtype hides errors of 50 % and more of the tensor" in result.message


class Zeros(AcceleratorAdapter):
    name = "zeros"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * 0 for out in gm(*args))


class ByHalf(AcceleratorAdapter):
    """Every floating result is half as large again."""

    name = "by half"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * 1.5 if out.is_floating_point() else out for out in gm(*args))


class Faint(nn.Module):
    """Gives results of a given size; may run in one dtype alone."""

    def __init__(self, size: float, only: torch.dtype | None = None) -> None:
        super().__init__()
        self.size, self.only = size, only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.only not in (None, x.dtype):
            raise TypeError(f"needs {self.only}\ngot {x.dtype}")
        return x * self.size


def faint(module: nn.Module, dtype: torch.dtype) -> StageContext:
    made = context("ByHalf", module, x=torch.linspace(0.5, 1.5, 48, dtype=dtype), mode="inference")
    made.case.dtype = dtype
    return made


def test_what_a_tolerance_hides_is_told() -> None:
    result = run(faint(Faint(1e-9), torch.float64))
    (row,) = result.artifacts["kerneldiff/outputs.csv"].to_dict("records")
    assert (row["verdict"], row["bound"]) == ("within_tolerance", "tolerance")
    assert row["resolution"] == pytest.approx(1e-7 / row["reference_rms"] + 1e-7)
    assert "; in 1 the tolerance hides errors of 50 % and more of the tensor" in result.message
    assert result.message.splitlines()[0] == (
        "The numbers are right for the inputs that were tried: no error in the result is larger than the tolerance. "
        f"An error of {row['resolution']:.3g} times its size would not be seen, so large is the tolerance."
    )
    assert "noise" not in result.message


@pytest.mark.parametrize(("size", "verdict"), [(1e-6, "within_tolerance"), (1.0, "defect")])
def test_a_gold_that_raised_is_told(size: float, verdict: str) -> None:
    result = run(faint(Faint(size, only=torch.float32), torch.float32), draws=1)
    assert result.summary["numerics"].verdict == verdict
    told = "; no gold, so a tolerance decides: float64 raised TypeError: needs torch.float32"
    assert told in result.message, result.message
    assert ("in 1 the tolerance hides errors" in result.message) == (verdict == "within_tolerance")


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.layer(x).masked_fill(mask < 1, 0.0)


class FromIds(nn.Module):
    """Looks up a table by ids that come as floats."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(100, 16), nn.Linear(17, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([self.table(x[:, 0].long()), x[:, 1:]], 1))


def masked() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Masked(), (torch.randn(32, 16), torch.ones(32, 1))


def from_ids() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return FromIds(), (torch.cat([torch.randint(1, 99, (32, 1)).float(), torch.randn(32, 1)], 1),)


@pytest.mark.parametrize("made", [masked, from_ids])
@pytest.mark.parametrize("strength", [1e-4, 0.1, -1.0])
def test_exact_inputs_are_no_branch(
    made: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]], strength: float
) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, inputs = made()
    case = Case("net", module.eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    planted = "inductor_debug.stages.backends.planted.PlantedFault"
    options = {"inner": "aot_eager", "node": "addmm", "fault": "scale", "strength": strength}
    settings = Settings(ModelConfig("net"), backend=BackendConfig(planted, planted, options))
    result = run(StageContext(settings, MemoryArtifacts(), {"case": case}))
    assert result.summary["numerics"].verdict == "defect", result.message


def test_elements_without_a_gold_are_judged_by_tolerance() -> None:
    reference, gold = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, math.nan, math.inf], dtype=torch.float64)
    row = compare_tensors(reference, torch.tensor([1.0, 99.0, 99.0]), gold=gold)
    assert (row.verdict, row.bound) == ("defect", "tolerance") and "not finite in 2 elements" in row.message
    assert compare_tensors(reference, reference * (1 + 1e-7), gold=gold).verdict == "within_floor"


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        *[("factor", value, "a finite number above 0") for value in (math.nan, math.inf, 0.0, -1.0)],
        *[("atol", value, "a finite number from 0") for value in (math.nan, math.inf, -1.0)],
        *[("rtol", value, "a finite number from 0") for value in (math.nan, math.inf, -1.0)],
        ("roundoff", math.nan, "a finite number from 0"),
        *[("worst", value, "a whole number from 0") for value in (-1, 1.5)],
    ],
)
def test_an_option_that_can_not_be_meant_is_refused(option: str, value: float, valid: str) -> None:
    told = rf"^{option}: got {value}; valid: {valid}$"
    with pytest.raises(ValueError, match=told):
        compare_tensors(torch.ones(2), torch.zeros(2), **{option: value})
    with pytest.raises(ValueError, match=told):
        KernelDiff(**{option: value})


def test_what_a_tolerance_lets_pass_is_a_share_of_the_tensor() -> None:
    x = torch.full((4,), 1e-3)
    row = compare_tensors(x, x * 1.5, gold=x.double(), atol=1e-3, rtol=0.25)
    assert row.verdict == "within_tolerance" and row.resolution == pytest.approx(1.25)
    assert compare_tensors(x * 0, x, atol=1e-3).resolution is None
