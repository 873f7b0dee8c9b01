"""A run in which what was found is mended."""

import torch
from test_localize_strides import Dense
from torch import Tensor, nn

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.engine import Engine
from inductor_debug.stages.localize.mended import Judged


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
