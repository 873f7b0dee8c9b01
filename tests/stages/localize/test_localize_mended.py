"""A run in which what was found is mended."""

import math

import pytest
import torch
from test_localize_strides import Dense
from torch import Tensor, nn

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.localization import Culprit, MendedRun, Place
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize.accounting.links import Ends
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.engine import Engine
from inductor_debug.stages.localize.mended import Judged, estimated


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (2 * x).sin()


def test_an_input_that_is_read_wrongly_as_it_is_laid_out_is_given_contiguous() -> None:
    case = Case.of(Net(), (torch.randn(4, 5).t(),), {}, "inference")

    def judge(adapter: AcceleratorAdapter) -> Judged:
        torch._dynamo.reset()
        right = torch.equal(case.run(compile_case(case, adapter)).output, Net()(*case.args))
        return Judged("pass" if right else "defect", None)

    assert judge(Dense()).verdict == "defect"
    torch._dynamo.reset()
    found = Engine(case, Dense(), LocalizeConfig(), factor=4.0).run(failed=True, judge=judge).localization
    (culprit,) = found.culprits
    assert culprit.place.target == "placeholder" and not culprit.neighbours
    assert [run.verdict for run in found.mended] == ["pass"]
    told = "With that computed right and the rest by the backend, the verdict is pass."
    assert told in found.message.split("\n")


def culprit(name: str) -> Culprit:
    return Culprit(Place("g0.forward", name, "aten.relu.default", [name]), "operation", 9.0, None, 1)


def run_without(*names: str, ratio: float | None) -> MendedRun:
    return MendedRun([f"g0.forward {name}" for name in names], "defect", ratio)


@pytest.mark.parametrize(
    ("runs", "floors", "held"),
    [
        ([run_without("a", ratio=95.0)], 100.0, True),
        ([run_without("a", ratio=74.0)], 100.0, False),
        ([run_without("a", "b", ratio=1.0)], 100.0, True),  # both together: no estimate is of that
        ([run_without("a", ratio=None), run_without("b", ratio=50.0)], 100.0, True),
        ([run_without("c", ratio=1.0)], 100.0, True),
        ([run_without("a", ratio=74.0)], None, True),
        ([run_without("a", ratio=74.0)], math.inf, True),
        ([], 100.0, True),
    ],
)
def test_estimates_are_told_where_no_run_says_otherwise(
    runs: list[MendedRun], floors: float | None, held: bool
) -> None:
    remains = {("g0.forward", "a"): 0.999, ("g0.forward", "b"): 0.5}
    ends = Ends(outputs={"output": torch.ones(1)})
    found, told = estimated([culprit("a"), culprit("b"), culprit("c")], remains, runs, floors, ends)
    assert [item.remains for item in found] == ([0.999, 0.5, None] if held else [None] * 3)
    wrong = "the estimate of what remains without one operation: of a it was 99.9 %, and a run with it right had 74 %"
    assert told == ([] if held else [wrong])


def test_of_several_results_no_run_contradicts_an_estimate() -> None:
    ends = Ends(outputs={"output": torch.ones(1)}, gradients={"weight": torch.ones(1)})
    found, told = estimated([culprit("a")], {("g0.forward", "a"): 0.5}, [run_without("a", ratio=90.0)], 100.0, ends)
    assert found[0].remains == 0.5 and told == []
