"""A failure that no graph shows is looked for in modules and their calls."""

from typing import Any

import minify_asked
import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.minify.api import minify
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.known import Known
from inductor_debug.stages.minify.stage import MinifyStage
from inductor_debug.stages.settings import BackendConfig, Settings


class Counting(torch.nn.Module):
    """Multiplies by how often it was called, which Dynamo compiles anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.counting, self.second = torch.nn.Linear(4, 4), Counting(), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.counting(torch.relu(self.first(x))))


@pytest.mark.slow
def test_a_storm_is_the_module_and_the_calls_that_bring_it() -> None:
    further: list[tuple[Any, Any]] = [((torch.randn(2, 4),), {}) for _ in range(5)]
    found = minify(Net().eval(), (torch.randn(2, 4),), backend=minify_asked.slow, calls=further, dynamic=False,
                   config=MinifyConfig(budget_s=100))  # fmt: skip
    assert (found.failure, found.verified, found.node) == ("storm on attribute calls", True, "counting"), found.message
    assert "torch.nn.Linear" not in found.script and "self.calls += 1" in found.script


@pytest.mark.slow
def test_a_run_leaves_a_script_of_a_storm_that_guards_saw() -> None:
    case = Case.of(Net().eval(), (torch.randn(2, 4),), {}, "inference")
    guards = StageRecord("guards", "passed", 1.0, "", summary={"guards": {"recompiling": {"repeat": ["static"]}}})
    earlier = {"guards": guards, "kerneldiff": StageRecord("kerneldiff", "passed", 1.0, "")}
    stored = MemoryArtifacts({files.DIAGNOSIS.path: {"verdict": "exact"}})
    settings = Settings(ModelConfig("net"), backend=BackendConfig("eager"))
    result = MinifyStage(MinifyConfig()).run(StageContext(settings, stored, {"case": case}, earlier=earlier))
    (record,) = result.summary["repros"]
    assert (result.status, record.failure_class, record.verified) == ("passed", "storm", True), result.message
    assert record.path == "repros/minified-module-counting.py" and record.failure == "storm on attribute calls"


@pytest.mark.parametrize(
    ("expected", "failure", "same"),
    [
        ("defect", "defect after other calls", True),
        ("defect", "storm on attribute calls", False),
        ("hang", "hang", True),
    ],
)
def test_wrong_numbers_of_later_calls_are_wrong_numbers(expected: str, failure: str, same: bool) -> None:
    assert Known("kerneldiff", expected).is_it(failure) is same
