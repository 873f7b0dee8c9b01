"""A run recognizes a failure that an earlier run of the same output directory has met."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from runner_support import execute

from inductor_debug.pipeline.directory.met import told_of, with_met
from inductor_debug.stages.artifacts.records import ReproRecord

ONE, OTHER = "a" * 12, "b" * 12
TODAY = "2026-03-02T10:00:00.000000+01:00"


def met(folder: Path, started: str, *fingerprints: str) -> Path:
    """A stored run that met these failures."""
    repros = [{"path": "repros/x.py", "fingerprint": item} for item in fingerprints]
    content = {"run": {"started": started}, "verdict": "failed", "stages": [], "repros": repros}
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(content))
    return folder


def found(run: Path, *fingerprints: str) -> list[str | None]:
    run.mkdir(parents=True, exist_ok=True)
    records = [ReproRecord("repros/x.py", fingerprint=item) for item in fingerprints]
    return [item.met_in for item in with_met(records, run, TODAY)]


@pytest.mark.parametrize("run", ["2026-03-02/2-new", "2026-03-02/2-sweep/0-job"])
@pytest.mark.parametrize("earlier", ["2026-03-02/1-old", "2026-02-01/9-old", "2026-02-01/9-sweep/3-job"])
def test_the_runs_of_all_days_and_sweeps_are_looked_at(run: str, earlier: str, tmp_path: Path) -> None:
    for sweep in ("2026-03-02/2-sweep", "2026-02-01/9-sweep"):
        (tmp_path / sweep).mkdir(parents=True)
        (tmp_path / sweep / ".sweep.json").write_text("{}")
    folder = met(tmp_path / earlier, "2026-03-02T08:30:00+00:00", ONE)
    assert found(tmp_path / run, ONE, OTHER) == [f"{folder.parent.name}/{folder.name}", None]


def test_the_first_that_met_it_is_named_and_later_runs_are_not(tmp_path: Path) -> None:
    met(tmp_path / "runs/c", "2026-03-01T10:00:00+00:00", ONE)
    met(tmp_path / "runs/b", "2026-02-01T10:00:00+00:00", OTHER, ONE)
    met(tmp_path / "runs/a", "2026-03-02T09:30:00+00:00", ONE)  # 10:30 in the zone of TODAY
    met(tmp_path / "elsewhere/d", "2026-01-01T10:00:00+00:00", ONE)
    assert found(tmp_path / "runs/new", ONE) == ["runs/b"]


def test_a_run_without_a_fingerprint_or_a_date_meets_nothing(tmp_path: Path) -> None:
    met(tmp_path / "runs/a", "2026-01-01T10:00:00+00:00", "", ONE)
    assert found(tmp_path / "runs/new", "") == [None]
    record = ReproRecord("repros/x.py", fingerprint=ONE)
    assert with_met([record], tmp_path / "runs/new", None) == [record]


DAMAGE: dict[str, Any] = {
    "cut short": '{"run": {"started": "' + ONE,
    "another shape": json.dumps({"run": 3, "verdict": ONE, "stages": []}),
    "no date": json.dumps(
        {"run": {"started": ONE}, "verdict": "", "stages": [], "repros": [{"path": "", "fingerprint": ONE}]}
    ),
    "no text": ONE.encode() + b"\xff\xfe",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_summary_is_passed_over(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs/damaged"
    folder.mkdir(parents=True)
    content = DAMAGE[kind]
    (folder / "summary.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    met(tmp_path / "runs/whole", "2026-03-01T10:00:00+00:00", ONE)
    assert found(tmp_path / "runs/new", ONE) == ["runs/whole"]


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    for name in ("fifo", "folder", "link"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    os.mkfifo(tmp_path / "runs/fifo/summary.json")
    (tmp_path / "runs/folder/summary.json").mkdir()
    outside = met(tmp_path / "outside", "2026-01-01T10:00:00+00:00", ONE)
    (tmp_path / "runs/link/summary.json").symlink_to(outside / "summary.json")
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs")
    assert found(tmp_path / "runs/new", ONE) == [None]


def test_what_is_told_counts_failures() -> None:
    records = [ReproRecord("x", fingerprint=ONE, met_in="d/1"), ReproRecord("y", fingerprint=ONE, met_in="d/1")]
    assert told_of(records) == "met before in d/1"
    assert told_of([*records, ReproRecord("z", fingerprint=OTHER)]) == "1 of 2 failures with a script met before in d/1"
    assert told_of([ReproRecord("z", fingerprint=OTHER)]) == ""


@pytest.mark.usefixtures("stages_on_path")
def test_the_summary_and_the_message_of_a_run_tell(tmp_path: Path) -> None:
    first = execute(tmp_path / "runs/1", "leaves_a_repro")
    assert first.message("leaves_a_repro") == "it fails." and "met_in" not in first.summary["repros"][0]
    (tmp_path / "runs/0").mkdir()
    (tmp_path / "runs/0/summary.json").write_text('{"cut')
    again = execute(tmp_path / "runs/2", "leaves_a_repro")
    assert again.summary["repros"][0]["met_in"] == "runs/1" and again.summary["repros"][0]["fingerprint"]
    assert again.message("leaves_a_repro") == "it fails. (met before in runs/1)"
    other = execute(tmp_path / "runs/3", "leaves_a_repro", seed=1)
    assert other.message("leaves_a_repro") == "it fails." and other.code == 1
