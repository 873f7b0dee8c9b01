"""Rows judged by noise that was measured once have the verdicts that runs of their own give."""

import dataclasses
import itertools
from collections import Counter

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.kept_noise import KeptNoise
from inductor_debug.stages.kerneldiff.other_rounding import judged
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.sensitivity.planting import planted
from inductor_debug.stages.sensitivity.sites import weights
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.gold import gold_side


class Branching(nn.Module):
    """Branches, a mean of few elements, and indices: what runs with other rounding are for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.norm(self.first(x)).relu()
        scores = self.last(hidden) - 1e-6 * hidden.sum()
        return {"scores": scores, "best": (scores * 1e3).round().long(), "mean": scores.mean()}


class Stepping(nn.Module):
    """A step within rounding of some elements, so that float64 itself jumps there."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), 1.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        return torch.where(y > 1, y + 0.01, y)


@pytest.mark.slow
def test_kept_noise_gives_the_verdicts_of_runs_of_their_own() -> None:
    """Which errors noise explains depends on the machine's kernels: both verdicts are asked of all cases together."""
    found: Counter[tuple[str, str]] = Counter()
    cases = itertools.product((0, 1), ("inference", "training"), (torch.float32, torch.bfloat16))
    for seed, mode, dtype in cases:
        torch.manual_seed(seed)
        module = Branching().train(mode == "training").to(dtype)
        case = Case.of(module, (torch.randn(256, 8).to(dtype),), mode=mode)
        found += judged_both_ways(case, (2, 3, 4, 4.5, 6, 7))
    assert {"defect", "within_floor"} <= {verdict for verdict, _ in found}, found


def test_an_error_that_a_jump_explains_is_excused_by_kept_noise_too() -> None:
    torch.manual_seed(0)
    x = (1 + torch.randn(3, 8) * 3e-6) / 1.1
    found = judged_both_ways(Case.of(Stepping().eval(), (x,)), (4, 5, 14))
    assert {bound for _, bound in found} >= {"conditioning"} and any(verdict == "defect" for verdict, _ in found), found


def judged_both_ways(case: Case, steps: tuple[float, ...]) -> Counter[tuple[str, str]]:
    """Verdicts and bounds of planted errors of so many powers of two of the roundoff, the same by both ways."""
    reference = sides.run_side("reference", case, lambda: case.module)
    gold = gold_side(case, wanted=True, drew=False)

    def compared(test: sides.Side) -> list[TensorComparison]:
        difference = KernelDiff(roundoff=case.unit_roundoff)
        sides.keep_changed(case, reference, test, gold)
        for kind in reference.leaves:
            difference.compare_leaves(*(side.leaves.get(kind, {}) for side in (reference, test, gold)), kind=kind)
        return difference.rows

    compared(dataclasses.replace(reference))
    made: list[str] = []
    kept = KeptNoise.measured(case, reference.leaves, gold.leaves, KernelDiffConfig(), made.append)
    assert kept is not None
    found: Counter[tuple[str, str]] = Counter()
    for site in weights(case)[:2]:
        for error in (case.unit_roundoff * 2**step for step in steps):
            test = planted(case, site, error)
            assert test is not None
            rows = compared(test)
            own = judged(rows, case, gold.leaves, test.leaves, draws=12, factor=4.0)
            by_kept = kept.judged(rows, test.leaves)
            verdicts = {index: judgement.verdict for index, judgement in own.items()}
            assert verdicts == {index: by_kept[index].verdict for index in own}
            found.update((judgement.verdict, judgement.bound) for judgement in own.values())
    assert 6 <= len(made) <= 12
    return found
