"""Whether kept results stand, where the run gives a variable to the processes of some stages and not to others.

On CUDA each run does so: what is timed has a process of its own, without it. Here runs on the CPU do.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from composing import compose

from inductor_debug.pipeline.cache.folders import shared_cache
from inductor_debug.pipeline.run import runner, standing

MODEL = """
import os

import torch

os.environ.setdefault("MY_VARIABLE", "mine")
os.environ.get("CUBLAS_WORKSPACE_CONFIG")


def build():
    return torch.nn.Linear(8, 8), (torch.randn(2, 8),)
"""
SET = "CUBLAS_WORKSPACE_CONFIG"
WORDS = ("model=custom", "model.build._target_=mine.build", "model.name=mine", "backend=aot_eager")
SHORT = ("stages.benchmark.processes=2", "stages.benchmark.repeats=3")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    """A working directory with a model, in which runs set the variable."""
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(SET, raising=False)
    for module in (runner, standing):
        monkeypatch.setattr(module, "for_reproduction", lambda *_: {SET: ":4096:8"})
    caplog.set_level(logging.INFO)
    return tmp_path


def cached(directory: Path, stages: str) -> list[str]:
    """Run the stages; those of which the result was in the cache."""
    short = SHORT if "benchmark" in stages else ()
    config, _ = compose(*WORDS, *short, f"stages=[{stages}]", "runner.cache=true")
    assert runner.run(config, directory) == 0
    summary = json.loads((directory / "summary.json").read_text())
    return [stage["name"] for stage in summary["stages"] if stage["cached"]]


def test_a_result_stands_that_was_made_with_the_variable(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    cached(place / "run", "capture,report")
    assert "it stands" not in caplog.text
    cached(place / "run", "capture,report")
    assert "it stands" in caplog.text
    assert SET not in os.environ


def test_each_process_looks_for_a_stage_as_the_stages_own_would(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    stages = "capture,kerneldiff,benchmark,guards,report"
    assert cached(place / "one", stages) == []
    caplog.clear()
    assert cached(place / "two", stages) == ["capture", "kerneldiff", "benchmark", "guards"]
    assert "not in the cache" not in caplog.text


def test_a_time_is_kept_where_lowering_was_skipped(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    stages = "capture,lower,benchmark,report"
    cached(place / "one", stages)
    assert "is not kept" not in caplog.text
    assert cached(place / "two", stages) == ["capture", "benchmark"]


def test_a_time_is_of_the_model_that_another_process_of_the_run_built(place: Path) -> None:
    stages = "kerneldiff,benchmark,report"
    cached(place / "one", stages)
    assert cached(place / "two", stages) == ["kerneldiff", "benchmark"]
    (place / "mine.py").write_text(MODEL.replace("Linear(8, 8)", "Linear(8, 16)"))
    assert cached(place / "three", stages) == []


def test_a_time_is_not_kept_of_a_model_that_was_edited_between_the_runs_processes(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, stages = runner.Runner._run_worker, "kerneldiff,benchmark,report"
    edits = iter([MODEL, MODEL.replace("Linear(8, 8)", "Linear(8, 16)")])

    def edited(self: Any, environment: Mapping[str, str]) -> None:
        (place / "mine.py").write_text(next(edits, MODEL))
        original(self, environment)

    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_run_worker", edited)
        cached(place / "one", stages)
    assert f"benchmark: its result is not kept for later runs: {place / 'mine.py'} was written meanwhile" in caplog.text
    (place / "mine.py").write_text(MODEL)
    assert cached(place / "two", stages) == ["kerneldiff"]


def test_a_time_of_another_machine_is_not_given_out(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rests on no time is, as where a lost job is started again elsewhere."""
    stages = "lower,kerneldiff,benchmark,report"
    monkeypatch.setattr(sys.modules[__name__], "WORDS", (*WORDS[:-1], "backend=inductor"))
    cached(place / "one", stages)
    entries = [*(shared_cache(None) / "stages").glob("*/*/*/entry.json")]
    assert len(entries) == 3
    for path in entries:
        entry = json.loads(path.read_text())
        entry["clock"] |= {"machine": "elsewhere"} if entry["clock"] else {}
        path.write_text(json.dumps(entry))
    assert cached(place / "two", stages) == ["kerneldiff"]
    for stage in ("lower", "benchmark"):
        assert f"{stage}: not in the cache: a time's machine was elsewhere, and is " in caplog.text


def test_nothing_is_kept_of_a_run_during_which_a_package_was_installed(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "packages" / "my_nets-1.0.dist-info").mkdir(parents=True)
    (place / "packages" / "my_nets-1.0.dist-info" / "METADATA").write_text("Name: my-nets\nVersion: 1.0\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (place, place / "packages"))))
    before, after = (str(place / "packages" / f"my_nets-{version}.dist-info") for version in ("1.0", "1.1"))
    upgrade = f"import os\nos.rename({before!r}, {after!r})\n"
    (place / "mine.py").write_text(MODEL.replace("def build():", f"{upgrade}\n\ndef build():"))
    cached(place / "one", "capture,report")
    told = "capture: its result is not kept for later runs: a package, or this tool, was written meanwhile"
    assert told in caplog.text
