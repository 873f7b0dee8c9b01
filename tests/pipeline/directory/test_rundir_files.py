"""The run directory: atomic writes, artifacts, the digest, the sweep's table."""

import csv
import json
import os
from pathlib import Path

import pytest
from runner_support import execute

from inductor_debug.pipeline.directory import rundir as rundir_module
from inductor_debug.pipeline.directory.digest import artifact_digests, digest_of
from inductor_debug.pipeline.directory.manifest import environment_that_matters
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.pipeline.directory.summary import build_summary
from inductor_debug.pipeline.run.sweep import split_override, sweep_exit_code, write_sweep_table
from inductor_debug.stages.artifacts.records import Run, StageRecord
from inductor_debug.stages.encoding import write_atomically


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "table.csv"
    write_atomically(path, b"old")

    def refuse(source: str, target: Path) -> None:
        assert Path(source).read_bytes() == b"new"  # whole before it takes the name
        raise OSError("disk full")

    monkeypatch.setattr(rundir_module.os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["table.csv"]


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/outside.txt", ""])
def test_an_artifact_stays_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="inside the run directory"):
        RunDirectory(tmp_path / "run").store(name, "x")


def test_json_is_strict_and_the_overlay_is_not_stored(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, {"summary.json": {"verdict": "passed"}})
    directory.store("a/b.json", {"x": [float("inf"), (1, 2)]})
    assert directory.names() == ["a/b.json", "summary.json"]
    assert directory.read_json("a/b.json") == {"x": ["inf", [1, 2]]}
    assert directory.read_json("summary.json") == {"verdict": "passed"}
    assert not (tmp_path / "summary.json").exists()


def digest(path: Path, csv_text: str, record: object, columns: dict[str, list[str]]) -> str:
    directory = RunDirectory(path)
    directory.store("t.csv", csv_text)
    directory.store("g.json", record)
    return digest_of(artifact_digests(directory, columns))


def test_the_digest_covers_the_named_columns_and_not_the_place_or_the_time(tmp_path: Path) -> None:
    columns = {"t.csv": ["a"], "g.json": ["name"], "gone.csv": ["a"]}
    record = {"id": "g0", "nodes": [{"name": f"{tmp_path}/one/x.py", "seconds": 1}]}
    moved = {"id": "g0", "nodes": [{"name": f"{tmp_path}/two/x.py", "seconds": 2}]}
    changed = {"id": "g0", "nodes": [{"name": "other", "seconds": 1}]}
    base = digest(tmp_path / "one", "a,seconds\n1,5\n", record, columns)
    assert digest(tmp_path / "two", "seconds,a\n9,1\n", moved, columns) == base
    assert digest(tmp_path / "three", "a,seconds\n2,5\n", record, columns) != base
    assert digest(tmp_path / "four", "a,seconds\n1,5\n", changed, columns) != base
    assert digest(tmp_path / "five", "a,seconds\n1,5\n1,5\n", record, columns) != base
    assert artifact_digests(RunDirectory(tmp_path / "one"), columns).keys() == {"g.json", "t.csv"}


@pytest.mark.usefixtures("stages_on_path")
def test_a_rerun_has_the_same_digest_and_another_seed_another(tmp_path: Path) -> None:
    first, again = (execute(tmp_path / name, "plain", seed=1).json("manifest.json") for name in ("a", "b"))
    other = execute(tmp_path / "c", "plain", seed=2).json("manifest.json")
    assert first["digest"] == again["digest"] != other["digest"]
    assert first["digest_inputs"] == {"plain/numbers.json": ["value"], "plain/rows.json": ["a"]}
    assert first["environment"]["PYTHONHASHSEED"] == "0"
    assert first["environment"]["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "a"))


def test_every_key_of_the_summary_is_there_when_nothing_ran() -> None:
    result = build_summary(Run("x"), ["capture"], {}, 1.0, None)
    known = [
        "schema", "run", "compiled_by", "verdict", "stages", "graphs", "violations", "numerics", "benchmark", "guards",
        "repros",
    ]  # fmt: skip
    assert [key for key in result if key in known] == known
    assert set(result["benchmark"]) == {
        "reference", "test", "speedup", "speedup_ci95", "established", "not_established"
    }  # fmt: skip
    assert result["numerics"]["verdict"] is None and result["violations"]["total"] is None


def test_parts_of_two_stages_are_merged() -> None:
    parts = {"lower": {"test": {"compile_s": 4.0}}, "benchmark": {"test": {"median_ms": 2.0}, "speedup": 3}}
    records = {name: StageRecord(name, "passed", 1.0, "", {"benchmark": part}) for name, part in parts.items()}
    side = build_summary(Run(), records, records, 2.0, None)["benchmark"]["test"]
    assert (side["compile_s"], side["median_ms"], side["samples"]) == (4.0, 2.0, None)


def test_secrets_are_not_recorded() -> None:
    assert environment_that_matters({"HF_TOKEN": "s", "OMP_NUM_THREADS": "2", "HOME": "/x"}) == {"OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a.b=8", ("a.b", "8")),
        ("+a=x=y", ("a", "x=y")),
        ("++a=", ("a", "")),
        ("~stages.lower", ("stages.lower", "(removed)")),
    ],
)
def test_overrides_become_columns(override: str, expected: tuple[str, str]) -> None:
    assert split_override(override) == expected


@pytest.mark.usefixtures("stages_on_path")
def test_the_sweeps_table_has_a_row_for_every_job_whatever_became_of_it(tmp_path: Path) -> None:
    jobs = [tmp_path / name for name in "0123"]
    assert execute(jobs[0], "plain", "report").code == 0
    assert sweep_exit_code(jobs[:1]) == 0
    execute(jobs[1], "plain", "constrain", "lower")
    execute(jobs[2], "plain", "rejects", keep_rejected=True)
    (jobs[3] / ".hydra").mkdir(parents=True)
    (jobs[3] / ".hydra" / "overrides.yaml").write_text("- seed=9\n- dtype=float16\n")
    (jobs[3] / "summary.json").write_text('{"schema": 0, "verdict": "passed"}')
    rows = list(csv.DictReader(write_sweep_table(tmp_path, jobs).path.open()))
    assert [row["dir"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["id"] for row in rows] == [f"{tmp_path.name}/{name}" for name in "0123"]
    assert [row["verdict"] for row in rows] == ["passed", "failed", "rejected", "crashed"]
    assert [row["exit_code"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["override.seed"] for row in rows] == ["1", "1", "1", "9"]
    assert rows[1]["violations"] == "2" and rows[1]["stage.lower"] == "skipped"
    assert "stages.rejects.x: got 1" in rows[2]["error"] and "no valid summary.json" in rows[3]["error"]
    assert [sweep_exit_code(jobs[:2]), sweep_exit_code(jobs[:3]), sweep_exit_code(jobs)] == [1, 2, 3]
    assert json.loads((jobs[2] / "configuration_error.json").read_text())["exit_code"] == 2
