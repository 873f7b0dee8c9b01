"""Sweeps under Hydra's launchers: the table is the basic launcher's, and what would not be true is refused."""

import csv
import importlib.util
from pathlib import Path

import pytest
from command_line import command

WORDS = ("model=custom", "model.build._target_=small_models.perceptron", "backend=aot_eager", "accel=warn16",
         "stages=[capture,constrain,benchmark,report]", "--multirun", "accel.alignment=8,16,32")  # fmt: skip
DIFFER = ("seconds", "started", "cached", "id", "override.cluster", "error")


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


def compared(row: dict[str, str]) -> dict[str, str]:
    times = ("_ms", "_s", "_bytes", "speedup", "established")
    return {key: value for key, value in row.items() if key not in DIFFER and not key.endswith(times)}


@pytest.mark.slow
def test_jobs_that_run_at_the_same_time_share_what_they_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    parallel = command(*WORDS, "cluster=joblib", "hydra.launcher.n_jobs=3", "hydra.sweep.dir=parallel", cwd=tmp_path)
    assert parallel.returncode == 0, parallel.stdout + parallel.stderr
    rows = table(tmp_path / "parallel")
    assert sorted(row["cached"] for row in rows) == ["", "capture benchmark", "capture benchmark"]
    basic = command(*WORDS, "cluster=basic", "hydra.sweep.dir=basic", cwd=tmp_path)
    assert basic.returncode == 0, basic.stdout + basic.stderr
    assert list(map(compared, rows)) == list(map(compared, table(tmp_path / "basic")))
    again = command(*WORDS, "cluster=basic", "hydra.sweep.dir=parallel", cwd=tmp_path)
    assert (again.stdout + again.stderr).count("it stands") == 3  # of the sweep that another launcher ran


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cluster=joblib",), "two jobs would share it; valid: cluster=basic, or cluster=slurm"),
        (("cluster=nope",), "cluster: got 'nope' (in cluster=nope); valid: basic, joblib, ray, slurm"),
    ],
)
def test_what_would_share_an_accelerator_is_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = command(*WORDS, *words, "device=cuda", cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "outputs").exists()


LOSING = """
from hydra._internal.core_plugins.basic_launcher import BasicLauncher


class Losing(BasicLauncher):
    def launch(self, job_overrides, initial_job_idx):
        super().launch(job_overrides[:2], initial_job_idx)
        raise OSError(28, "No space left on device")


class Mistaken(BasicLauncher):
    def launch(self, job_overrides, initial_job_idx):
        raise ValueError("no such queue")
"""


@pytest.mark.parametrize(
    ("launcher", "code", "told", "rows"),
    [
        (
            "Losing",
            3,
            "the launcher gave up (builtins: OSError: [Errno 28] No space left on device): table",
            ["8", "16"],
        ),
        ("Mistaken", 2, "configuration: no such queue", None),
    ],
)
def test_what_a_launcher_lost_costs_no_job_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, code: int, told: str, rows: list[str] | None
) -> None:
    plugin = tmp_path / "hydra_plugins" / "mine" / "launcher.py"
    plugin.parent.mkdir(parents=True)
    (plugin.parent / "__init__.py").touch()
    plugin.write_text(LOSING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = (
        "stages=[report]",
        f"hydra.launcher._target_=hydra_plugins.mine.launcher.{launcher}",
        "hydra.sweep.dir=here",
    )
    done = command("--multirun", "accel.alignment=8,16,32", *words, cwd=tmp_path)
    assert done.returncode == code and told in done.stdout + done.stderr, done.stdout + done.stderr
    if rows is not None:
        assert [row["override.accel.alignment"] for row in table(tmp_path / "here")] == rows
        assert "without 1 job that did not start, or may run still" in done.stdout + done.stderr
        again = "inductor-debug run --multirun accel.alignment=8,16,32 'stages=[report]'"
        assert again in done.stdout + done.stderr


def test_jobs_that_a_sweeper_decides_as_it_goes_share_no_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "hydra_plugins" / "mine" / "sweeper.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("from hydra._internal.core_plugins import basic_sweeper\n\n\n"
                      "class Mine(basic_sweeper.BasicSweeper):\n    pass\n")  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = (*WORDS, "cluster=joblib", "device=cuda", "hydra.sweeper._target_=hydra_plugins.mine.sweeper.Mine")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2 and "two jobs would share it" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.skipif(installed("submitit"), reason="its launcher is installed here")
def test_a_launcher_that_is_not_installed_is_told_with_what_installs_it(tmp_path: Path) -> None:
    done = command(*WORDS, "cluster=slurm", cwd=tmp_path)
    assert done.returncode == 2
    assert "got cluster=slurm, and its launcher submitit_slurm is not installed here" in done.stderr
    assert done.stderr.rstrip().endswith("Try: pip install 'inductor-debug[slurm]'")
