"""The page sees the runs of one folder, reads each once, and sees no path outside."""

import json
import os
from pathlib import Path

import pytest
from stored_results import stored_result

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.dashboard.outputs import Outputs, cases
from inductor_debug.pipeline.directory import store


def run(folder: Path, day: int = 1, **changes: object) -> Path:
    """A stored run that began on a day of January."""
    at = {"run/started": f"2026-01-0{day}T00:00:00+00:00"}
    return stored_result(folder, summary={**at, **{key.replace("__", "/"): value for key, value in changes.items()}})


@pytest.mark.parametrize("name", ["..", "../other", "/etc", "link", "day/../../other", "file", "nothing", "day/link"])
def test_no_path_outside_is_taken(name: str, tmp_path: Path) -> None:
    root, other = tmp_path / "outputs", tmp_path / "other"
    run(root / "day/run")
    run(other)
    (root / "file").touch()
    (root / "link").symlink_to(other)
    (root / "day/link").symlink_to("/etc")
    outputs = Outputs(root)
    with pytest.raises(UserError, match=r"valid: a folder below .*outputs"):
        outputs.inside(name)
    assert outputs.inside("day/run") == root / "day/run"
    assert [row["run"] for row in outputs.rows()] == ["day/run"]


def test_rows_are_those_of_the_listing_the_newest_first(tmp_path: Path) -> None:
    for day in (2, 1, 3):
        run(tmp_path / f"run{day}", day)
    rows = Outputs(tmp_path).rows()
    assert [row["run"] for row in rows] == ["run3", "run2", "run1"]
    for row in rows:
        listed = store.row(tmp_path / row["run"])
        assert {key: row[key] for key in listed if key != "run"} == {key: listed[key] for key in listed if key != "run"}
        assert (row["test.median_ms"], row["test.compile_s"], row["device"]) == (4.0, 20.0, "cpu")


def test_a_run_is_read_once_until_its_result_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(1, 4):
        run(tmp_path / f"run{day}", day)
    (tmp_path / "going/.hydra").mkdir(parents=True)
    (tmp_path / "going/.hydra/config.yaml").touch()
    (tmp_path / "going/run.log").touch()
    outputs, read = Outputs(tmp_path), []
    original = store.read_summary
    monkeypatch.setattr(store, "read_summary", lambda folder: read.append(folder.name) or original(folder))
    assert len(outputs.rows()) == 4
    read.clear()
    outputs.rows()
    assert {*read} == {"going"}
    path = tmp_path / "run2/summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"verdict": "failed"}))
    read.clear()
    assert {row["run"]: row["verdict"] for row in outputs.rows()} == {
        "run1": "passed", "run2": "failed", "run3": "passed", "going": store.NO_RESULT}  # fmt: skip
    assert {*read} == {"going", "run2"}
    for name in ("run.log", "summary.json"):
        os.unlink(tmp_path / "run1" / name)
    assert "run1" not in [row["run"] for row in outputs.rows()]


def test_a_damaged_run_and_one_of_another_version_are_rows(tmp_path: Path) -> None:
    run(tmp_path / "damaged")
    run(tmp_path / "other", schema=99)
    (tmp_path / "damaged/summary.json").write_text("{")
    found = {row["run"]: row["verdict"] for row in Outputs(tmp_path).rows()}
    assert found["damaged"] == store.DAMAGED and len(found) == 2


def test_a_case_has_the_runs_that_differ_in_nothing_that_was_chosen(tmp_path: Path) -> None:
    for day in (1, 2):
        run(tmp_path / f"run{day}", day)
    run(tmp_path / "half", 3, run__dtype="float16")
    found = cases(Outputs(tmp_path).rows())
    assert [[row["run"] for row in rows] for rows in found.values()] == [["half"], ["run1", "run2"]]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "none")
    assert outputs.rows() == outputs.sweeps() == []


def test_what_is_typed_is_relative_to_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "outputs/run")
    outputs = Outputs(tmp_path / "outputs")
    assert outputs.typed("run") == str(tmp_path / "outputs/run")
    monkeypatch.chdir(tmp_path)
    assert outputs.typed("run") == "outputs/run"


def test_what_a_stranger_calls_a_run_stops_no_page(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/bad\xff")
    run(tmp_path / "good")
    for path in (tmp_path / "good").rglob("*"):
        if path.is_file():
            target = os.fsencode(tmp_path) + b"/bad\xff/" + os.fsencode(path.relative_to(tmp_path / "good"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(os.fsencode(path), target)
    outputs = Outputs(tmp_path)
    names = {row["run"] for row in outputs.rows()}
    assert names == {"good", "bad\\udcff"} and all(name.encode() for name in names)
    with pytest.raises(UserError):
        outputs.inside("bad\\udcff")
