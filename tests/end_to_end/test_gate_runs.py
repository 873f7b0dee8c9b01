"""``inductor-debug compare A B`` as a gate, on real runs: B has a fault in a generated kernel."""

from collections.abc import Callable

import pytest
from command_line import SMALL, Finished
from stored_results import compare_as_json

STAGES = "stages=[capture,constrain,lower,kerneldiff]"
FAULT = "backend.inductor.cpp.inject_relu_bug_TESTING_ONLY=accuracy"


@pytest.mark.slow
def test_a_fault_in_a_kernel_is_worse_and_its_end_is_better(
    run: Callable[..., Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = (run(*SMALL, "accel=warn16", STAGES, *words) for words in ((), (FAULT,)))
    found = compare_as_json(right.directory, wrong.directory, capsys=capsys)
    worse = {row["what"] for row in found["tables"]["worse"]}
    assert {"verdict of the run", "stage kerneldiff", "output logits"} <= worse and "numerics" not in worse
    assert "values that end in aten.relu.default" in worse
    assert not any(what.startswith(("finding", "cost", "guards", "graph")) for what in worse)
    assert found["exit_code"] == 1
    back = compare_as_json(wrong.directory, right.directory, capsys=capsys)
    better = {row["what"] for row in back["tables"]["better"]}
    assert back["tables"]["worse"] == [] and "output logits" in better and "numerics" not in better
