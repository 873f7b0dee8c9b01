"""Commands whose directory is another's, or can't be written: exit code 2, what to type, and nothing is changed."""

import csv
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from listings import listing
from stored_captures import stored_run

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.run.commands import entry

ROOT = Path(__file__).resolve().parents[3]
REPORT = "stages=[report]"


def test_a_run_in_another_runs_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [REPORT, f"hydra.run.dir={tmp_path / 'run'}"]
    assert entry.main(words) == 0
    before = listing(tmp_path)
    capsys.readouterr()
    assert entry.main([*words, "seed=1"]) == 2
    assert listing(tmp_path) == before
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "holds another run" in lines[0] and lines[1].startswith("Try: runner.overwrite=true")
    assert entry.main(words) == 0
    assert entry.main([*words, "seed=1", "runner.overwrite=true"]) == 0
    assert "seed: 1" in (tmp_path / "run/.hydra/config.yaml").read_text()
    other = f"hydra.run.dir={tmp_path / 'other'}"
    assert entry.main([REPORT, "seed=2", other]) == 0
    assert cli.main(["rerun", str(tmp_path / "run"), other]) == 2  # overwriting was allowed of one directory, once


def test_a_rerun_into_its_own_directory_is_the_same_configuration(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert entry.main([REPORT, "seed=3", f"hydra.run.dir={run}"]) == 0
    assert cli.main(["rerun", str(run), "--yes", f"hydra.run.dir={run}"]) == 0
    assert cli.main(["rerun", str(run), "--yes", f"hydra.run.dir={run}", "seed=4"]) == 2


def test_a_sweep_in_another_sweeps_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", REPORT, f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    assert entry.main([*words, "seed=0,1"]) == 0
    before = listing(tmp_path)
    capsys.readouterr()
    assert entry.main([*words, "seed=0,2"]) == 2
    assert listing(tmp_path) == before
    assert "its job '1-seed=1" in (told := capsys.readouterr().err) and "here '1-seed=2" in told
    for others, told in (("0,1,2", "it has no job '2-seed=2"), ("0", "its job '1-seed=1")):
        assert entry.main([*words, f"seed={others}"]) == 2
        assert told in capsys.readouterr().err
    assert entry.main([*words, "seed=0,1"]) == 0
    assert entry.main([*words, "seed=0,2", "runner.overwrite=true"]) == 0
    jobs = {path.name.partition(",")[0] for path in (tmp_path / "sweep").iterdir() if path.is_dir()}
    assert jobs == {"0-seed=0", "1-seed=2"}


def test_a_job_in_another_runs_directory_is_told_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    assert entry.main([REPORT, "seed=5", f"hydra.run.dir={sweep / '0'}"]) == 0
    before = listing(sweep)
    words = ["-m", REPORT, "seed=0,1", f"hydra.sweep.dir={sweep}", "hydra.sweep.subdir=${hydra.job.num}"]
    assert entry.main(words) == 2
    assert listing(sweep / "0") == {path: found for path, found in before.items() if path.startswith(f"{sweep}/0/")}
    rows = list(csv.DictReader((sweep / "sweep.csv").open()))
    assert [(row["override.seed"], row["verdict"], row["exit_code"]) for row in rows] == [
        ("0", "rejected", "2"), ("1", "passed", "0")]  # fmt: skip
    assert "holds another run" in rows[0]["error"] and "holds another run" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["hydra.run.dir=file/run"], ["-m", "seed=0,1", "hydra.sweep.dir=file/sweep"]])
def test_a_directory_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert entry.main([REPORT, *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    key = "hydra.run.dir" if len(words) == 1 else "hydra.sweep.dir"
    assert len(lines) == 2 and lines[0].startswith(f"{key}: ") and "can't be written" in lines[0]
    assert lines[1] == f"Try: {key}=FOLDER"


@pytest.mark.parametrize("out", ["file", "file/inside", "taken"])
@pytest.mark.parametrize("more", [[], ["--grid", "alignment=8"], ["--models"]])
def test_a_folder_of_results_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, more: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("violations.csv", "grid.csv", "coverage.csv"):
        (tmp_path / "taken" / name / "inside").mkdir(parents=True)
    code = cli.main(["check", str(stored_run(tmp_path / "run", 24)), "--out", str(tmp_path / out), *more])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and lines[-1].startswith("Try: ") and str(tmp_path / out) in lines[-2]


def test_a_standard_output_that_is_full_is_told(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "run", 24)
    command = [sys.executable, "-m", "inductor_debug.pipeline.cli", "check", str(run), "--out", str(tmp_path / "out")]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert f"standard output can't be written: {os.strerror(errno.ENOSPC)}" in done.stderr
    assert "Traceback" not in done.stderr
