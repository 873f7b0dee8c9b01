"""How a sweep ends where a signal or a full disk meets it between its jobs."""

import errno
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.config.arguments import directory_word
from inductor_debug.pipeline.run import runner
from inductor_debug.pipeline.run.commands import jobs
from inductor_debug.pipeline.run.restoring import Expected, resuming

WORDS = ["run", "--multirun", "accel.alignment=8,16", "stages=[report]", "hydra.sweep.dir=here"]


def test_a_signal_after_the_last_stage_of_a_job_starts_no_further_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = runner.Runner._finish

    def finish(self: Any) -> int:
        code = original(self)
        os.kill(os.getpid(), signal.SIGTERM)
        return code

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner.Runner, "_finish", finish)
    assert cli.main(WORDS) == 128 + signal.SIGINT
    assert len(list((tmp_path / "here").glob("*/summary.json"))) == 1
    told = capsys.readouterr().err
    assert (
        f"To go on from there: inductor-debug run --multirun accel.alignment=8,16 {shlex.quote('stages=[report]')}"
        in told
    )


def test_an_interruption_while_the_table_is_written_ends_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "write_sweep_table", interrupted)
    assert cli.main(WORDS) == 130
    assert "To go on from there: inductor-debug run --multirun accel.alignment=8,16" in capsys.readouterr().err


def test_an_interruption_before_a_run_begins_ends_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "claim_run", interrupted)
    assert cli.main(["run", "accel=warn16", "stages=[report]", "hydra.run.dir=a,b"]) == 2  # commas are for a sweep
    assert cli.main(["run", "accel=warn16", "stages=[report]", "hydra.run.dir='my run'"]) == 130
    told = capsys.readouterr().err.rstrip()
    command = ["inductor-debug", "run", "accel=warn16", "stages=[report]", "hydra.run.dir='my run'"]
    assert told.endswith(f"To go on from there: {shlex.join(command)}")


@pytest.mark.parametrize(
    ("expected", "words", "told"),
    [
        (None, ["run", "--config-dir", "mine", "dtype=float16"], "To go on from there"),
        (Expected("RUN", None, refuse=True), ["rerun", "RUN", "dtype=float16"], "To make it again"),
        (Expected("RUN", None, refuse=False), ["run", "--config-dir", "mine", "dtype=float16"], "To make it again"),
    ],
)
def test_a_run_that_is_made_again_is_made_anew(expected: Expected | None, words: list[str], told: str) -> None:
    """With the variables that it had, which rerun restores."""
    assert resuming(expected, ["--config-dir", "mine"], ["dtype=float16"]) == (words, told)


def test_a_table_that_can_not_be_written_is_told_with_the_command_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "write_sweep_table", full)
    assert cli.main(WORDS) == 3
    out, err = capfd.readouterr()
    assert "the sweep's table could not be written (No space left on device)" in out + err
    assert "Try: inductor-debug run --multirun accel.alignment=8,16" in out + err


@pytest.mark.parametrize("name", ["plain/a-b_c.1", "0-accel.alignment=8,dtype=float32", "josé's (runs)", "a b~c"])
def test_a_directory_is_typed_so_that_it_is_read(name: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides([directory_word("hydra.run.dir", Path("/tmp") / name)])
    assert str(parsed.value()) == f"/tmp/{name}"
    assert directory_word("hydra.run.dir", Path("/tmp/plain/a-b_c.1")) == "hydra.run.dir=/tmp/plain/a-b_c.1"
