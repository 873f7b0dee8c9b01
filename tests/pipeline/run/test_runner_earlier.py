"""What a stage is told of those before it, and of a run that was cut short."""

from pathlib import Path

import pytest
from runner_support import execute

from inductor_debug.pipeline.run.plan import batch_of

pytestmark = pytest.mark.usefixtures("stages_on_path")


def test_a_stage_knows_how_each_before_it_ended_across_processes(tmp_path: Path) -> None:
    before = ("raises_wrapped", "segfaults", "refuses", "killed", "hangs", "plain")
    outcome = execute(tmp_path / "run", *before, "recalls", "after", timeout_s=3)
    told = outcome.json("recalls/told.json")
    assert told["told"] == {
        "raises_wrapped": ["crashed", "error RuntimeError KeyError"],
        "segfaults": ["crashed", "signal 11"],
        "refuses": ["failed", ""],  # the user's mistake
        "killed": ["crashed", ""],  # from outside
        "hangs": ["timed_out", "hang"],
        "plain": ["passed", ""],
    }
    assert told["time_s"] == 3


def test_the_same_configuration_goes_on_from_what_is_known_and_another_does_not(tmp_path: Path) -> None:
    kept = tmp_path / "run" / ".unfinished" / "recalls"
    first = execute(tmp_path / "run", "recalls")
    assert first.json("recalls/told.json")["left"] == []
    assert [path.name for path in kept.iterdir()] == ["known.jsonl"]  # a tensor takes too much to be kept
    assert not any(".unfinished" in name for name in first.json("manifest.json")["files"])
    other = execute(tmp_path / "run", "recalls", seed=1, overwrite=True)
    assert other.json("recalls/told.json")["left"] == []
    again = execute(tmp_path / "run", "recalls", seed=1, overwrite=True)
    assert again.json("recalls/told.json")["left"] == ["known.jsonl"]
    assert not kept.parent.exists()  # nothing is known any more


def test_what_runs_either_way_shares_its_neighbours_process() -> None:
    assert batch_of(["capture", "kerneldiff", "minify", "report"], ["X"]) == [
        "capture", "kerneldiff", "minify", "report"
    ]  # fmt: skip
    assert batch_of(["benchmark", "minify", "report"], ["X"]) == ["benchmark", "minify", "report"]
    assert batch_of(["minify", "benchmark", "kerneldiff"], ["X"]) == ["minify", "benchmark"]
    assert batch_of(["kerneldiff", "benchmark", "minify"], ["X"]) == ["kerneldiff"]
