"""The reference as a compiler may compute it: what it gives, and how far a floor follows it."""

import copy

import numpy
import pytest
import torch
from fault_models import Convolutional
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff import perturbation, perturbation_floor
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.sides import decomposed
from inductor_debug.stages.sides.decomposed import Decomposed, sequential_sum
from inductor_debug.stages.sides.running import Leaves, collect


def one_by_one(rows: numpy.ndarray) -> numpy.ndarray:
    total = rows[:, 0].copy()
    for column in range(1, rows.shape[1]):
        total = (total + rows[:, column]).astype(numpy.float32)
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sequential_sum_adds_one_after_another_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    terms = torch.randn(5, 3, 70).to(dtype)
    rows = terms.float().permute(1, 0, 2).reshape(3, -1)
    found = sequential_sum(terms, [0, -1])
    assert found.dtype == torch.float32
    assert found.tolist() == one_by_one(rows.numpy()).tolist()
    if dtype == torch.float32:
        assert not torch.equal(found, rows.sum(1))  # eager adds in blocks


def test_a_long_sequential_sum_goes_on_in_pieces_and_misses_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 10_000)
    monkeypatch.setattr(decomposed, "_PIECE", 3 * 1_024)
    assert sequential_sum(rows, [1]).tolist() == one_by_one(rows.numpy()).tolist()
    terms = torch.ones(2, 10_000)
    terms[:, -1] = 0.5
    assert sequential_sum(terms, [1]).tolist() == [9999.5, 9999.5]
    assert sequential_sum(terms.double(), range(2)).item() == 19999.0


NORMALIZATIONS = (
    nn.BatchNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False), nn.GroupNorm(2, 4), nn.LayerNorm([4, 5, 5]),
    nn.InstanceNorm2d(4, affine=True), nn.Softmax(1),
)  # fmt: skip


@pytest.mark.parametrize("layer", NORMALIZATIONS, ids=lambda layer: type(layer).__name__)
def test_normalizations_add_sequentially_and_keep_their_statistics(layer: nn.Module) -> None:
    torch.manual_seed(0)
    mine, x = copy.deepcopy(layer), torch.randn(16, 4, 5, 5) + 1
    expected = layer(x)
    with Decomposed():
        found = mine(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine.state_dict(), layer.state_dict())
    assert isinstance(layer, nn.Softmax) or not torch.equal(found, expected)


@pytest.mark.parametrize("dims", [None, [1], [0, 2]])
def test_sums_and_means_are_sequential_in_it_and_keep_shape_and_dtype(dims: list[int] | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 300, 6, dtype=torch.bfloat16)
    for function in (torch.sum, torch.mean):
        expected = function(x) if dims is None else function(x, dims, keepdim=True)
        with Decomposed():
            found = function(x) if dims is None else function(x, dims, keepdim=True)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        torch.testing.assert_close(found, expected)


def training(module: nn.Module, x: torch.Tensor) -> Case:
    return Case("case", module.train(), (x,), {}, "training", torch.float32, torch.device("cpu"))


def test_random_numbers_are_those_of_the_reference() -> None:
    torch.manual_seed(0)
    case = training(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), torch.randn(16, 8))
    expected = case.run()
    with Decomposed():
        found = case.run()
    assert torch.equal(found.output == 0, expected.output == 0)
    assert bool((expected.output == 0).any())


def decomposed_leaves(case: Case) -> Leaves:
    """The step as a compiler's code computes it that adds in float32."""
    with Decomposed():
        return collect(case.run())


def normalized(seed: int) -> Case:
    torch.manual_seed(seed)
    return training(Convolutional(), torch.randn(4, 3, 8, 8))


def judged(case: Case, test: Leaves) -> KernelDiff:
    reference, gold = collect(case.run()), collect(case.to_gold().run())
    difference = KernelDiff()
    for kind in ("output", "loss", "gradient"):
        difference.compare_leaves(*(side.get(kind, {}) for side in (reference, test, gold)), kind=kind)
    judgements = perturbation.judged(difference.rows, case, gold, test, draws=12)
    decide("perturbed references", difference.rows, judgements, [])
    return difference


def defects() -> list[int]:
    """Seeds for which the step with sequential sums is a defect."""
    return [seed for seed in range(8) if judged(normalized(seed), decomposed_leaves(normalized(seed))).failed]


def test_sequential_sums_in_a_normalization_are_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not defects()
    monkeypatch.setattr(perturbation_floor, "LEEWAY", 0.0)  # eager's own noise alone
    monkeypatch.setattr(perturbation_floor, "SUMS", ())
    assert defects()


def test_eight_times_eagers_noise_in_an_output_is_a_defect_all_the_same() -> None:
    case = normalized(0)
    reference, gold = collect(case.run()), collect(case.to_gold().run())
    exact = gold["output"]["output"]
    noise = (reference["output"]["output"].double() - exact).square().mean().sqrt()
    torch.manual_seed(1)
    error = torch.randn(exact.shape, dtype=torch.float64)
    reference["output"]["output"] = (exact + error * 8 * noise / error.square().mean().sqrt()).float()
    assert verdict_of(case, reference, "output") == "defect"


@pytest.mark.parametrize("name", ["norm.weight", "norm.bias", "first.weight", "head.weight"])
def test_a_gradient_that_is_wrong_by_a_thousandth_is_a_defect(name: str) -> None:
    case = normalized(0)
    test = decomposed_leaves(case)
    test["gradient"][name] = test["gradient"][name] * 1.001
    assert verdict_of(case, test, name) == "defect"


def verdict_of(case: Case, test: Leaves, path: str) -> str:
    return next(row for row in judged(case, test).rows if row.path == path).verdict


class WideSum(nn.Module):
    """A sum in float64 of float32 terms that nearly cancel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dtype=torch.float64).float().reshape(1)


def test_a_sum_that_the_model_makes_in_float64_stays_one() -> None:
    torch.manual_seed(0)
    half = torch.rand(100_000) + 9.5
    x = torch.cat([half, -half[torch.randperm(100_000)]])
    x[0] += 2**-8
    case = Case("sum", WideSum().eval(), (x,), {}, "inference", torch.float32, torch.device("cpu"))
    test = collect(case.run())
    test["output"]["output"] = test["output"]["output"] + 0.5
    row = judged(case, test).rows[0]
    assert row.verdict == "defect", row.message


def test_a_defect_tells_what_more_runs_grant() -> None:
    case = normalized(0)
    test = decomposed_leaves(case)
    test["gradient"]["norm.weight"] = test["gradient"]["norm.weight"] * 1.00001
    (row,) = (row for row in judged(case, test).failed if row.path == "norm.weight")
    assert "times that of 7 runs at weights and inputs some units of roundoff apart, plain sums included" in row.message
    assert "every element is within atol=1e-05, rtol=1.3e-06" in row.message
