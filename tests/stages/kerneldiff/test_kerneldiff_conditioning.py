"""A branch within rounding is not a defect; a wrong result is one, branch or no branch."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.other_rounding import judged
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.kerneldiff.rounding_floor import RoundingFloor
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.sides.running import collect

EDGE = 2.0**-24  # rounding noise of numbers near 1


class Gate(nn.Module):
    """x·w - 1 through a ReLU: the first element lies within rounding of the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.tail = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 + self.tail * torch.relu(x * self.weight - 1)


def gate() -> Case:
    return Case(
        name="gate",
        module=Gate().train(),
        args=(torch.tensor([1.0 + 2 * EDGE, 1.0, 1.0]),),
        kwargs={},
        mode="training",
        dtype=torch.float32,
        device=torch.device("cpu"),
        precision="cast",
        seed=0,
    )


def compared(case: Case, test_weight_gradient: torch.Tensor, draws: int = 32) -> dict[str, str]:
    """Verdict by gradient, where the test side's gradient of ``weight`` is the given one."""
    reference, gold = collect(case.run()), collect(case.to_gold().run())
    test = {name: gradient.clone() for name, gradient in reference["gradient"].items()}
    test["weight"] = test_weight_gradient
    difference = KernelDiff()
    difference.compare_leaves(reference["gradient"], test, gold["gradient"], kind="gradient")
    decide(
        "other rounding",
        difference.rows,
        judged(difference.rows, case, gold, {"gradient": test}, draws=draws),
        [],
    )
    return {row.path: row.verdict for row in difference.rows}


def flipped(case: Case) -> torch.Tensor:
    """The gradient of ``weight`` as a backend gives it whose ReLU fell on the other side of 0."""
    gradient = case.run().gradients["weight"].clone()
    assert gradient[0] != 0
    gradient[0] = 0
    return gradient


def test_a_flipped_branch_within_rounding_is_no_defect() -> None:
    case = gate()
    assert compared(case, flipped(case))["weight"] == "within_floor"


def test_without_other_rounding_the_floor_alone_would_call_it_one() -> None:
    case = gate()
    assert compared(case, flipped(case), draws=0)["weight"] == "defect"


def test_an_error_larger_than_the_jump_stays_a_defect() -> None:
    case = gate()
    assert compared(case, case.run().gradients["weight"] * 10)["weight"] == "defect"


def test_a_smooth_tensor_gets_no_second_chance() -> None:
    case = gate()
    case.args = (torch.tensor([2.0, 1.0, 1.0]),)
    assert compared(case, case.run().gradients["weight"] * 1.001)["weight"] == "defect"


class Wide(nn.Module):
    """A ReLU within rounding of 0, whose side moves the gradient of every weight by a percent or more."""

    def __init__(self, x: torch.Tensor, shift: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(256))
        self.size = (self.weight.detach().double() @ x.double()).item()
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.relu((self.weight @ x) / self.size - 1 + self.shift)
        return torch.cat([self.weight * x, 3 + gate.expand(1)])


@pytest.mark.parametrize(("fault", "verdict"), [("flip", "within_floor"), ("scale", "defect"), ("zeros", "defect")])
def test_only_an_error_like_the_jump_is_excused(fault: str, verdict: str) -> None:
    torch.manual_seed(1)
    x = torch.randn(256)
    cases = [
        Case("wide", Wide(x, shift).train(), (x,), {}, "training", torch.float32, torch.device("cpu"))
        for shift in (0.0, 1e-3, -1e-3)
    ]
    mine, *sides = (case.run().gradients["weight"] for case in cases)
    jumps = [((side - mine).norm() / mine.norm()).item() for side in sides]
    other, jump = sides[jumps.index(max(jumps))], max(jumps)
    assert 0.01 < jump < 0.5 and min(jumps) < 1e-2 * jump
    test = {"flip": other, "scale": mine * (1 + 2 * jump), "zeros": torch.where(torch.arange(256) < 6, 0.0, mine)}
    assert compared(cases[0], test[fault])["weight"] == verdict


class Mean(nn.Module):
    """A scalar that is a mean of many terms, so that its one draw of noise may come out near zero."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean()


def mean_verdicts(dtype: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
    """Verdicts over seeds where the test's mean is the same sum in another order, then changed."""
    verdicts = []
    for seed in range(40):
        module = Mean(seed).to(dtype).eval()
        case = Case("mean", module, (torch.randn(8, 64).to(dtype),), {}, "inference", dtype, torch.device("cpu"))
        reference, gold = collect(case.run()), collect(case.to_gold().run())
        test = change(case.run(lambda x, module=module: module(x.flip(0))).output)
        difference = KernelDiff()
        difference.compare_leaves(reference["output"], {"output": test}, gold["output"], kind="output")
        verdicts.append(difference.verdict)
        decide(
            "other rounding",
            difference.rows,
            judged(difference.rows, case, gold, {"output": {"output": test}}, draws=12),
            [],
        )
        verdicts[-1] += f" {difference.verdict}"
    return verdicts


def test_a_lucky_draw_of_the_noise_makes_no_defect() -> None:
    verdicts = mean_verdicts(torch.float32, lambda mean: mean)
    assert any(verdict.startswith("defect") for verdict in verdicts)  # by one draw's floor
    assert not any(verdict.endswith("defect") for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float32, 1.001), (torch.bfloat16, 2.0)])
def test_more_draws_do_not_excuse_a_wrong_scale(dtype: torch.dtype, wrong: float) -> None:
    assert mean_verdicts(dtype, lambda mean: mean * wrong).count("defect defect") >= 38  # the rest are near zero


def test_the_case_is_left_as_it_was() -> None:
    case = gate()
    before = [tensor.clone() for tensor in (*case.module.parameters(), *case.args)]
    compared(case, flipped(case))
    assert all(torch.equal(a, b) for a, b in zip(before, (*case.module.parameters(), *case.args), strict=True))


@pytest.mark.parametrize(("jump", "verdict"), [(2.5, "defect"), (10.0, "within_floor")])
def test_what_moves_by_less_than_the_limit_is_no_jump_that_excuses(jump: float, verdict: str) -> None:
    """An error of six floors, where moved golds differ by some floors at each element."""
    torch.manual_seed(0)
    gold = torch.randn(1000, dtype=torch.float64) * 100
    draws = torch.randn(4, 1000, dtype=torch.float64)
    reference, test = (gold + draws[0]).float(), (gold + 6 * draws[1].sign()).float()
    (row,) = KernelDiff().compare_leaves({"y": reference}, {"y": test}, {"y": gold}, kind="output")
    assert row.verdict == "defect" and 5 < (row.ratio or 0) < 7
    floor = RoundingFloor.of(row, gold)
    floor.add(gold + draws[2])
    floor.add_jump(gold + jump * draws[3].sign(), gold)
    found = floor.judged(row, test)
    assert found.verdict == verdict, found.message
