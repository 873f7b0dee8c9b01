"""Integers and bools that a model makes of floating-point numbers: near a tie they may fall on either side."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_sums import Decomposed
from torch import nn
from written_state import Base, Scaled, compared, verdict_of

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff import other_rounding
from inductor_debug.stages.kerneldiff.discrete_outputs import DiscreteOutput
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.sides.running import Leaves, collect


class Scores(nn.Module):
    """Normalized, projected, and made into whole numbers by ``last``."""

    def __init__(self, last: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.norm, self.head, self.last = nn.LayerNorm(64), nn.Linear(64, 1000), last

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.head(self.norm(x)))


LAST = {
    "sort": lambda scores: scores.sort(-1)[1],
    "levels": lambda scores: (scores * 30).round().to(torch.int8),
    "mask": lambda scores: scores > 0,
}


def case_of(last: str, dtype: torch.dtype = torch.float32, rows: int = 256) -> Case:
    torch.manual_seed(0)
    module, x = Scores(LAST[last]).to(dtype).eval(), torch.randn(rows, 64).to(dtype)
    return Case("scores", module, (x,), {}, "inference", dtype, torch.device("cpu"))


def judged(case: Case, test: Leaves, factor: float | None = 4.0, draws: int = 6) -> TensorComparison:
    reference, gold = collect(case.run()), collect(case.to_gold().run())
    difference = KernelDiff()
    difference.compare_leaves(*(side["output"] for side in (reference, test, gold)), kind="output")
    judgements = other_rounding.judged(difference.rows, case, gold, test, draws=draws, factor=factor)
    decide("other rounding", difference.rows, judgements, [])
    (row,) = difference.rows
    return row


def otherwise(case: Case) -> Leaves:
    """The step with other rounding, and no fault: sums in another order, or in float32 where the case is narrower."""
    if case.dtype == torch.float32:
        with Decomposed():
            return collect(case.run())
    wide = copy.deepcopy(case.module).float()
    with torch.no_grad():
        return {"output": {"output": wide(case.args[0].float())}}


CASES = [("sort", torch.float32), ("levels", torch.bfloat16), ("mask", torch.bfloat16)]


@pytest.mark.parametrize(("last", "dtype"), CASES)
def test_values_within_rounding_of_a_tie_are_no_defect(last: str, dtype: torch.dtype) -> None:
    case = case_of(last, dtype)
    test = otherwise(case)
    row = judged(case, test)
    assert row.mismatched and row.verdict == "within_floor", row.message
    assert row.message.startswith("values within rounding of a tie")
    assert judged(case, test, factor=None).verdict == "defect"  # the noise is not asked


@pytest.mark.parametrize(("last", "dtype"), [*CASES, ("levels", torch.float32), ("mask", torch.float32)])
def test_other_integers_are_a_defect(last: str, dtype: torch.dtype) -> None:
    case = case_of(last, dtype, rows=32)
    right = collect(case.run())["output"]["output"]
    wrong = [~right if right.dtype == torch.bool else right + 1, torch.zeros_like(right), right.clone()]
    wrong[2][3] = right[4]
    if last == "levels":
        wrong += [right.clone()]
        wrong[3].view(-1)[:20] = 127
    for values in wrong:
        row = judged(case, {"output": {"output": values}}, draws=3)
        assert row.verdict == "defect", row.message


@pytest.mark.parametrize("place", range(6))
def test_a_tie_that_one_run_of_several_crosses_is_no_defect(place: int) -> None:
    gold = torch.zeros(1000, dtype=torch.int64)
    crossed, many = gold.clone(), gold.clone()
    crossed[7], many[:5] = 1, 1
    found = DiscreteOutput("output", "output", gold, factor=4.0)
    for number in range(6):
        found.add(crossed if number == place else gold)
    for test, verdict in ((crossed, "within_floor"), (many, "defect")):
        difference = KernelDiff()
        (row,) = difference.compare_leaves({"output": gold}, {"output": test}, {"output": gold}, kind="output")
        assert row.verdict == "defect" and found.judged(row, test).verdict == verdict


def test_how_many_may_be_wrong_is_the_rows_resolution() -> None:
    case = case_of("sort", torch.bfloat16)  # half of the places are ties
    row = judged(case, {"output": {"output": collect(case.run())["output"]["output"] + 1}})
    assert row.verdict == "within_floor" and row.resolution > 1


class Positions(Base):
    """Whole numbers that depend on no rounding, beside the scores."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), torch.arange(6) * 7


class OneMore(Scaled):
    """A backend that adds one to whole numbers."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        return lambda *args: tuple(out if out.is_floating_point() else out + 1 for out in gm(*args))


class LastOnly(Scores):
    def __init__(self) -> None:
        super().__init__(LAST["sort"])


def test_a_run_tells_ties_from_wrong_numbers() -> None:
    result = compared(Positions(), torch.ones(6, 8), adapter=OneMore)
    assert verdict_of(result, "output", "output[1]") == "defect", result.message
    torch.manual_seed(0)
    result = compared(LastOnly(), torch.randn(256, 64), adapter=OneByOne)
    assert verdict_of(result, "output", "output") == "within_floor", result.message
    result = compared(LastOnly(), torch.randn(256, 64), adapter=OneByOne, atol=0.0)
    assert verdict_of(result, "output", "output") == "defect", result.message


def test_ties_say_nothing_of_random_numbers() -> None:
    class Dropped(LastOnly):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(nn.functional.dropout(x, 0.1, training=True))

    torch.manual_seed(0)
    result = compared(Dropped(), torch.randn(256, 64), adapter=OneByOne)
    assert verdict_of(result, "output", "output") == "within_floor", result.message


class OneByOne(Scaled):
    """Right, with sums in another order."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with Decomposed():
                return gm(*args)

        return run
