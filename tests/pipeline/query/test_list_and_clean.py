"""``list`` with conditions, ``latest`` as a run's name, and ``clean``, which removes runs and nothing else."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from stored_results import stored_result

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.ownership import claim_run, claim_sweep
from inductor_debug.pipeline.query.clean_command import Wanted


def stored(folder: Path, verdict: str = "passed", model: str = "nets", days: float = 0.0) -> Path:
    run = stored_result(folder, summary={"verdict": verdict, "run/model": model})
    at = (run / "run.log").stat().st_mtime - 86400 * days
    os.utime(run / "run.log", (at, at))
    return run


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs below outputs of the working directory, the newest last."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs"
    stored(folder / "1-a", "failed", "resnet18", days=40)
    stored(folder / "2-b", "passed", "resnet50", days=2)
    stored(folder / "3-c", "crashed", "bert")
    return folder


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["list", *words, "--format", "json"]) == 0
    return [Path(row["run"]).name for row in json.loads(capsys.readouterr().out)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "words, found",
    [
        ((), ["1-a", "2-b", "3-c"]),
        (("model=resnet*",), ["1-a", "2-b"]),
        (("verdict=failed,crashed",), ["1-a", "3-c"]),
        (("outputs", "verdict=failed,crashed", "model=bert"), ["3-c"]),
        (("--last", "2"), ["2-b", "3-c"]),
        (("verdict=passed", "--last", "9"), ["2-b"]),
        (("dtype=float64",), []),
    ],
)
def test_runs_are_listed_by_what_they_are(
    outputs: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], found: list[str]
) -> None:
    assert listed(capsys, *words) == found


@pytest.mark.parametrize(
    "words, message",
    [
        (["list", "modle=bert"], "modle: runs are not chosen by it; valid: mode, model, "),
        (["list", "foo=bar"], "verdict, numerics.\nTry: inductor-debug list --help"),
        (["list", "a", "b"], "list: got the folders a, b; valid: one, by default outputs."),
        (["clean", "a", "b"], "clean: got the folders a, b; valid: one, by default outputs."),
        (["list", "model=a", "model=b"], "model: got model=a, model=b; valid: one word, its patterns parted by commas"),
        (["clean", "model=bert,"], "Try: inductor-debug clean model=bert"),
        (
            ["clean"],
            "clean: got no condition; valid: a run's folder, KEY=PATTERN, --older-than DAYS, --larger-than SIZE.",
        ),
        (["clean", "nothing"], "clean: got no condition beside nothing, which is no run; valid: a run's folder,"),
        (["clean", "nothing"], "Try: inductor-debug clean nothing --older-than 30"),
        (["list", "nothing"], "FOLDER: no folder 'nothing'"),
        (["clean", "--older-than", "-1"], "--older-than: got -1; valid: days, 0 or more."),
        (["clean", "--larger-than", "much"], "--larger-than: got 'much'"),
    ],
)
def test_a_wrong_condition_is_told(
    outputs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main(words) == 2
    told = capsys.readouterr().err
    assert (message in told and "Try: inductor-debug" in told) or "Try: --" in told
    assert names(outputs) == ["1-a", "2-b", "3-c"]


def test_latest_is_the_newest_run(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "latest", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["model"] == "bert"
    stored(outputs.parent / "latest", model="mine")  # a folder of that name is what it says
    assert cli.main(["show", "latest", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["model"] == "mine"


@pytest.mark.parametrize(
    "words, left",
    [
        (["verdict=failed,crashed"], ["2-b"]),
        (["--older-than", "30"], ["2-b", "3-c"]),
        (["--older-than", "1", "verdict=passed"], ["1-a", "3-c"]),
        (["--larger-than", "1GiB"], ["1-a", "2-b", "3-c"]),
        (["--larger-than", "1B"], []),
    ],
)
def test_runs_that_all_conditions_fit_are_removed(
    outputs: Path, capsys: pytest.CaptureFixture[str], words: list[str], left: list[str]
) -> None:
    assert cli.main(["clean", *words, "--yes"]) == 0
    assert names(outputs) == left
    told = capsys.readouterr().err
    removed = 3 - len(left)
    assert (f"removed {removed} run" in told) if removed else ("nothing to remove" in told)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_there_is_is_told_where_no_run_fits(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "verdict=flailed") == []
    cli.main(["list", "verdict=flailed"])
    told = capsys.readouterr().err
    assert "none of 3 runs is asked for. There: verdict is one of crashed, failed, passed" in told


def test_a_run_is_removed_by_its_folder(outputs: Path) -> None:
    assert cli.main(["clean", "outputs/2-b", "--yes"]) == 0
    assert names(outputs) == ["1-a", "3-c"] and not (outputs / "2-b").exists()


def test_the_oldest_is_listed_first_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, days in (("2026-11-27/1-a", 1.0), ("ci", 0.5), ("accepted", 2.0)):
        stored(tmp_path / "outputs" / name, days=days)
    assert listed(capsys) == ["accepted", "1-a", "ci"] and listed(capsys, "--last", "1") == ["ci"]
    wanted = Wanted.of(["verdict=*"], None, None)
    assert [found.folder.name for found in wanted.found()] == ["accepted", "1-a", "ci"]


@pytest.mark.parametrize("answer, left", [("y\n", 2), ("n\n", 3), ("", 3)])
def test_it_asks(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, left: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert cli.main(["clean", "verdict=failed"]) == (0 if left == 2 else 2)
    printed = capsys.readouterr()
    assert "1 run would be removed.\nRemove them? [y/N]" in printed.err and "1-a" in printed.out
    assert len(names(outputs)) == left


def test_without_a_terminal_nothing_is_removed(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert cli.main(["clean", "verdict=failed", "--older-than", "3"]) == 2
    assert "Try: inductor-debug clean verdict=failed --older-than 3 --yes" in capsys.readouterr().err
    assert len(names(outputs)) == 3


def test_what_a_run_did_not_write_stays(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept.txt").write_text("kept")
    (outputs / "1-a" / "notes.txt").write_text("mine")
    (outputs / "1-a" / "lower" / "link").symlink_to(theirs)
    (outputs / "no-run").mkdir()
    (outputs / "no-run" / "verdict.txt").write_text("failed")
    assert cli.main(["clean", "verdict=*", "--yes"]) == 0
    assert names(outputs) == ["1-a", "no-run"] and names(theirs) == ["kept.txt"]
    assert names(outputs / "1-a") == ["lower", "notes.txt"] and names(outputs / "1-a" / "lower") == ["link"]
    assert "; 1 folder of them left, for other files are in it" in capsys.readouterr().err


def test_a_run_that_a_command_owns_is_left(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with claim_run(outputs / "4-d", "configuration"):
        (outputs / "4-d" / "run.log").write_text("")
        (outputs / "4-d" / ".hydra").mkdir()
        (outputs / "4-d" / ".hydra" / "config.yaml").write_text("{}")
        assert cli.main(["show", str(outputs / "4-d")]) == 2
        assert "4-d: no result yet: the run goes on; run.log tells how far it came." in capsys.readouterr().err
        assert cli.main(["clean", "verdict=*", "--yes"]) == 0
    assert names(outputs) == ["4-d"]
    told = capsys.readouterr().err
    assert f"left: {outputs}/4-d: " in told and "removed 3 runs" in told


def test_a_run_that_ended_while_it_was_asked_is_left(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (outputs / "2-b" / "summary.json").rename(outputs / "kept.json")

    class Ending(Terminal):
        def readline(self, *_: Any) -> str:
            (outputs / "kept.json").rename(outputs / "2-b" / "summary.json")
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Ending())
    assert cli.main(["clean", "verdict=no result"]) == 0
    assert names(outputs) == ["1-a", "2-b", "3-c"]
    assert "left: outputs/2-b: it is no longer what was asked for\nremoved 0 runs" in capsys.readouterr().err


def test_a_job_of_a_sweep_that_goes_on_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = tmp_path / "outputs" / "sweep"
    with claim_sweep(sweep, ["a"], ["0"]):
        stored(sweep / "0")
        assert cli.main(["clean", "verdict=*", "--yes"]) == 0
        assert names(sweep) == [".sweep.json", "0"]
    assert "left: outputs/sweep/0: its sweep goes on" in capsys.readouterr().err


def test_the_folder_that_was_looked_through_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored(tmp_path / "run")
    monkeypatch.chdir(run)
    assert cli.main(["clean", ".", "verdict=*", "--yes"]) == 0
    assert run.is_dir() and names(run) == [] and "left" not in capsys.readouterr().err


def test_a_sweep_goes_with_its_last_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = tmp_path / "outputs" / "day" / "sweep"
    jobs: dict[str, Any] = {"0": "passed", "1": "failed"}
    with claim_sweep(sweep, ["a", "b"], jobs):
        for job, verdict in jobs.items():
            stored(sweep / job, verdict)
        (sweep / "sweep.csv").write_text("job\n")
    assert cli.main(["clean", "verdict=failed", "--yes"]) == 0
    assert names(sweep) == [".sweep.json", "0", "sweep.csv"]
    assert cli.main(["clean", "verdict=*", "--yes"]) == 0
    assert names(tmp_path / "outputs") == []


def test_a_copy_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs are in the order in which they started, not in which their files were written."""
    monkeypatch.chdir(tmp_path)
    for name, minute in (("later", 2), ("earlier", 1)):
        stored_result(tmp_path / "outputs/day" / name, summary={"run/started": f"2026-03-01T09:0{minute}:00+00:00"})
    assert [Path(row["run"]).name for row in listed_rows(capsys)] == ["earlier", "later"]
    assert cli.main(["show", "latest", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["started"].endswith("09:02:00+00:00")


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00", "soon", 7, None])
def test_a_start_that_is_none_stops_nothing(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = stored_result(tmp_path / "outputs/day/run")
    summary = json.loads((run / "summary.json").read_text())
    summary["run"]["started"] = started
    (run / "summary.json").write_text(json.dumps(summary))
    assert [Path(row["run"]).name for row in listed_rows(capsys)] == ["run"]


def listed_rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert cli.main(["list", "--format", "json"]) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return rows


def test_a_run_is_not_looked_through_for_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own folders are not even listed; runs that a user has put beside them are found."""
    for name in ("run", "run/mine/inner", "run/capture/no_run"):
        stored_result(tmp_path / name)
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: listed.append(Path(folder)) or scandir(folder))
    assert store.find_runs(tmp_path) == [tmp_path / "run", tmp_path / "run/mine/inner"]
    assert tmp_path / "run/mine" in listed and tmp_path / "run/capture" not in listed


def test_sizes_have_units_for_a_person_and_are_bytes_for_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = tmp_path / "cache/stages/capture/key/variant"
    entry.mkdir(parents=True)
    (entry / "entry.json").write_bytes(b" " * 1536)
    words = ["cache", "--cache-dir", str(tmp_path / "cache")]
    assert cli.main([*words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["bytes"] == 1536
    assert cli.main(words) == 0
    assert re.search(r"(?m)^stage +results +size +.*\ncapture +1 +1\.5 KiB +0 ", capsys.readouterr().out)
    assert cli.main([*words, "--older-than", "0"]) == 0
    assert capsys.readouterr().err == "removed 1 result, 1.5 KiB\n"


def test_a_sweep_that_is_taken_for_a_run_leads_to_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("0-job", "1-job"):
        stored(tmp_path / "a sweep" / name)
    for words in (["show", "a sweep"], ["check", "a sweep", "accel=strict16"]):
        assert cli.main(words) == 2
        assert capsys.readouterr().err == (
            "RUN: got 'a sweep', which holds 2 runs; valid: a run's folder, such as a sweep/0-job.\n"
            "Try: inductor-debug list 'a sweep'\n"
        )
