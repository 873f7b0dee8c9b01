"""Bisection from the command line: after a defect, after a crash that took the process, and not after a violation."""

from pathlib import Path

import pandas
import pytest
from command_line import Finished, command

MODEL = ("model=custom", "model.build._target_=small_models.perceptron", "model.name=perceptron")


NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 24), torch.nn.Linear(24, 8)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))


def build():
    return Net(), (torch.randn(4, 16),)
"""
CHANGES = {
    "operation": ("functional.gelu(self.up(x))", "functional.silu(self.up(x))"),
    "constant": ("self.down(", "1.01 * self.down("),
}


def run(directory: Path, *arguments: str) -> Finished:
    done = command(*MODEL, *arguments, f"hydra.run.dir={directory}", cwd=directory.parent)
    return Finished(done.returncode, done.stdout + done.stderr, directory)


def assert_gelu_is_named(finished: Finished) -> None:
    found = finished.json("bisect/bisect.json")
    assert (found["verdict"], found["subsystem"], found["names"]) == ("found", "backend", ["aten.gelu.default"])
    probes = finished.table("bisect/probes.csv")
    assert isinstance(probes, pandas.DataFrame) and len(probes) == found["probes"]
    told, *figures = found["answer"].split("\n")
    page = (finished.directory / "report" / "report.html").read_text()
    assert f'<p class="answer">{told}</p>' in page
    assert len(figures) >= 2 and all(f"<li>{line}</li>" in page for line in figures)
    assert told in finished.json("report/report.json")["findings"]


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
@pytest.mark.parametrize("stage", ["bisect", "profile"])
def test_a_strict_violation_is_neither_bisected_nor_profiled(stage: str, tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "accel=strict16", f"stages=[capture,constrain,{stage},report]")
    assert finished.code == 1, finished.output
    assert finished.statuses()["constrain"] == "failed" and finished.statuses()[stage] == "skipped"


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_after_its_baseline_is_no_fault_of_the_compiler(change: str, tmp_path: Path) -> None:
    model = ("model=custom", "model.build._target_=nets.build", "model.name=net")
    (tmp_path / "nets.py").write_text(NET)
    trusted = command(*model, "backend=eager", "stages=[kerneldiff]", "hydra.run.dir=baseline", cwd=tmp_path)
    assert trusted.returncode == 0, trusted.stdout + trusted.stderr
    (tmp_path / "nets.py").write_text(NET.replace(*CHANGES[change]))
    stages = ("stages=[kerneldiff,bisect,report]", "stages.kerneldiff.baseline=baseline")
    done = command(*model, *stages, "backend=inductor", "hydra.run.dir=changed", cwd=tmp_path)
    finished = Finished(done.returncode, done.stdout + done.stderr, tmp_path / "changed")
    assert finished.code == 1, finished.output
    assert finished.statuses() == {"kerneldiff": "failed", "bisect": "failed", "report": "passed"}
    found = finished.json("bisect/bisect.json")
    assert (found["verdict"], found["subsystem"], found["names"], found["remedy"]) == ("none", None, [], None)
    told, _ = found["answer"].split("\n")
    assert told == (
        "No part of the compiler: the model without any compiler has the fault too. It is the model that is wrong, or "
        "what it is compared with."
    )
    assert {link: each["fault"] for link, each in found["established"]["chain"].items()} == {
        "backend": "present", "uncompiled": "present"}  # fmt: skip
    assert told in finished.json("report/report.json")["findings"]
