"""Results that are taken from earlier runs: which, when not, and that they are what a run without a cache finds."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import command

MODEL = """
import os

import torch


def build(batch_size=2):
    width = int(os.environ.get("MY_WIDTH", "20"))
    return torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.ReLU()), (torch.randn(batch_size, 16),)
"""
KILLED_IN_KERNELDIFF = """
import os
import signal
import threading
import time


def end():
    while os.path.exists("killed"):
        if "kerneldiff …" in open("outputs/a/killed/run.log").read():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)


threading.Thread(target=end, daemon=True).start()
"""
WORDS = ("model=custom", "model.build._target_=mine.build", "model.name=mine", "backend=aot_eager", "accel=warn16")
STAGES = "stages=[capture,constrain,kerneldiff,report]"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model of its own."""
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def run(place: Path, *words: str, code: int = 0) -> tuple[str, dict[str, Any]]:
    """What a run printed, and its summary."""
    before = set(place.glob("outputs/*/*/summary.json"))
    words = words if any("runner.cache=" in word for word in words) else (*words, "runner.cache=true")
    done = command(*WORDS, *words, cwd=place)
    assert done.returncode == code, done.stdout + done.stderr
    (path,) = set(place.glob("outputs/*/*/summary.json")) - before
    return done.stdout + done.stderr, json.loads(path.read_text()) | {"folder": str(path.parent)}


def cached(summary: dict[str, Any]) -> list[str]:
    return [stage["name"] for stage in summary["stages"] if stage["cached"]]


def digest(summary: dict[str, Any]) -> str:
    return str(json.loads((Path(summary["folder"]) / "manifest.json").read_text())["digest"])


def test_a_sweep_makes_once_what_an_axis_does_not_change(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", str(place / "fonts"))  # whose list of fonts is not made yet: it counts nowhere
    done = command(*WORDS, STAGES, "--multirun", "accel.alignment=8,16", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = sorted(place.glob("outputs/*/*-sweep/*/summary.json"))
    jobs = [json.loads(path.read_text()) | {"folder": str(path.parent)} for path in paths]
    assert [cached(job) for job in jobs] == [[], ["capture", "kerneldiff"]]
    assert "constrain: not in the cache: " in done.stdout + done.stderr
    assert "differs in settings.accel.alignment (8 → 16)" in done.stdout + done.stderr
    text, alone = run(place, STAGES, "accel.alignment=16", "runner.cache=false")
    assert cached(alone) == [] and "in the cache" not in text
    assert digest(alone) == digest(jobs[1]) != digest(jobs[0])
    text, again = run(place, STAGES, "accel.alignment=16")
    assert cached(again) == ["capture", "constrain", "kerneldiff"]
    assert "preflight: running the model" not in text  # no stage needs it, so it is not built
    assert digest(again) == digest(alone)
    assert again["compiled_by"] == alone["compiled_by"]
    assert {key: again[key] for key in ("graphs", "violations", "numerics")} == {
        key: alone[key] for key in ("graphs", "violations", "numerics")
    }
    files = json.loads((Path(again["folder"]) / "manifest.json").read_text())["files"]
    assert {"capture/graphs/g0.forward.json", "kerneldiff/outputs.csv"} <= files.keys()


@pytest.mark.slow
def test_a_kept_result_brings_no_options_of_a_backend_that_it_was_not_asked_about(place: Path) -> None:
    only = ("stages=[capture,report]", "backend=inductor")
    _, other = run(place, *only, "backend.inductor.max_fusion_size=2")
    assert other["compiled_by"]["options"]["inductor"]["max_fusion_size"] == 2
    _, plain = run(place, *only)
    assert cached(plain) == ["capture"]
    assert plain["compiled_by"]["options"] is None and plain["compiled_by"]["options_before"] is None
    assert plain["compiled_by"]["device"] == other["compiled_by"]["device"]
    done = command("rerun", plain["folder"], "--yes", cwd=place, module="inductor_debug")
    assert done.returncode == 0, done.stdout + done.stderr  # it was refused, as compiled with the other's options


@pytest.mark.slow
def test_the_users_code_and_the_variables_that_it_reads_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = "stages=[capture,constrain,report]"
    run(place, only)
    assert cached(run(place, only)[1]) == ["capture", "constrain"]
    monkeypatch.setenv("NOT_READ", "1")
    assert cached(run(place, only)[1]) == ["capture", "constrain"]
    with monkeypatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", "/nowhere")
        patch.setenv("HF_HOME", "/nowhere")  # a package looks it up, not the code
        text, other = run(place, only)
        assert (
            cached(other) == [] and "differs in variables.HF_HOME (" in text and "variables.LD_LIBRARY_PATH (" in text
        )
    monkeypatch.setenv("MY_WIDTH", "24")
    text, other = run(place, only)
    assert cached(other) == [] and "capture: not in the cache: the variable MY_WIDTH has changed" in text
    (place / "mine.py").write_text(MODEL.replace("ReLU", "GELU"))
    text, other = run(place, only)
    assert cached(other) == [] and f"capture: not in the cache: the file {place / 'mine.py'} has changed" in text
    (place / "mine.py").write_text(MODEL)
    monkeypatch.setenv("MY_WIDTH", "30")
    text, other = run(place, only)  # held to the result that is nearest, not to the newest one
    assert cached(other) == [] and "capture: not in the cache: the variable MY_WIDTH has changed\n" in text
    monkeypatch.delenv("MY_WIDTH")
    assert cached(run(place, only)[1]) == ["capture", "constrain"]  # of the first run
    text, other = run(place, only, "model.batch_size=3")
    assert cached(other) == [] and "capture: not in the cache: " in text
    assert "constrain: not in the cache" not in text  # it follows capture, which has said why


@pytest.mark.slow
def test_a_module_of_the_same_name_elsewhere_is_another(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = "stages=[capture,report]"
    _, first = run(place, only)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.py").write_text(MODEL.replace("ReLU", "GELU"))
    monkeypatch.setenv("PYTHONPATH", str(other))
    text, second = run(other, only)
    assert cached(second) == [] and f"the module mine was {place / 'mine.py'}" in text
    assert digest(first) != digest(second)
    _, third = run(other, only)
    assert cached(third) == ["capture"] and digest(third) == digest(second)


def test_a_result_that_rests_on_a_kept_one_stands_as_long_as_that_does(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = ("stages=[capture,constrain,report]", "accel.alignment=8")
    run(place, only[0])
    assert cached(run(place, *only)[1]) == ["capture"]  # constrain's process did not build the model
    monkeypatch.setenv("MY_WIDTH", "24")
    assert cached(run(place, *only)[1]) == []
    monkeypatch.delenv("MY_WIDTH")
    assert cached(run(place, *only)[1]) == ["capture", "constrain"]


@pytest.mark.slow
def test_a_result_rests_on_what_an_earlier_process_of_its_run_took(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "mine.py").write_text(MODEL.replace("import os\n", KILLED_IN_KERNELDIFF))
    only, killed = "stages=[capture,constrain,report]", place / "killed"
    killed.touch()
    words = ("stages=[capture,kerneldiff,constrain,report]", "hydra.run.dir=outputs/a/killed")
    _, first = run(place, *words, code=3)
    killed.unlink()
    assert [stage["status"] for stage in first["stages"]] == ["passed", "crashed", "passed", "passed"]
    assert cached(run(place, only)[1]) == ["capture", "constrain"]
    monkeypatch.setenv("MY_WIDTH", "24")
    assert cached(run(place, only)[1]) == []


def test_by_itself_a_run_takes_what_was_found_in_its_directory_alone(place: Path) -> None:
    words = ("stages=[capture,report]", "runner.cache=null")
    _, first = run(place, *words)
    text, second = run(place, *words)
    assert cached(second) == [] and "cache" not in text
    (Path(first["folder"]) / "summary.json").unlink()
    done = command(*WORDS, *words, f"hydra.run.dir={first['folder']}", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cached(json.loads((Path(first["folder"]) / "summary.json").read_text())) == ["capture"]


def test_what_came_to_its_end_stands_until_something_that_it_depends_on_changes(place: Path) -> None:
    def sweep() -> tuple[str, dict[Path, bytes]]:
        done = command(*WORDS, "stages=[capture,constrain,report]", "--multirun", "accel.alignment=8,16",
                       f"hydra.sweep.dir={folder}", cwd=place)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".sweep.json")
        return done.stdout + done.stderr, {path: path.read_bytes() for path in found}

    folder = place / "sweep"
    first, files = sweep()
    assert "it stands" not in first
    text, again = sweep()
    assert text.count("it stands") == 2 and "…" not in text
    assert again.keys() == files.keys()
    assert [path for path in files if again[path] != files[path]] == []
    jobs = sorted(path for path in folder.iterdir() if path.is_dir())
    (jobs[0] / "constrain" / "violations.csv").write_text("edited")
    (jobs[1] / "report" / "report.html").unlink()
    text, mended = sweep()
    assert "it stands" not in text
    assert mended[jobs[0] / "constrain" / "violations.csv"] == files[jobs[0] / "constrain" / "violations.csv"]
    assert mended.keys() == files.keys()
    (place / "mine.py").write_text(MODEL.replace("ReLU", "GELU"))
    text, other = sweep()
    why = f"capture would not come to the same: the file {place / 'mine.py'} has changed: it runs again"
    assert "it stands" not in text and text.count(why) == 2
    assert all(other[job / "manifest.json"] != mended[job / "manifest.json"] for job in jobs)
    assert sweep()[0].count("it stands") == 2
    assert command("cache", "--older-than", "0", cwd=place, module="inductor_debug").returncode == 0
    text, _ = sweep()  # of the second job capture is there again, made by the first
    for stage in ("capture", "constrain"):
        assert f"what {stage} came to here is not in the cache: it runs again" in text


@pytest.mark.slow
def test_a_run_that_was_moved_says_that_its_results_are_not_kept_as_its_own(place: Path) -> None:
    words = (*WORDS, "stages=[capture,report]")
    assert command(*words, "hydra.run.dir=a", cwd=place).returncode == 0
    (place / "a").rename(place / "b")
    done = command(*words, "hydra.run.dir=b", cwd=place)
    assert done.returncode == 0
    told = f"{place / 'b'} holds this run already, but what capture came to here is not in the cache: it runs again"
    assert told in done.stdout + done.stderr


def test_no_job_stands_by_what_another_made_meanwhile(place: Path) -> None:
    words = (*WORDS, "stages=[capture,report]", "--multirun", "accel.alignment=8,16", "hydra.sweep.dir=sweep")
    assert command(*words, cwd=place).returncode == 0
    (place / "mine.py").write_text(MODEL.replace("ReLU", "GELU"))
    done = command(*words, cwd=place)
    assert done.returncode == 0 and "it stands" not in done.stdout + done.stderr
    for job in (place / "sweep").glob("*/capture"):
        assert "gelu" in (job / "graphs/g0.dynamo.json").read_text()


@pytest.mark.slow
def test_what_was_written_meanwhile_is_of_no_known_state(place: Path) -> None:
    touching = MODEL.replace("    width =", "    open(__file__).read()\n    os.utime(__file__)\n    width =")
    (place / "mine.py").write_text(touching)
    only = "stages=[capture,report]"
    text, _ = run(place, only)
    assert f"capture: its result is not kept for later runs: {place / 'mine.py'} was written meanwhile" in text
    assert cached(run(place, only)[1]) == []


@pytest.mark.slow
def test_a_strict_violation_skips_what_is_in_the_cache(place: Path) -> None:
    run(place, STAGES)
    _, strict = run(place, STAGES, "accel=strict16", code=1)
    assert cached(strict) == ["capture"]
    assert {stage["name"]: stage["status"] for stage in strict["stages"]} == {
        "capture": "passed", "constrain": "failed", "kerneldiff": "skipped", "report": "passed",
    }  # fmt: skip
    _, again = run(place, STAGES, "accel=strict16", code=1)
    assert cached(again) == ["capture", "constrain"]
    assert again["repros"] == [repro | {"met_in": again["repros"][0]["met_in"]} for repro in strict["repros"]]
    assert all((Path(again["folder"]) / repro["path"]).is_file() for repro in again["repros"])


@pytest.mark.slow
def test_a_defect_stays_one_and_a_run_that_is_made_again_is_made(place: Path) -> None:
    wrong = ("backend.adapter=faulty_adapters.ScaledOutput", "backend.name=wrong", "stages=[capture,kerneldiff,report]")
    _, first = run(place, *wrong, code=1)
    text, second = run(place, *wrong, code=1)
    assert first["numerics"]["verdict"] == second["numerics"]["verdict"] == "defect"
    assert cached(second) == ["capture", "kerneldiff"]
    assert f"from the cache, of {Path(first['folder']).parent.name}/" in text
    done = command("rerun", second["folder"], "--yes", cwd=place, module="inductor_debug")
    assert done.returncode == 1, done.stdout + done.stderr
    newest = max(place.glob("outputs/*/*/summary.json"), key=lambda path: path.stat().st_mtime)
    assert cached(json.loads(newest.read_text())) == []
