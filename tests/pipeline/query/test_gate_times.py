"""``compare A B``: latency by intervals over processes, and times of one machine alone."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from stored_results import MACHINE, TIMES, compare_as_json, stored_result

NOISE = (0.995, 1.0, 1.005, 1.0, 0.998)
Rows = dict[str, dict[str, Any]]


def times(reference: float = 1.0, test: float = 1.0, noise: tuple[float, ...] = NOISE) -> dict[str, Any]:
    """The usual run's times, each side with a factor, each process with one for both sides."""
    factors = {"reference": reference, "test": test}
    return {side: tuple(value * factors[side] * each for value, each in zip(TIMES[side], noise, strict=False))
            for side in TIMES}  # fmt: skip


def held(before: dict[str, Any], now: dict[str, Any], tmp_path: Path, capsys: Any) -> tuple[Rows, Rows, int]:
    """What got worse and what is not established, each by its name, and the exit code."""
    a, b = stored_result(tmp_path / "a", **before), stored_result(tmp_path / "b", **now)
    found = compare_as_json(a, b, capsys=capsys)
    tables = [{row["what"]: row for row in found["tables"][name]} for name in ("worse", "not_established")]
    return tables[0], tables[1], found["exit_code"]


@pytest.mark.parametrize(
    ("reference", "versions", "paired"),
    [(0.0, {"triton": "3.6"}, True), (None, {"triton": "3.6"}, False), (None, {}, True)],
)
def test_a_reference_that_is_compiled_is_the_same_only_where_what_compiled_it_is(
    reference: float | None, versions: dict[str, str], paired: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides of B are half as fast again: by the machine, or by another compiler of both."""
    known = {"benchmark/reference/compile_s": reference}
    other = {f"compiled_by/versions/{name}": version for name, version in versions.items()}
    before, now = {"summary": known}, {"summary": known | other, "times": times(1.5, 1.5)}
    worse, unknown, code = held(before, now, tmp_path, capsys)
    assert worse == {} and code == (0 if paired else 1)
    assert ("latency (ms)" in unknown) is not paired


def test_of_an_export_no_machine_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nameless = {name: value for name, value in MACHINE.items() if name != "hostname"}
    a = stored_result(tmp_path / "a", files={"manifest.json": {"machine": nameless}})
    found = compare_as_json(a, stored_result(tmp_path / "b"), capsys=capsys)
    told = {row["what"]: row["change"] for row in found["tables"]["not_established"]}
    assert told["latency (ms)"] == "not compared: which machine A ran on is not known" and found["exit_code"] == 0


@pytest.mark.parametrize(
    ("launcher", "mode", "reason"),
    [
        ({"_target_": "x.joblib_launcher.JoblibLauncher", "n_jobs": 8}, "MULTIRUN", "JoblibLauncher"),
        ({"_target_": "x.joblib_launcher.JoblibLauncher", "n_jobs": 8}, "RUN", None),
        ({"_target_": "x.joblib_launcher.JoblibLauncher", "n_jobs": 1}, "MULTIRUN", None),
        ({"_target_": "x.basic_launcher.BasicLauncher"}, "MULTIRUN", None),
        (None, "MULTIRUN", None),
    ],
)
def test_a_compile_time_beside_other_jobs_of_a_sweep_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launcher: Any, mode: str, reason: str | None
) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", lowering={"compile_s": 90.0})
    (b / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump({"hydra": {"mode": mode, "launcher": launcher}}))
    tables = compare_as_json(a, b, capsys=capsys)["tables"]
    worse, unknown = ({row["what"]: row for row in tables[name]} for name in ("worse", "not_established"))
    assert ("compile time (s)" in worse) == (reason is None)
    if reason is not None:
        told = f"B's is not established: other jobs of its sweep may have worked at the same time ({reason})"
        assert unknown["compile time (s)"]["change"] == told


def test_a_slower_step_is_worse_and_told_with_its_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse, _, code = held({}, {"times": times(test=1.1)}, tmp_path, capsys)
    (row,) = worse.values()
    assert (row["what"], row["limit"], code) == ("latency (ms)", "latency: 1.05", 1)
    assert row["change"].startswith("1.1 times (95 %: 1.0") and "over the time of the reference" in row["change"]


def test_a_step_that_is_slower_by_less_than_the_limit_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert held({}, {"times": times(test=1.03)}, tmp_path, capsys) == ({}, {}, 0)


def test_a_faster_step_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stored_result(tmp_path / "a"), stored_result(tmp_path / "b", times=times(test=0.9))
    assert [row["what"] for row in compare_as_json(a, b, capsys=capsys)["tables"]["better"]] == ["latency (ms)"]


def test_a_slower_device_behind_a_host_that_is_as_slow_as_before_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = ({"device": {"reference": 0.5, "test": share}} for share in (0.5, 0.6))
    worse, unknown, code = held(before, now, tmp_path, capsys)
    assert (list(worse), unknown, code) == (["latency on the device (ms)"], {}, 1)


def test_one_slow_sample_or_process_makes_nothing_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = {"reference": TIMES["reference"], "test": (*TIMES["test"][:4], 4 * TIMES["test"][4])}
    worse, unknown, code = held({}, {"times": noisy}, tmp_path, capsys)
    assert worse == {} and code == 0
    assert unknown["latency (ms)"]["change"].startswith("no more than noise: 1.3")


def test_a_machine_that_is_slower_today_makes_nothing_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides of a process are."""
    assert held({}, {"times": times(1.5, 1.5)}, tmp_path, capsys) == ({}, {}, 0)


@pytest.mark.parametrize(
    "changes",
    [{"compiled_by/versions/torch": "2.14.0"}, {"compiled_by/model/files": {"nets": "def"}},
     {"compiled_by/variables": {"OMP_NUM_THREADS": "1"}}, {"compiled_by/settings": {"x": 1}}],
)  # fmt: skip
def test_another_reference_is_no_measure_of_the_machine(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slower torch may be slower on both sides, which is not passed; where the test side alone is, it is worse."""
    worse, unknown, code = held({}, {"times": times(1.5, 1.5), "summary": changes}, tmp_path / "both", capsys)
    assert (worse, code) == ({}, 1) and unknown["latency (ms)"]["fails"]
    assert "the machine's doing, or the reference's" in unknown["latency (ms)"]["change"]
    worse, _, code = held({}, {"times": times(1.0, 1.5), "summary": changes}, tmp_path / "test", capsys)
    assert list(worse) == ["latency (ms)"] and "reference" not in worse["latency (ms)"]["change"] and code == 1
    faster = {"times": times(0.5, 1.0), "summary": changes}  # the reference alone is another
    assert held({}, faster, tmp_path / "reference", capsys) == ({}, {}, 0)


def test_of_another_case_the_reference_is_none_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"times": times(1.5, 1.5), "settings": {"model/batch_size": 2}}
    worse, unknown, _ = held({}, changes, tmp_path, capsys)
    assert worse == {} and list(unknown) == ["model.batch_size", "latency (ms)"]


@pytest.mark.parametrize(
    "machine", [{"hostname": "other"}, {"cpu": "another cpu"}, {"cores_usable": 1}]
)  # fmt: skip
def test_times_of_another_machine_are_told_and_not_judged(
    machine: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"machine": machine, "times": times(test=9.0), "lowering": {"compile_s": 900.0}}
    worse, unknown, code = held({}, changes, tmp_path, capsys)
    assert worse == {} and code == 0 and list(unknown) == ["compile time (s)", "latency (ms)"]
    for row in unknown.values():
        assert row["change"].startswith("not compared: times of another machine: ") and row["fails"] is False


def test_times_and_memory_of_another_device_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"compiled_by/device": {"name": "a GPU", "threads": 2}, "benchmark/test/peak_memory_bytes": 9000}
    worse, unknown, code = held({}, {"summary": summary, "times": times(test=9.0)}, tmp_path, capsys)
    assert worse == {} and code == 0
    assert list(unknown) == ["compile time (s)", "latency (ms)", "peak memory (bytes)"]


def test_a_machine_that_is_not_known_is_no_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse, unknown, _ = held({}, {"without": ("manifest.json",), "times": times(test=9.0)}, tmp_path, capsys)
    assert worse == {} and "which machine B ran on is not known" in unknown["latency (ms)"]["change"]


DOUBTED = {"summary": {"benchmark/established": False, "benchmark/not_established": "others took 49 %"}}


def test_a_latency_that_is_not_established_is_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse, unknown, code = held({}, DOUBTED, tmp_path, capsys)
    assert (worse, code) == ({}, 1)
    assert unknown["latency (ms)"]["change"] == "B's is not established: others took 49 %"


def test_nor_is_anything_held_to_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worse, unknown, code = held(DOUBTED, {"times": times(test=9.0)}, tmp_path, capsys)
    assert (worse, code) == ({}, 0) and unknown["latency (ms)"]["fails"] is False


def test_one_process_establishes_no_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"times": {side: values[:1] for side, values in TIMES.items()}}
    _, unknown, code = held({}, one, tmp_path, capsys)
    assert unknown["latency (ms)"]["change"] == "B's is not established: one process sampled it" and code == 1


def test_times_that_are_none_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = {"times": {"reference": (0.0, -1.0, math.nan), "test": (0.0, -1.0, math.inf)}}
    _, unknown, code = held({}, none, tmp_path, capsys)
    assert unknown["latency (ms)"]["B"] is None and code == 1


def test_times_at_the_ends_of_what_is_one_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stranger's run may hold any; nothing overflows."""
    sides = [{"times": {"reference": ends, "test": ends[::-1]}} for ends in ((2e-6, 9e11), (9e11, 2e-6))]
    worse, unknown, code = held(sides[0], sides[1], tmp_path, capsys)
    assert worse == {} and unknown["latency (ms)"]["change"].startswith("no more than noise") and code == 0


def test_of_a_run_that_did_not_record_what_compiled_it_no_time_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is of an earlier version, and tells neither device nor torch."""
    old = {"summary": {"compiled_by": None}, "times": times(test=9.0)}
    for name, before, now in (("a", old, {}), ("b", {}, old), ("both", old, old)):
        worse, unknown, code = held(before, now, tmp_path / name, capsys)
        assert (worse, code) == ({}, 0) and "is not known" in unknown["latency (ms)"]["change"]


def test_a_reference_whose_code_was_not_recorded_is_not_taken_for_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No stage that needs torch told whose code the model is."""
    unknown_model = {"compiled_by/model": None}
    before, now = {"summary": unknown_model}, {"summary": unknown_model, "times": times(1.5, 1.5)}
    _, unknown, code = held(before, now, tmp_path, capsys)
    assert unknown["latency (ms)"]["fails"] and code == 1


def test_a_backend_that_lowers_nothing_has_its_compile_time_from_the_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = {"without": ("lower/summary.json",)}
    slow = bare | {"summary": {"benchmark/test/compile_s": 31.0}}
    worse, unknown, code = held(bare, slow, tmp_path, capsys)
    assert (list(worse), unknown, code) == (["compile time (s)"], {}, 1)


def test_a_warm_compilation_is_not_held_to_a_cold_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warm = {"lowering": {"compile_s": 1.0, "caches/kind": "warm"}}
    worse, unknown, code = held({}, warm, tmp_path, capsys)
    assert unknown["compile time (s)"]["change"] == "other caches: A's compilation was cold, B's warm"
    assert (worse, code) == ({}, 1)


def test_a_compilation_is_not_held_to_one_whose_caches_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a backend that is not TorchInductor, what it found in caches of its own is not known."""
    other = {"lowering": {"caches/kind": "unknown"}}
    for name, before, now, code in (("a", other, {}, 0), ("b", {}, other, 1)):
        worse, unknown, found = held(before, now, tmp_path / name, capsys)
        assert (worse, list(unknown), found) == ({}, ["compile time (s)"], code)


def test_two_compilations_that_found_some_of_the_code_are_not_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partly = {"lowering": {"caches/kind": "partly warm"}}
    slow = {"lowering": {"compile_s": 90.0, "caches/kind": "partly warm"}}
    for name, before, now, code in (("a", partly, slow, 0), ("b", {}, slow, 1)):
        worse, unknown, found = held(before, now, tmp_path / name, capsys)
        assert (worse, list(unknown), found) == ({}, ["compile time (s)"], code)


def load(taken: float) -> dict[str, Any]:
    """benchmark/environment.json of a process that others took a share of the cores from."""
    busy = {"wall_s": 1.0, "usable": 2.0, "needed": 2.0, "threads": 2, "own": 1.0, "others": 2 * taken, "waited": None,
            "involuntary": 0, "taken": taken}  # fmt: skip
    process = {"process": 0, "stopped": "", "first_warm_step_s": {}, "first_test_step": {}, "load": busy,
               "device_use": None, "after": None}  # fmt: skip
    return {"not_established": None, "others_on_device": None, "compiled_again": [], "processes": [process] * 2}


def test_a_compile_time_on_a_busy_machine_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"lowering": {"compile_s": 90.0}}
    quiet, busy = (
        {"files": {"benchmark/environment.json": load(0.0)}},
        {"files": {"benchmark/environment.json": load(0.5)}},
    )
    for name, before, now, code in (("b", quiet, busy, 1), ("a", busy, quiet, 0)):
        worse, unknown, found = held(before, slow | now, tmp_path / name, capsys)
        assert (worse, found) == ({}, code) and "other programs took 50 %" in unknown["compile time (s)"]["change"]
    worse, _, code = held(quiet, slow | quiet, tmp_path / "c", capsys)
    assert list(worse) == ["compile time (s)"] and code == 1
