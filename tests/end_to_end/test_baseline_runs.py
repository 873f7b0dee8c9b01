"""A run's stored reference judges another run of the command line, whose reference is then not run."""

import json
import subprocess
from pathlib import Path

import pytest
from command_line import TESTS, command

COUNTING = '''
import torch


class Net(torch.nn.Module):
    """Writes a line for every call of its Python code outside of a compiler."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x):
        if not torch.compiler.is_compiling():
            with open("eager.txt", "a") as file:
                file.write(f"{x.dtype}\\n")
        return {"logits": self.norm(self.layer(x)), "nothing": None}


def build(batch_size):
    return Net(), (torch.randn(batch_size + 3, 8),)
'''
ARGUMENTS = (
    *("model=custom", "model.build._target_=counting.build", "model.name=net", "mode=training"),
    "model.exercise=false",  # which runs the model in eager
    *("stages=[kerneldiff,report]", "backend=aot_eager", "stages.kerneldiff.draws=1"),
)


class Workplace:
    """A working directory with the counting model and one run, which stored its reference."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        (cwd / "counting.py").write_text(COUNTING)
        self.known: set[Path] = set()
        self.first = self.run()

    def run(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], str, int]:
        """What finished, the new run's directory relative to the working directory, and how often eager ran."""
        count = self.cwd / "eager.txt"
        count.unlink(missing_ok=True)
        finished = command(*ARGUMENTS, *arguments, cwd=self.cwd)
        found = {path.parent for path in self.cwd.glob("outputs/*/*/summary.json")} - self.known
        self.known |= found
        directory = str(next(iter(found)).relative_to(self.cwd)) if found else ""
        return finished, directory, len(count.read_text().splitlines()) if count.exists() else 0


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("baseline"))


def test_a_baseline_gives_the_same_verdicts_without_the_reference(workplace: Workplace) -> None:
    finished, source, calls = workplace.first
    assert finished.returncode == 0 and calls == 3, finished.stdout + finished.stderr  # check, reference, gold
    again, directory, calls = workplace.run(f"stages.kerneldiff.baseline={source}")
    assert again.returncode == 0 and calls == 0, again.stdout + again.stderr
    tables = [(workplace.cwd / run / "kerneldiff/outputs.csv").read_text() for run in (source, directory)]
    assert tables[0] == tables[1] and "buffer" in tables[0]
    summary = json.loads((workplace.cwd / directory / "summary.json").read_text())
    assert f"the reference is that of {source} (torch " in summary["stages"][0]["message"]
    assert f"reference and gold from {source}" in (workplace.cwd / directory / "run.log").read_text()
    report = (workplace.cwd / directory / "report/report.html").read_text()
    assert source in report
    files = json.loads((workplace.cwd / source / "manifest.json").read_text())["files"]
    assert {"kerneldiff/baseline/baseline.json", "kerneldiff/baseline/gold.safetensors"} <= set(files)


def test_a_wrong_backend_is_a_defect_against_a_baseline(workplace: Workplace) -> None:
    adapter = "backend.adapter=faulty_adapters.ScaledOutput"
    assert (TESTS / "faulty_adapters.py").exists()
    finished, directory, _ = workplace.run(f"stages.kerneldiff.baseline={workplace.first[1]}", adapter)
    assert finished.returncode == 1
    numerics = json.loads((workplace.cwd / directory / "summary.json").read_text())["numerics"]
    assert numerics["verdict"] == "defect"


def test_another_seed_is_not_established(workplace: Workplace) -> None:
    finished, directory, _ = workplace.run(f"stages.kerneldiff.baseline={workplace.first[1]}", "seed=3")
    assert finished.returncode == 1
    diagnosis = json.loads((workplace.cwd / directory / "kerneldiff/diagnosis.json").read_text())
    assert diagnosis["verdict"] == "not_established"
    assert "Try: seed=0 (this run has seed=3)" in diagnosis["message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stages.kerneldiff.baseline=outputs/nowhere"], "holds no kerneldiff/baseline/baseline.json"),
        (["stages.kerneldiff.baseline={first}", "dtype=bfloat16"], "Try: dtype=float32"),
        (["stages.kerneldiff.baseline={first}", "model.batch_size=2"], "float32 [4, 8]"),
        (["stages.kerneldiff.store_baseline=perhaps"], "true or false"),
    ],
)
def test_what_can_not_be_a_baseline_is_exit_code_2(workplace: Workplace, arguments: list[str], told: str) -> None:
    finished, directory, _ = workplace.run(*(argument.format(first=workplace.first[1]) for argument in arguments))
    output = finished.stdout + finished.stderr
    assert finished.returncode == 2 and not directory, output
    assert told in output and "Traceback" not in output


@pytest.mark.slow
def test_a_damaged_baseline_is_exit_code_2(workplace: Workplace) -> None:
    finished, source, _ = workplace.run()
    assert finished.returncode == 0
    file = workplace.cwd / source / "kerneldiff/baseline/reference.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    again, directory, _ = workplace.run(f"stages.kerneldiff.baseline={source}")
    assert again.returncode == 2 and not directory
    assert "is damaged: reference.safetensors has" in again.stdout + again.stderr
