"""Eager against TorchInductor over torch's operator database: what the comparison calls a defect is one."""

import logging
from collections import Counter
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.settings import BackendConfig, Settings

from inductor_disagreements import DISAGREEMENTS, Disagreement  # isort: skip
from operator_draw import Drawn, draw, leaves, wide  # isort: skip

DATA = "tests/operators/inductor_disagreements.py"
BATCH = 32
"""Operators that are compiled into one graph: one start of the compiler costs more than one kernel."""
REFUSED = (TorchDynamoException, RuntimeError, AssertionError)
"""What torch.compile raises where it can't compile, and what its code raises where an assumption did not hold."""
OPTIONS = {"compile_threads": 1, "fallback_random": True}


class Operators(torch.nn.Module):
    """Some operators, each on its own inputs."""

    def __init__(self, batch: list[Drawn]) -> None:
        super().__init__()
        self.functions = [drawn.op.op for drawn in batch]

    def forward(self, inputs: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        if len(inputs) == 1:  # outside a loop, a graph break leaves what surrounds it to the compiler
            ((input, args, kwargs),) = inputs
            return [self.functions[0](input, *args, **kwargs)]
        return [
            function(input, *args, **kwargs)
            for function, (input, args, kwargs) in zip(self.functions, inputs, strict=True)
        ]


def run(batch: list[Drawn], *, fullgraph: bool, **options: Any) -> list[Any]:
    torch._dynamo.reset()
    compiled = torch.compile(Operators(batch), fullgraph=fullgraph, **options)
    with torch.no_grad():
        results: list[Any] = compiled([drawn.inputs() for drawn in batch])
    return results


def captured(drawn: Drawn) -> bool:
    """Whether Dynamo makes one graph of it, so that it can share one with others."""
    try:
        run([drawn], fullgraph=True, backend="eager")
    except REFUSED:
        return False
    return True


def lowered(batch: list[Drawn]) -> list[Any]:
    """Results of the batch; one that Inductor refuses is halved, down to one operator with graph breaks in it."""
    try:
        return run(batch, fullgraph=len(batch) > 1, options=OPTIONS)
    except REFUSED as error:
        if len(batch) == 1:
            return [error]
    middle = len(batch) // 2
    return lowered(batch[:middle]) + lowered(batch[middle:])


def verdict(drawn: Drawn, result: Any) -> str:
    """The comparison's; where that is bad, the stage's, which looks again whether the operator is ill-conditioned."""
    if isinstance(result, REFUSED):
        return f"raised {result}"
    difference = KernelDiff()
    difference.compare_leaves(leaves(drawn.eager()), leaves(result), wide(leaves(drawn.gold())), kind="output")
    if all(not row.failed for row in difference.rows):
        return difference.verdict if any(row.elements for row in difference.rows) else "empty"
    return of_the_stage(drawn)


def of_the_stage(drawn: Drawn) -> str:
    torch._dynamo.reset()
    case = Case(drawn.name, Operators([drawn]), ([drawn.inputs()],), {}, "inference", drawn.dtype, torch.device("cpu"))
    settings = Settings(ModelConfig(drawn.name), backend=BackendConfig())
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    found = KernelDiffStage(KernelDiffConfig(plots=False)).run(context).message
    return found if found.startswith(("defect", "not_established")) else f"{found.partition(':')[0]} (stage)"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_inductor_agrees_with_eager_on_every_operator(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.CRITICAL)  # a graph break that is expected is not worth thousands of lines
    drawn = list(draw())
    whole = [each for each in drawn if captured(each)]
    apart = [each for each in drawn if each not in whole]
    batches = [whole[start : start + BATCH] for start in range(0, len(whole), BATCH)] + [[each] for each in apart]
    found = {
        each.name: verdict(each, got) for batch in batches for each, got in zip(batch, lowered(batch), strict=True)
    }
    counts = Counter(text.partition(":")[0] for text in found.values())
    with capsys.disabled():
        print(f"\n{len(drawn)} operators, {len(apart)} of them not one graph (mostly left to eager): {dict(counts)}")
    bad = {name: text for name, text in found.items() if text.startswith(("defect", "not_established", "raised"))}
    known = {name for each in DISAGREEMENTS for name in each.operators}
    assert len(found) == len(drawn) >= 600
    assert set(bad) == known, {name: bad.get(name, "no defect any more") for name in set(bad) ^ known}


@pytest.mark.slow
@pytest.mark.parametrize("known", DISAGREEMENTS, ids=lambda known: known.operators[0])
def test_a_known_disagreement_is_still_there(known: Disagreement) -> None:
    torch._dynamo.reset()
    expected, got = known.function(*known.inputs()), torch.compile(known.function)(*known.inputs())
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError:
        difference = KernelDiff()
        difference.compare(expected, got)
        assert difference.verdict == "defect"
        return
    pytest.fail(f"torch {torch.__version__} does not do this ({known.what}): delete its entry in {DATA}")
