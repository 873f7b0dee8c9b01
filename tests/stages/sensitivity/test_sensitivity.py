"""Planted faults: thresholds against those computed by hand in float64, and what planting leaves as it was."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from inductor_debug import AcceleratorAdapter, diff
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.section import numerics
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import BackendConfig, Settings

FILE = "kerneldiff/sensitivity.csv"
FACTOR = 40.0
"""A limit far above one rounding, so that a threshold by hand is not a matter of luck."""


class Scaled(AcceleratorAdapter):
    """Its results are too large by ``by``."""

    name = "scaled"

    def __init__(self, by: float) -> None:
        self.by = by

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out if out is None else out * (1 + self.by) for out in gm(*args))


class Product(nn.Module):
    """One product, and a loss whose gradient is another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 32, bias=False)
        self.register_buffer("other", torch.randn(16, 32))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.linear(x)
        return {"loss": (y * self.other).sum(), "y": y} if self.training else {"y": y}


class Attention(nn.Module):
    """Softmax does not see the bias of the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 4
        return scores.softmax(-1) @ self.value(x)


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(self.norm(self.first(x)).relu()))


def measured(module: nn.Module, *args: torch.Tensor, **options: Any) -> tuple[Any, pd.DataFrame]:
    torch._dynamo.reset()
    found = diff(module, args, backend="aot_eager", draws=1, sensitivity=True, **options)
    return found, found.tables[FILE]


def by_hand(reference: torch.Tensor, gold: torch.Tensor, factor: float) -> float:
    """The relative error at which a tensor's error exceeds ``factor`` floors, by RMS or by maximum."""

    def levels(values: torch.Tensor) -> torch.Tensor:
        return torch.stack([values.square().mean().sqrt(), values.abs().max()])

    noise, unit = reference.double() - gold, torch.finfo(reference.dtype).eps / 2
    floors = torch.maximum(levels(noise), unit * levels(gold))
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        beyond = bool((levels(noise + middle * gold) > factor * floors).any())
        low, high = (low, middle) if beyond else (middle, high)
    return high


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_threshold_is_the_one_that_follows_from_the_floor(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Product().eval().to(dtype), torch.randn(16, 64, dtype=dtype)
    with torch.no_grad():
        expected = by_hand(module(x)["y"], x.double() @ module.linear.weight.double().T, FACTOR)
    found, table = measured(module, x, factor=FACTOR, perturbations=0)
    assert set(table["fault"]) == {"weight", "activation"} and (table["path"] == "y").sum() == 2
    for row in table.itertuples():
        assert row.found == "defect" and row.confirmed, row
        assert 0.9 * expected < row.relative_error < 1.3 * expected, (row, expected)
        assert row.relative_error / 1.25 < row.passed < row.relative_error
    assert "(linear.weight) would pass here" in found.message and "(mm in linear)" in found.message


def test_a_wrong_gradient_is_measured_in_training() -> None:
    torch.manual_seed(0)
    module, x = Product().train(), torch.randn(16, 64)
    module(x)["loss"].backward()
    gradient, gold = module.linear.weight.grad, module.other.double().T @ x.double()
    module.zero_grad()
    found, table = measured(module, x, mode="training", factor=FACTOR, perturbations=0)
    mine = table[table["fault"] == "gradient"].set_index("path")
    expected = by_hand(gradient, gold, FACTOR)
    assert 0.9 * expected < mine.loc["linear.weight", "relative_error"] < 1.3 * expected
    assert mine.loc["y", "found"] == "no_effect" and mine.loc["any", "site"] == "linear"
    assert mine.loc["any", "source"].startswith(f"{__file__}:")
    assert "in one gradient of the backward pass (mm for linear) would pass here" in found.message


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_in_training_every_kind_of_fault_is_planted(dropout: float) -> None:
    torch.manual_seed(0)
    _, table = measured(Net(dropout).train(), torch.randn(32, 8), mode="training", sensitivity_sites=2, perturbations=1)
    runs = table[table["kind"] == "any"]
    assert list(runs["fault"]) == ["weight", "weight", "activation", "activation", "gradient", "gradient"]
    assert (table[table["found"] == "defect"]["relative_error"] > 0).all()


def test_a_tolerance_that_is_set_decides() -> None:
    torch.manual_seed(0)
    _, table = measured(Product().eval(), torch.randn(16, 64), rtol=1e-3)
    for error in table["relative_error"]:
        assert 0.99e-3 < error < 1.25e-3


@pytest.mark.parametrize(("dtype", "points"), [(torch.float32, False), (torch.bfloat16, True)])
def test_what_a_reported_error_says_holds_of_a_backend(dtype: torch.dtype, points: bool) -> None:
    """A backend whose last result is too large by the reported error is a defect; by half of it, or by less, none."""
    torch.manual_seed(0)
    module, x = Net().eval().to(dtype), torch.randn(64, 8, dtype=dtype)
    found, table = measured(module, x)
    assert found.verdict == "exact"
    assert torch.equal(found.test["output"]["output"], found.reference["output"]["output"])  # not a planted one
    (row,) = table[(table["site"] == "last") & (table["kind"] == "any")].itertuples()
    verdicts = []
    for by in (row.relative_error, row.passed, row.relative_error / 2):
        torch._dynamo.reset()
        verdicts.append(diff(module, (x,), backend=Scaled(by), draws=1).verdict)
    assert verdicts[0] == "defect" and "defect" not in verdicts[1:]
    assert ("only localization" in found.message) == points, found.message


def test_what_no_output_depends_on_is_told_as_untestable() -> None:
    torch.manual_seed(0)
    found, table = measured(Attention().eval(), torch.randn(2, 8, 16), sensitivity_sites=6)
    key = table[table["site"] == "key.bias"]
    assert list(key["found"]) == ["no_effect", "no_effect"] and key["relative_error"].isna().all()
    others = table[(table["site"] != "key.bias") & (table["kind"] == "any")]
    assert len(others) > 8 and set(others["found"]) == {"defect"}
    assert "could not be tested, for float64 shows no effect either (key.bias)" in found.message


def test_what_noise_hides_at_any_size_is_no_untestable_place() -> None:
    torch.manual_seed(0)
    module = Product().eval()
    found, table = measured(module, torch.randn(16, 64), factor=1e9)
    assert set(table["found"]) == {"passes"} and set(table["passed"]) == {2.0}
    assert "an error of 200 % and more in one weight" in found.message and "could not be tested" not in found.message
    assert "localization" not in found.message  # float32's noise hides no such error: the limit does


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_model_its_inputs_and_the_generators_are_left_as_found(mode: str) -> None:
    torch.manual_seed(0)
    module, x = Net(0.5).train(mode == "training"), torch.randn(32, 8)
    before, given, state = (
        {name: t.clone() for name, t in module.state_dict().items()},
        x.clone(),
        torch.get_rng_state(),
    )
    measured(module, x, mode=mode, sensitivity_sites=2, perturbations=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(x, given) and torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_without_being_asked_and_where_the_comparison_fails_nothing_is_planted() -> None:
    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(6, 8)
    torch._dynamo.reset()
    assert FILE not in diff(module, (x,), backend="aot_eager").tables
    torch._dynamo.reset()
    assert FILE not in diff(module, (x,), backend=Scaled(0.1), sensitivity=True).tables


def test_bisect_plants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def planting(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("inductor_debug.stages.kerneldiff.diff.measure", planting)
    torch.manual_seed(0)
    torch._dynamo.reset()
    options = KernelDiffConfig(sensitivity=True)
    assert bisect(Net().eval(), (torch.randn(6, 8),), backend=Scaled(0.1), kerneldiff=options).fault is not None


def test_the_stage_stores_the_table_and_the_report_shows_the_places() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    case = Case.of(Net().eval(), (torch.randn(6, 8),))
    settings = Settings(ModelConfig("net"), backend=BackendConfig("aot_eager", "aot_eager"))
    artifacts = MemoryArtifacts()
    options = KernelDiffConfig(sensitivity=True, sensitivity_sites=2, plots=False, store_baseline=False)
    result = KernelDiffStage(options).run(StageContext(settings, artifacts, {"case": case}))
    artifacts.add(result)
    rows = files.SENSITIVITY.records(artifacts)
    assert rows is not None and len(rows) == 8 and "faults planted in eager" in result.message
    shown = numerics(artifacts, result.summary["numerics"], 3)
    assert shown is not None and [row["kind"] for row in shown["sensitivity"]["rows"]] == ["any"] * 3
    assert shown["sensitivity"]["rows_total"] == 4
    summary = {"run": {}, "verdict": "passed", "stages": [], "numerics": result.summary["numerics"]}
    page = ReportStage(ReportConfig()).run(StageContext(settings, MemoryArtifacts(artifacts.content | {
        "summary.json": summary, "manifest.json": {"versions": {}}
    }))).artifacts["report/report.html"]  # fmt: skip
    assert "How small an error this comparison calls a defect" in page and "native_batch_norm" in page


def test_a_reference_that_rounds_otherwise_is_made_once_for_all_planted_faults() -> None:
    torch.manual_seed(0)
    told: list[str] = []
    measured(Net().eval(), torch.randn(6, 8), progress=told.append)
    made = [text for text in told if "that round otherwise" in text]
    assert 6 <= len(made) <= 12 and len(made) == len(set(made))
    assert not [text for text in told if text.startswith("rounding the reference")]
