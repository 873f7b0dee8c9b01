"""``inductor-debug compare``: what is held to what, the head, exit codes, and the jobs of two sweeps."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stored_results import SUMMARY, compare_as_json, stored_result

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory.rundir import run_id

ROOT = Path(__file__).resolve().parents[3]
WORSE = {"summary": {"graphs/guards": 21}}


def sweep(folder: Path, *jobs: dict[str, Any], **every: Any) -> Path:
    """A sweep with a job for each set of settings; ``every`` is of all of them."""
    for number, settings in enumerate(jobs):
        shared = every.get("settings", {})
        stored_result(folder / f"{number}-job", **(every | {"settings": settings | shared}))
    return folder


def test_a_worse_run_is_exit_code_1_and_the_reason_comes_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", **WORSE)
    assert cli.main(["compare", str(a), str(b)]) == 1
    printed = capsys.readouterr().out
    assert (
        printed.splitlines()[-1] == "B is worse than A: 1 worse, 0 better, 0 not established (exit code 1): guards: +1"
    )
    assert "worse (1):\nwhat    A   B   change  limit\nguards  20  21  +1      guards: 0\n" in printed
    assert cli.main(["compare", str(b), str(a)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "B is no worse than A beyond the limits: 0 worse, 1 better, 0 not established (exit code 0)"
    )


def test_what_differs_between_the_sides_comes_before_what_got_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = stored_result(tmp_path / "a")
    b = stored_result(tmp_path / "b", summary={"compiled_by/versions/torch": "2.14.0", "graphs/guards": 21})
    found = compare_as_json(a, b, capsys=capsys)
    assert list(found["tables"]) == [
        "runs", "compiled_by", "settings", "worse", "better", "not_established", "results", "kernels", "outputs"
    ]  # fmt: skip
    assert found["tables"]["compiled_by"] == [{"compiled_by": "versions.torch", "1": "2.13.0", "2": "2.14.0"}]
    assert found["told"][0] == f"A, the baseline, is {run_id(a)}. B, which is compared with it, is {run_id(b)}."
    assert found["reason"] == "B is worse than A: 1 worse, 0 better, 0 not established (exit code 1): guards: +1"


def test_a_run_is_not_held_to_itself_or_to_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that names one folder twice would pass for ever."""
    a = stored_result(tmp_path / "a", summary={"run/identity": "abc"})
    (tmp_path / "link").symlink_to(a)
    shutil.copytree(a, tmp_path / "copy")
    for b in (a, tmp_path / "link", tmp_path / "copy"):
        found = compare_as_json(a, b, capsys=capsys)
        (row,) = found["tables"]["not_established"]
        assert row["change"].startswith("A and B are one run") and row["fails"] and found["exit_code"] == 1
        assert found["reason"].endswith(
            "(exit code 1): run: A and B are one run, or copies of it: nothing new was compared"
        )
    assert compare_as_json(a, stored_result(tmp_path / "b"), capsys=capsys)["exit_code"] == 0


def test_another_backend_is_held_to_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"backend/name": "acme", "backend/inductor": {"freezing": True}}
    found = compare_as_json(
        stored_result(tmp_path / "a"), stored_result(tmp_path / "b", settings=changes), capsys=capsys
    )
    differs = "backend.name: inductor in A, acme in B; backend.inductor.freezing: not set in A, True in B"
    assert found["exit_code"] == 0 and found["told"][1:] == [f"A and B differ in 2 settings ({differs})."]


def test_what_differs_in_settings_and_in_what_compiled_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = {
        "versions/torch": "2.14.0",
        "variables": {"TORCH_X": "f" * 40},
        "options/inductor/freezing": True,
    }
    changed = {f"compiled_by/{key}": value for key, value in compiled.items()}
    b = stored_result(tmp_path / "b", settings={"backend/inductor": {"freezing": True}}, summary=changed)
    (told,) = [line for line in compare_as_json(stored_result(tmp_path / "a"), b, capsys=capsys)["told"]
               if "differ in" in line]  # fmt: skip
    assert told.startswith("A and B differ in 1 setting (backend.inductor.freezing: not set in A, True in B) and in 2 ")
    assert "versions.torch: " in told and "2.14.0 in B" in told and f"{'f' * 24}… in B" in told
    unknown = [
        stored_result(tmp_path / name, without=(".hydra/config.yaml",), summary={"compiled_by": None}) for name in "gh"
    ]
    assert not any("same settings" in line for line in compare_as_json(*unknown, capsys=capsys)["told"])
    without = [stage for stage in SUMMARY["stages"] if stage["name"] != "kerneldiff"]
    c = stored_result(tmp_path / "e", settings={"stages": {}}, summary={"stages": without})
    assert compare_as_json(c, stored_result(tmp_path / "f"), capsys=capsys)["told"][1] == (
        "A and B have the same settings and versions. B alone ran kerneldiff."
    )
    captured = [stage for stage in SUMMARY["stages"] if stage["name"] in ("capture", "constrain")]
    option = {"compiled_by/options/inductor/fallback_random": True}
    i = stored_result(tmp_path / "i", settings={"stages": {}}, summary={"stages": captured} | option)
    told = compare_as_json(i, stored_result(tmp_path / "j"), capsys=capsys)["told"]
    assert "fallback_random" not in " ".join(told)  # it compiled nothing
    k = stored_result(tmp_path / "k", summary=option)
    assert "fallback_random" in " ".join(compare_as_json(k, stored_result(tmp_path / "l"), capsys=capsys)["told"])
    same = compare_as_json(stored_result(tmp_path / "c"), stored_result(tmp_path / "d"), capsys=capsys)["told"]
    assert same[1:] == ["A and B have the same settings and versions."]


def test_what_a_run_does_not_know_of_its_compiler_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose capture came from the cache has no options: its backend compiled nothing."""
    option = {"compiled_by/options/inductor/fallback_random": True}
    a = stored_result(tmp_path / "a", summary=option)
    b = stored_result(tmp_path / "b", summary={"compiled_by/options": None})
    found = compare_as_json(a, b, capsys=capsys)
    assert found["tables"]["compiled_by"] == []
    assert found["told"][1].endswith("versions. Of what compiled them, one of the two did not record: options.")
    other = stored_result(tmp_path / "c", summary={"compiled_by/options/inductor/fallback_random": False})
    assert compare_as_json(a, b, other, capsys=capsys)["tables"]["compiled_by"] == [
        {"compiled_by": "options.inductor.fallback_random", "1": True, "2": "not established", "3": False}
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("model/name", "bert"), ("model/batch_size", 2), ("model/build", {"_target_": "nets.build", "layers": 2}),
     ("dtype", "bfloat16"), ("device", "cuda"), ("mode", "training"), ("seed", 1)],
)  # fmt: skip
def test_another_case_is_told_and_never_passed(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", settings={key: value})
    found = compare_as_json(a, b, capsys=capsys)
    (row,) = found["tables"]["not_established"]
    assert row["what"].startswith(key.replace("/", ".")) and row["fails"] and found["exit_code"] == 1
    head = f"not the same case, so that a result of one can't be held to the other's: {row['what']}"
    assert any(told.startswith(head) for told in found["told"])
    (tmp_path / "limits.yaml").write_text("case: null")
    allowed = compare_as_json(a, b, "--limits", tmp_path / "limits.yaml", capsys=capsys)
    assert allowed["exit_code"] == 0 and any(told.startswith("not the same case") for told in allowed["told"])


def test_another_profile_or_measure_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"accel/alignment": 32, "stages/kerneldiff/factor": 8.0}
    found = compare_as_json(
        stored_result(tmp_path / "a"), stored_result(tmp_path / "b", settings=changes), capsys=capsys
    )
    assert "held by other measures: accel.alignment (16, 32), stages.kerneldiff.factor (4.0, 8.0)" in found["told"]
    assert found["exit_code"] == 0


def test_a_key_that_a_newer_version_added_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = stored_result(tmp_path / "b", settings={"model/exercise": True})
    found = compare_as_json(stored_result(tmp_path / "a"), b, capsys=capsys)
    assert found["exit_code"] == 0 and not any("another case" in line for line in found["told"])
    assert found["tables"]["not_established"] == []


def test_without_a_stored_configuration_the_summary_tells_the_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (
        stored_result(tmp_path / name, without=(".hydra/config.yaml",), summary={"run/dtype": name}) for name in "ab"
    )
    assert [row["what"] for row in compare_as_json(a, b, capsys=capsys)["tables"]["not_established"]] == ["dtype"]


def test_without_a_stored_configuration_what_was_typed_tells_the_case_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an export, which has none; the other side may have one, but is known by the same then."""
    a, c = stored_result(tmp_path / "a", without=(".hydra/config.yaml",)), stored_result(tmp_path / "c")
    typed = {"run/overrides": ["model=nets", "model.batch_size=4"]}
    b = stored_result(tmp_path / "b", without=(".hydra/config.yaml",), summary=typed)
    d = stored_result(tmp_path / "d", summary=typed)
    e = stored_result(tmp_path / "e", settings={"model/batch_size": 4})  # as a rerun of b, for which nothing was typed
    for one, other, code in ((a, b, 1), (a, d, 1), (a, c, 0), (b, d, 0), (b, e, 0)):
        found = compare_as_json(one, other, capsys=capsys)
        rows = [(row["what"], row["A"], row["B"]) for row in found["tables"]["not_established"]]
        assert rows == ([("model.batch_size", "not typed", "4")] if code else []) and found["exit_code"] == code
        assert any(line.startswith("no configuration is stored, so that settings are") for line in found["told"])


def test_a_job_is_matched_where_the_file_that_its_group_names_was_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sweep_of(folder: Path, waivers: int, **more: Any) -> Path:
        for chip, count in (("chip_a", waivers), ("chip_b", 0)):
            profile = {"accel/name": chip, "accel/waivers": [{"rule": "alignment"}] * count}
            stored_result(folder / chip, settings=profile, summary={"run/overrides": [f"accel={chip}"]} | more)
        return folder

    a, b = sweep_of(tmp_path / "a", 0), sweep_of(tmp_path / "b", 1, **{"graphs/guards": 21})
    found = compare_as_json(a, b, capsys=capsys)
    assert [row["what"] for row in found["tables"]["worse"]] == ["guards", "guards"]
    assert any(line.startswith("held by other measures: accel.waivers") for line in found["told"])
    assert found["told"][0].endswith(
        "2 jobs of B held to A's with the same accel.name, accel.waivers, or by what was typed alone (1 job)"
    )


def test_what_is_from_the_cache_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = stored_result(tmp_path / "b", summary={"stages/lower/cached": True})
    found = compare_as_json(stored_result(tmp_path / "a"), b, capsys=capsys)
    assert "B's from the cache, and not measured anew: lower" in found["told"]


def test_three_runs_and_one_sweep_are_held_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [stored_result(tmp_path / "runs" / name, **WORSE if name == "b" else {}) for name in "abc"]
    for folders in (runs, [tmp_path / "runs"], [runs[0], tmp_path / "runs"]):
        found = compare_as_json(*folders, capsys=capsys)
        assert "worse" not in found["tables"] and "exit_code" not in found


A8, A16, A32 = ({"accel/alignment": alignment} for alignment in (8, 16, 32))


def test_jobs_are_matched_by_their_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = sweep(tmp_path / "a", A8, A16)
    b = sweep(tmp_path / "b", A32, A16, A8)
    stored_result(b / "1-job", settings=A16, **WORSE)
    found = compare_as_json(a, b, capsys=capsys)
    assert [(row["job"], row["what"]) for row in found["tables"]["worse"]] == [("accel.alignment=16", "guards")]
    assert "only in B, and held to nothing: accel.alignment=32" in found["told"]
    assert "2 jobs of B held to A's with the same accel.alignment" in found["told"][0]
    assert len(found["tables"]["runs"]) == 5


def test_another_backend_in_all_jobs_hinders_no_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = sweep(tmp_path / "a", A8, A16)
    b = sweep(tmp_path / "b", A16, A8, settings={"backend/name": "acme"})
    found = compare_as_json(a, b, capsys=capsys)
    assert found["exit_code"] == 0 and len(found["told"]) == 1


def test_a_job_that_b_lacks_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = sweep(tmp_path / "a", A8, A16, A32), sweep(tmp_path / "b", A8, A32)
    found = compare_as_json(a, b, capsys=capsys)
    assert [(row["job"], row["A"], row["B"], row["change"]) for row in found["tables"]["worse"]] == [
        ("accel.alignment=16", "passed", None, "B has no such job")]  # fmt: skip
    assert compare_as_json(b, a, capsys=capsys)["exit_code"] == 0


def test_a_job_that_left_no_result_is_worse_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sweep(tmp_path / "a", A8, A16), sweep(tmp_path / "b", A8, A16, **WORSE)
    (b / "0-job/summary.json").unlink()
    found = compare_as_json(a, b, capsys=capsys)
    assert [(row["job"], row["what"], row["B"]) for row in found["tables"]["worse"]] == [
        ("accel.alignment=8", "job", "no result"), ("accel.alignment=16", "guards", 21)]  # fmt: skip
    (row,) = compare_as_json(b, a, capsys=capsys)["tables"]["not_established"]
    assert (row["job"], row["what"], row["A"], row["fails"]) == ("accel.alignment=8", "job", "no result", False)


def test_a_setting_that_was_looked_up_elsewhere_is_what_the_run_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"seed": "${oc.env:S}"}
    a, b, c = (stored_result(tmp_path / name, settings=text) for name in "abc")
    for run, seed in ((a, 1), (b, 2), (c, 1)):
        (run / ".hydra" / "resolved.yaml").write_text(f"seed: {seed}\n")
    found = compare_as_json(a, b, capsys=capsys)
    (row,) = (row for row in found["tables"]["not_established"] if row["what"] == "seed")
    assert (row["A"], row["B"], row["fails"], found["exit_code"]) == (1, 2, True, 1)
    assert "1 setting (seed: 1 in A, 2 in B)" in " ".join(found["told"])
    assert compare_as_json(a, c, capsys=capsys)["exit_code"] == 0


def test_two_jobs_with_results_are_not_a_and_b(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first sweep two jobs have a result, of the second none; then none of either."""
    a, b = sweep(tmp_path / "a", A8, A16), sweep(tmp_path / "b", A8, A16)
    for path in b.glob("*/summary.json"):
        path.unlink()
    page = tmp_path / "page.html"
    assert cli.main(["compare", str(a), str(b), "--page", str(page)]) == 1
    assert "A and B differ in" not in capsys.readouterr().out + page.read_text()
    for path in a.glob("*/summary.json"):
        path.unlink()
    assert cli.main(["compare", str(a), str(b)]) == 1
    assert "no job of A has a result" in capsys.readouterr().out


def test_a_sweep_without_any_result_holds_nothing_and_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sweep(tmp_path / "a", A8, A16), sweep(tmp_path / "b", A8, A16)
    for job in a.iterdir():
        (job / "summary.json").unlink()
    found = compare_as_json(a, b, capsys=capsys)
    assert found["exit_code"] == 1 and found["tables"]["not_established"][-1]["change"] == "no job of A has a result"


def test_jobs_of_equal_settings_are_paired_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = sweep(tmp_path / "a", A8, A8, A16), sweep(tmp_path / "b", A8, A16, A8)
    found = compare_as_json(a, b, capsys=capsys)
    assert found["exit_code"] == 0 and "3 jobs of B held" in found["told"][0]


def test_a_job_that_b_has_fewer_of_is_worse_and_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sweep(tmp_path / "a", A8, A8, A16), sweep(tmp_path / "b", A8, A16)
    found = compare_as_json(a, b, capsys=capsys)
    assert [(row["job"], row["change"]) for row in found["tables"]["worse"]] == [
        ("accel.alignment=8", "B has 1 such job, A has 2")
    ]
    assert found["exit_code"] == 1 and "2 jobs of B held" in found["told"][0]


def test_jobs_that_only_how_they_ran_tells_apart_are_matched_by_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = [{"runner": {"timeout_s": seconds}} for seconds in (4, 300)]
    a, b = sweep(tmp_path / "a", *limits), sweep(tmp_path / "b", *reversed(limits))
    stored_result(b / "1-job", settings=limits[0], **WORSE)
    found = compare_as_json(a, b, capsys=capsys)
    assert [row["job"] for row in found["tables"]["worse"]] == ["runner.timeout_s=4"]
    assert "the same runner.timeout_s" in found["told"][0]
    other = sweep(tmp_path / "c", *({"runner": {"timeout_s": seconds}} for seconds in (600, 300)))
    found = compare_as_json(a, other, capsys=capsys)
    assert found["exit_code"] == 0 and "2 jobs of B held" in found["told"][0]  # how they ran hinders no match


def test_a_run_without_a_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", without=("summary.json",))
    assert cli.main(["compare", str(a), str(b)]) == 2
    assert "no result: the run was killed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["constrain/violations.csv", "benchmark/samples.csv", "lower/summary.json"])
def test_a_file_that_is_damaged_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", files={name: "x,y\n1\n"})
    assert cli.main(["compare", str(a), str(b)]) == 2
    printed = capsys.readouterr()
    assert name in printed.err and printed.out == ""


def test_what_a_manifest_tells_of_its_machine_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for machine in ([], {"hostname": 7}, "x"):
        b = stored_result(tmp_path / "b", files={"manifest.json": {"machine": machine}})
        assert cli.main(["compare", str(stored_result(tmp_path / "a")), str(b)]) == 2
        assert "manifest.json" in capsys.readouterr().err
        shutil.rmtree(b)


def test_neither_torch_nor_pandas_nor_hydra_is_imported(tmp_path: Path) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", **WORSE)
    program = (
        "import sys; from inductor_debug.pipeline.cli import main\n"
        f"code = main(['compare', {str(a)!r}, {str(b)!r}])\n"
        "print(code, [name for name in ('torch', 'pandas', 'hydra', 'omegaconf', 'nets') if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1 []", done.stderr
