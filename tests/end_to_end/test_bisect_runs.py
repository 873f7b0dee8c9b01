"""Bisection from the command line: after a defect, after a crash that took the process, and not after a violation."""

from pathlib import Path

import pandas
import pytest
from command_line import Finished, command

MODEL = ("model=custom", "model.build._target_=small_models.perceptron", "model.name=perceptron")


def run(directory: Path, *arguments: str) -> Finished:
    done = command(*MODEL, *arguments, f"hydra.run.dir={directory}", cwd=directory.parent)
    return Finished(done.returncode, done.stdout + done.stderr, directory)


def assert_gelu_is_named(finished: Finished) -> None:
    found = finished.json("bisect/bisect.json")
    assert (found["verdict"], found["subsystem"], found["names"]) == ("found", "backend", ["aten.gelu.default"])
    probes = finished.table("bisect/probes.csv")
    assert isinstance(probes, pandas.DataFrame) and len(probes) == found["probes"]
    assert found["answer"] in (finished.directory / "report" / "report.html").read_text()
    report = finished.json("report/report.json")
    assert f"Bisection: {found['answer']}." in report["findings"]


def test_a_wrong_operation_of_a_backend_is_named(tmp_path: Path) -> None:
    wrong = ("backend.adapter=faulty_adapters.WrongOperation", "+backend.options.operation=aten.gelu.default")
    finished = run(tmp_path / "run", *wrong, "stages=[kerneldiff,bisect,report]")
    assert finished.code == 1, finished.output
    assert finished.statuses() == {"kerneldiff": "failed", "bisect": "failed", "report": "passed"}
    assert_gelu_is_named(finished)
    stages = {stage["name"]: stage for stage in finished.summary["stages"]}
    assert "the operation aten.gelu.default" in stages["bisect"]["message"]


@pytest.mark.slow
def test_an_operation_that_kills_the_process_is_named(tmp_path: Path) -> None:
    fatal = ("backend.adapter=faulty_adapters.KilledByOperation", "+backend.options.operation=aten.gelu.default")
    finished = run(tmp_path / "run", *fatal, "stages=[kerneldiff,bisect,report]")
    assert finished.code == 3, finished.output
    assert finished.statuses() == {"kerneldiff": "crashed", "bisect": "failed", "report": "passed"}
    assert_gelu_is_named(finished)
    assert "killed by SIGSEGV" in finished.json("bisect/bisect.json")["fault"]["failure"]


@pytest.mark.slow
def test_a_strict_violation_is_not_bisected(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "accel=strict16", "stages=[capture,constrain,bisect,report]")
    assert finished.code == 1, finished.output
    assert finished.statuses()["bisect"] == "skipped"
