"""``analyze`` asked of several runs: one answer, with the run beside each row."""

import json
from pathlib import Path
from typing import Any

import pytest
from stored_results import stored_result, violation

from inductor_debug.pipeline import cli


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    assert cli.main(["analyze", *map(str, words), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tables_have_the_rows_of_all_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = stored_result(tmp_path / "sweep" / "0", violations=[violation(node="mm"), violation(node="bmm")])
    b = stored_result(tmp_path / "sweep" / "1", violations=[violation(node="add")])
    (tmp_path / "sweep" / "2").mkdir()
    for words in ((tmp_path / "sweep",), (a, b), (a, tmp_path / "sweep")):
        found = answer(capsys, *words, "--type", "constraints")
        assert found["runs"] == [str(a), str(b)]
        rows = found["tables"]["violations"]
        assert [(row["run"], row["node"]) for row in rows] == [(str(a), "mm"), (str(a), "bmm"), (str(b), "add")]
        assert next(iter(rows[0])) == "run"


def test_one_run_answers_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_result(tmp_path / "sweep" / "0")
    found = answer(capsys, tmp_path / "sweep", "--type", "constraints")
    assert found["run"] == str(run) and "run" not in found["tables"]["violations"][0]


def test_a_run_that_holds_no_answer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = stored_result(tmp_path / "a")
    b = stored_result(tmp_path / "b", without=("constrain/violations.csv",))
    found = answer(capsys, b, a, "--type", "constraints")
    assert found["told"][0].startswith(f"{b}: holds no ")
    assert {row["run"] for row in found["tables"]["violations"]} == {str(a)}
    assert cli.main(["analyze", str(b), str(b), str(stored_result(tmp_path / "c")), "--type", "profile"]) == 2
    assert "holds no profile" in capsys.readouterr().err


def test_folders_without_a_result_are_told_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = stored_result(tmp_path / "killed", without=("summary.json",))
    damaged = stored_result(tmp_path / "damaged", summary={"verdict": "splendid"})
    found = answer(capsys, stored_result(tmp_path / "a"), killed, damaged, "--type", "constraints")
    told = dict(line.split(": ", 1) for line in found["told"])
    assert "the run was killed, or it runs on another machine" in told[str(killed)] and "splendid" in found["told"][-1]
    assert cli.main(["analyze", str(killed)]) == 2
    assert "the run was killed, or it runs on another machine" in capsys.readouterr().err
    assert cli.main(["analyze", str(killed), str(damaged)]) == 2
    message = capsys.readouterr().err
    assert "no run there has a result" in message and f"Try: inductor-debug list {killed}" in message
