"""The stage ``guards`` from the command line: numbers among the inputs, and the project's three models."""

from collections.abc import Callable
from typing import Any

import pytest
from command_line import Finished
from guard_models import TOLD_ONCE, WITHOUT_CODE


def outcomes(finished: Finished) -> dict[tuple[str, int], tuple[str, ...]]:
    """(variation, step) → its outcomes under static, automatic and dynamic sizes."""
    table = finished.table("guards/variations.csv")
    return {(row.variation, row.step): (row.static, row.automatic, row.dynamic) for row in table.itertuples()}


def test_a_model_with_numbers_among_its_inputs(run: Callable[..., Finished]) -> None:
    finished = run(
        "model=custom", "model.build._target_=small_models.rolled", "stages=[guards]",
        "stages.guards.vary=[batch,contiguity]", "stages.guards.dims.batch.x=0",
    )  # fmt: skip
    assert finished.code == 0, finished.output
    assert finished.statuses() == {"guards": "passed"}
    assert outcomes(finished) == {
        ("repeat", 1): ("reused", "reused", "reused"),
        ("batch", 1): ("recompiled", "recompiled", "reused"),
        ("batch", 2): ("recompiled", "reused", "reused"),
        ("contiguity", 1): ("recompiled", "recompiled", "recompiled"),
    }
    (graph,) = finished.json("guards/guards.json")["graphs"]
    numbers = {guard["name"]: guard for guard in graph["guards"] if guard["type"] == "CONSTANT_MATCH"}
    assert {name: (guard["code"], guard["dynamic"]) for name, guard in numbers.items()} == {
        "L['shift']": (["L['shift'] == 3"], "relaxed"),
        "L['scale']": (["L['scale'] == 0.5"], "relaxed"),
    }


BATCHES = {("batch", 1): ("recompiled", "recompiled", "reused"), ("batch", 2): ("recompiled", "reused", "reused")}
LENGTHS = {("length", step): outcome for (_, step), outcome in BATCHES.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "vary", "expected"),
    [
        (["model=resnet18", "model.image_size=64"], "[batch]", BATCHES),
        (["model=bert", "model.build.layers=1", "model.sequence_length=32"], "[batch,length]", BATCHES | LENGTHS),
        (["model=ssm", "model.build.layers=1", "model.sequence_length=32"], "[batch]", BATCHES),
    ],
    ids=["resnet18", "bert", "ssm"],
)
def test_the_projects_models_take_any_batch_with_dynamic_shapes(
    arguments: list[str], vary: str, expected: dict[Any, Any], run: Callable[..., Finished]
) -> None:
    """A batch of 4: torch makes constants of the sizes 0 and 1 even where it is told to make all symbolic."""
    finished = run(*arguments, "model.batch_size=4", "stages=[guards]", f"stages.guards.vary={vary}")
    assert finished.code == 0, finished.output
    assert finished.statuses() == {"guards": "passed"}
    assert outcomes(finished) == {("repeat", 1): ("reused", "reused", "reused")} | expected
    found = finished.json("guards/guards.json")
    assert found["not_established"] == [] and found["breaks"] == [] and found["limits"] == []
    (graph,) = found["graphs"]
    inputs = [guard for guard in graph["guards"] if guard["type"] == "TENSOR_MATCH" and guard["dynamic"] == "relaxed"]
    assert inputs and all(guard["size"][0] == 4 and "size=[None" in guard["becomes"][0] for guard in inputs)
    assert {guard["dynamic"] for guard in graph["guards"]} == {"kept", "relaxed"}
    with_code = {guard["type"] for guard in graph["guards"] if guard["code"]}
    without = {guard["type"] for guard in graph["guards"] if not guard["code"]}
    assert without <= {*WITHOUT_CODE, *(kind for kind in TOLD_ONCE if kind in with_code)}
    assert not with_code & WITHOUT_CODE.keys()
