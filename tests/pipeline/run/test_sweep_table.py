"""A sweep's tables: what changed from job to job, failures by fingerprint, and types that do not depend on values."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest

from inductor_debug.pipeline.run.sweep import write_sweep_table
from inductor_debug.pipeline.run.sweep.changes import Change, axes_of, changes_of, told
from inductor_debug.pipeline.run.sweep.rows import Row
from inductor_debug.stages.artifacts.records import ReproRecord


def row(place: str, violations: int, failures: tuple[str, ...] = (), **axes: str) -> Row:
    overrides = {f"override.{key}": value for key, value in axes.items()}
    found = [ReproRecord("repros/x.py", "defect", fingerprint=key) for key in failures]
    about = {"dir": place, "failures": found, "verdict": "passed", "seconds": 1.0, "stage.constrain": "passed"}
    return about | {"violations": violations, **overrides}


GRID = [
    row("a", 1, ("f1",), alignment="8", dtype="float32", cluster="ray"),
    row("b", 1, ("f1", "f2"), alignment="8", dtype="float16", cluster="basic"),
    row("c", 4, (), alignment="16", dtype="float32", cluster="basic"),
    row("d", 4, ("f2",), alignment="32", dtype="float16", cluster="basic"),  # 16 is not there: 8 is the nearest
]


def test_a_job_is_compared_with_its_neighbour_along_each_axis() -> None:
    first, second, third, fourth = changes_of(GRID)
    assert first == []
    assert second == [Change("dtype", "float32", "float16", "alignment=8", "a", "failures", None, "f2")]
    assert third == [
        Change("alignment", "8", "16", "dtype=float32", "a", "violations", "1", "4"),
        Change("alignment", "8", "16", "dtype=float32", "a", "failures", "f1", None),
    ]
    assert {(change.axis, change.axis_before, change.neighbour) for change in fourth} == {("alignment", "8", "b")}
    assert told(third) == ["alignment 8 → 16 (dtype=float32): violations 1 → 4, 1 gone failure (f1)"]
    assert told(second) == ["dtype float32 → float16 (alignment=8): 1 new failure (f2)"]


def test_a_step_that_changes_nothing_says_so_and_many_failures_are_counted() -> None:
    same = changes_of([row("a", 1, alignment="8"), row("b", 1, alignment="16")])[1]
    assert told(same) == ["alignment 8 → 16: nothing"]
    many = changes_of([row("a", 1, alignment="8"), row("b", 1, tuple("vwxyz"), alignment="16")])[1]
    assert told(many) == ["alignment 8 → 16: 5 new failures (v, w, x, …)"]


def test_how_jobs_are_run_is_an_axis_where_nothing_else_tells_them_apart() -> None:
    short, whole = ({"override.runner.timeout_s": value} for value in ("4", "300"))
    job, other = row("a", 1), row("b", 1) | {"stage.minify": "passed"}
    assert told(changes_of([job | short, other | whole])[1]) == ["runner.timeout_s 4 → 300: stage.minify - → passed"]
    along = changes_of([row("a", 1, alignment="8") | short, row("b", 2, alignment="16") | whole])[1]
    assert told(along) == ["alignment 8 → 16: violations 1 → 2"]


def test_a_job_that_has_not_started_makes_no_axis_of_how_the_others_run() -> None:
    """Where a launcher gave up, no override of such a job is known."""
    how = {"override.cluster": "slurm", "override.runner.timeout_s": "300"}
    rows = [row("a", 1, alignment="8") | how, row("b", 2, alignment="16") | how, row("c", 0), row("d", 0)]
    assert axes_of(rows) == ["override.alignment"]


def test_what_a_job_did_not_establish_is_compared_with_nothing() -> None:
    whole, other = row("a", 3, ("f1",), alignment="8"), row("b", 5, ("f2",), alignment="16")
    short = other | {"verdict": "crashed", "stage.constrain": "crashed", "violations": None, "failures": []}
    (found,) = (told(changes) for changes in changes_of([whole, short]) if changes)
    assert found == ["alignment 8 → 16: verdict passed → crashed, stage.constrain passed → crashed"]
    back = changes_of([short | {"override.alignment": "8"}, other])[1]
    assert {change.column for change in back} == {"verdict", "stage.constrain"}


def test_a_failure_is_not_gone_where_nobody_looked_for_it() -> None:
    """A strict profile that is broken skips the stages behind it."""
    looked = row("a", 1, ("f1",), alignment="8") | {"stage.kerneldiff": "failed"}
    broken, without = (row("b", 1, alignment="32") | more for more in ({"stage.kerneldiff": "skipped"}, {}))
    for rows in ([looked, broken], [broken, looked], [looked, without], [without, looked]):
        assert "failures" not in {change.column for change in changes_of(rows)[1]}
    right = broken | {"stage.kerneldiff": "passed"}
    assert Change("alignment", "8", "32", "", "a", "failures", "f1", None) in changes_of([looked, right])[1]


def test_what_a_profile_only_warns_of_is_not_gone(tmp_path: Path) -> None:
    """A script is written where a strict profile is broken."""
    shown = {"failure_class": "violation:alignment", "path": "repros/x.py", "violations": 2, "fingerprint": "f1"}
    jobs = [job(tmp_path / name, overrides=[f"accel={name}"], total=2, by_severity={kind: 2}, repros=repros)
            for name, kind, repros in (("strict16", "error", [shown]), ("warn16", "warning", []))]  # fmt: skip
    assert write_sweep_table(tmp_path, jobs).told == ["failure f1 (violation:alignment) in at least 1 of 2 runs"]


def test_a_profile_without_rules_has_no_count_of_violations(tmp_path: Path) -> None:
    jobs = [job(tmp_path / name, overrides=[f"accel={name}"], total=total, by_rule=by_rule)
            for name, total, by_rule in (("none", None, {}), ("warn16", 83, {"alignment": 83}),
                                         ("warn8", 0, {}))]  # fmt: skip
    told = write_sweep_table(tmp_path, jobs).told
    assert told == ["accel none → warn16: violations.alignment - → 83",
                    "accel warn16 → warn8: violations.alignment 83 → 0"]  # fmt: skip


def test_a_violation_is_neither_gone_nor_new_where_others_are_left_without_a_script(tmp_path: Path) -> None:
    """Twenty are written of a run: at 16 that of another operation was written first."""
    shown = {"failure_class": "violation:alignment", "path": "repros/x.py", "violations": 2}
    jobs = [job(tmp_path / str(number), overrides=[f"accel.alignment={8 * number}"], total=total,
                by_severity={"error": total}, repros=[shown | {"fingerprint": f"f{number}"}])
            for number, total in ((1, 2), (2, 6), (3, 2))]  # fmt: skip
    said = write_sweep_table(tmp_path, jobs).told
    assert "failure f1 (violation:alignment) in at least 1 of 3 runs" in said
    assert "failure f2 (violation:alignment) in 1 of 3 runs" in said
    page = (tmp_path / "sweep.html").read_text()
    assert page.count(">≥ 1</td>") == 2 and "some of whose violations have no script" in page
    with (tmp_path / "sweep.csv").open() as file:
        changed = [line["changed"] for line in csv.DictReader(file)]
    assert changed[1:] == ["accel.alignment 8 → 16: violations.alignment 2 → 6, 1 new failure (f2)",
                           "accel.alignment 16 → 24: violations.alignment 6 → 2, 1 gone failure (f2)"]  # fmt: skip


def test_a_rule_of_which_no_script_is_written_hides_nothing_of_the_others(tmp_path: Path) -> None:
    shown = {"failure_class": "violation:alignment", "path": "repros/x.py", "violations": 2, "fingerprint": "f1"}
    jobs = [job(tmp_path / str(number), overrides=[f"accel.alignment={8 * number}"], total=total + 1,
                by_severity={"error": total + 1}, by_rule={"alignment": total, "memory_peak": 1},
                repros=[shown] if total else []) for number, total in ((1, 2), (2, 0))]  # fmt: skip
    said = write_sweep_table(tmp_path, jobs).told
    assert said == ["accel.alignment 8 → 16: violations.alignment 2 → 0, 1 gone failure (f1)",
                    "failure f1 (violation:alignment) in 1 of 2 runs"]  # fmt: skip


def test_a_job_that_has_not_started_is_no_neighbour() -> None:
    rows = [row("a", 0, alignment="8"), row("b", 0) | {"verdict": "crashed"}, row("c", 50, alignment="32")]
    first, lost, last = changes_of(rows)
    assert (first, lost) == ([], [])
    assert told(last) == ["alignment 8 → 32: violations 0 → 50"]


def test_another_digest_alone_is_told() -> None:
    rows = [row("a", 1, alignment="8") | {"digest": "x"}, row("b", 1, alignment="16") | {"digest": "y"}]
    changed = "nothing in these columns, but the stored result differs (digest)"
    assert told(changes_of(rows)[1]) == [f"alignment 8 → 16: {changed}"]


def job(folder: Path, **changed: Any) -> Path:
    """A stored job, as a run leaves it."""
    folder.mkdir(parents=True)
    run = {"id": folder.name, "overrides": changed["overrides"], "model": "bert", "seconds": 2.5, "dtype": "float32"}
    summary = {
        "schema": 1,
        "run": run,
        "verdict": changed.get("verdict", "passed"),
        "stages": [{"name": name, "status": changed.get(name, "passed"), "seconds": 1.0, "message": "",
                    "cached": name == "constrain" and changed.get("cached", False)}
                   for name in ("constrain", "kerneldiff")],
        "violations": {"total": changed["total"], "by_severity": changed.get("by_severity"),
                       "by_rule": changed.get("by_rule", {"alignment": changed["total"] or 0})},
        "benchmark": changed.get("benchmark"),
        "numerics": {"verdict": changed.get("numerics", "exact"), "max_abs": changed.get("max_abs", 0.0),
                     "max_ulp": changed.get("max_ulp")},
        "repros": changed.get("repros", []),
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    """Two sweeps: the second has another axis, no failure, and no finite error."""
    failure = {"path": "repros/a.py", "failure_class": "defect", "failure": "defect", "fingerprint": "abc123"}
    one = [job(tmp_path / "one" / str(value), overrides=[f"accel.alignment={value}"], total=value,
               repros=[failure] if value == 16 else []) for value in (8, 16)]  # fmt: skip
    same = {"total": 0, "max_abs": "inf", "cached": True}
    two = [job(tmp_path / "two" / name, overrides=[f"dtype={name}"], numerics=verdict, **same)
           for name, verdict in (("float16", "exact"), ("bfloat16", "defect"))]  # fmt: skip
    table = write_sweep_table(tmp_path / "one", one)
    assert table.told == [
        "accel.alignment 8 → 16: violations.alignment 8 → 16, 1 new failure (abc123)",
        "failure abc123 (defect) in 1 of 2 runs",
    ]
    assert write_sweep_table(tmp_path / "two", two).told == ["dtype float16 → bfloat16: numerics exact → defect"]
    return tmp_path


def test_an_error_of_float64_may_be_of_more_numbers_than_a_signed_whole_number_has(tmp_path: Path) -> None:
    """From -2.0 to 2.0 there are 2**63."""
    numerics = {"max_ulp": 2**63 + 7, "max_abs": 4.0, "numerics": "defect"}
    jobs = [job(tmp_path / name, overrides=[f"seed={name}"], total=0, **numerics) for name in "12"]
    write_sweep_table(tmp_path, jobs)
    assert pyarrow.parquet.read_table(tmp_path / "sweep.parquet")["max_ulp"].to_pylist() == [2**63 + 7] * 2
    assert duckdb.sql(f"select max(max_ulp) from '{tmp_path}/sweep.parquet'").fetchall() == [(2**63 + 7,)]


def test_both_tables_hold_the_same(sweeps: Path) -> None:
    rows = list(csv.DictReader((sweeps / "one" / "sweep.csv").open()))
    stored = pyarrow.parquet.read_table(sweeps / "one" / "sweep.parquet").to_pylist()
    assert [row["violations"] for row in rows] == ["8", "16"]
    assert [row["violations"] for row in stored] == [8, 16]
    assert [row["failures"] for row in rows] == ["", "abc123:defect"]
    assert [[item["fingerprint"] for item in row["failures"]] for row in stored] == [[], ["abc123"]]
    assert rows[1]["changed"].startswith("accel.alignment 8 → 16: violations.alignment 8 → 16")
    assert {change["column"] for change in stored[1]["changed"]} == {"violations", "violations.alignment", "failures"}
    assert set(stored[0]) == {"sweep", *rows[0]}
    assert stored[0]["sweep"] == f"{sweeps.name}/one"


def test_the_documented_queries_answer(sweeps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/sweep.md").read_text(encoding="utf-8")
    (sweeps / "outputs").symlink_to(sweeps)
    monkeypatch.chdir(sweeps)
    (written,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    failures, verdicts = (duckdb.sql(query).fetchall() for query in written.strip().split("\n\n"))
    assert failures == [("abc123", "defect", 1, 1)]
    assert [found[1:] for found in verdicts] == [("bert", "dtype", "float16", "bfloat16", "exact", "defect")]


def test_many_sweeps_are_one_table(sweeps: Path) -> None:
    schemas = [pyarrow.parquet.read_schema(sweeps / name / "sweep.parquet") for name in ("one", "two")]
    shared = set(schemas[0].names) & set(schemas[1].names)
    assert {name for name in shared if schemas[0].field(name) != schemas[1].field(name)} == set()
    every = f"read_parquet('{sweeps}/**/sweep.parquet', union_by_name=true)"
    assert duckdb.sql(f"select count(*), max(max_abs), sum(violations) from {every}").fetchall() == [
        (4, float("inf"), 24)
    ]
    failures = f"select f.fingerprint, count(*) from (select unnest(failures) as f from {every}) group by all"
    assert duckdb.sql(failures).fetchall() == [("abc123", 1)]
    cached = f"select distinct cached from {every} order by 1"
    assert duckdb.sql(cached).fetchall() == [("constrain",), (None,)]
