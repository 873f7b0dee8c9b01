"""Compiler options from the command line: swept, and AOTInductor with its printer of intermediate values."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import QUICK, Finished, command
from safetensors.torch import load_file

PERCEPTRON = ("model=custom", "model.build._target_=small_models.perceptron")


@pytest.mark.slow
def test_an_option_is_swept_and_each_job_records_its_own(tmp_path, compilers) -> None:
    option = "backend.inductor.pattern_matcher"
    finished = command("--multirun", *PERCEPTRON, "stages=[lower]", f"{option}=true,false", *compilers, cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    runs = [Finished(0, "", path.parent) for path in sorted(tmp_path.glob("outputs/*/*/*/summary.json"))]
    recorded = {run.json("lower/summary.json")["inductor_options"]["pattern_matcher"]: run for run in runs}
    assert set(recorded) == {True, False} and len(runs) == 2
    assert all(f"++{option}={value}" in run.summary["run"]["overrides"] for value, run in recorded.items())
    (table,) = tmp_path.glob("outputs/*/*/sweep.csv")
    assert Finished(0, "", table.parent).table("sweep.csv")["verdict"].tolist() == ["passed", "passed"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_values_are_printed_for_one_step_alone(mode: str, run: Callable[..., Finished]) -> None:
    finished = run(*PERCEPTRON, *QUICK, f"mode={mode}", "backend=aot_inductor", "backend.options.print_values=2")
    assert finished.code == 0, finished.output
    assert finished.summary["numerics"]["verdict"] in ("exact", "within_floor")
    table = finished.table("lower/values.csv")
    assert set(table["graph"]) == ({"g0.forward"} if mode == "inference" else {"g0.forward", "g0.backward"})
    if mode == "training":
        picture = (finished.directory / "lower/g0.backward/post_grad.svg").read_text()
        assert "reads 1 saved tensor, 96 B" in picture and "480 parameters" in picture
    assert set(table["call"]) == {0}
    log = (finished.directory / "run.log").read_text()
    assert log.count("[  ") == len(table) > 10  # kerneldiff and benchmark called the model often
    printer = finished.json("lower/summary.json")["printer"]
    assert (printer["level"], printer["kernels"], printer["silent"]) == (2, [], [])


@pytest.mark.slow
def test_tensors_of_one_kernel_are_saved(run: Callable[..., Finished]) -> None:
    options = ("backend.options.print_values=1", "backend.options.kernels=[aoti_torch_cpu_addmm_out]")
    finished = run(*PERCEPTRON, "backend=aot_inductor", *options, "stages=[capture,lower]")
    assert finished.code == 0, finished.output
    table = finished.table("lower/values.csv").fillna({"file": ""})
    assert set(table["kernel"]) == {"aoti_torch_cpu_addmm_out"} and set(table["launch"]) == {0, 2}
    first, second = sorted(set(table["file"]) - {""})
    assert load_file(finished.directory / first)["after.buf0"].shape == (1, 24)
    assert load_file(finished.directory / second)["after.buf2"].shape == (1, 20)
    work = finished.directory.parents[2]
    assert {path.name for path in work.iterdir()} == {"outputs"}
    assert not list(work.rglob("*.pt"))


@pytest.mark.slow
def test_an_unknown_kernel_ends_the_stage_with_the_known_ones(run: Callable[..., Finished]) -> None:
    options = ("backend.options.print_values=3", "backend.options.kernels=[addmm]")
    finished = run(*PERCEPTRON, "backend=aot_inductor", *options, "stages=[lower]")
    assert finished.code != 0
    (stage,) = [stage for stage in finished.summary["stages"] if stage["name"] == "lower"]
    assert "valid: aoti_torch_cpu_addmm_out" in stage["message"]


STAGES = "stages=[capture,lower,kerneldiff]"
OF_DYNAMO = [
    ("recurrent", "allow_rnn"),
    ("selecting", "capture_dynamic_output_shape_ops"),
    ("scaling", "capture_scalar_outputs"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "setting"), OF_DYNAMO)
def test_a_setting_of_dynamos_is_named_and_what_is_named_helps(
    model: str, setting: str, run: Callable[..., Finished]
) -> None:
    words = ("model=custom", f"model.build._target_=small_models.{model}", STAGES)
    option = f"backend.dynamo.{setting}=true"
    without = run(*words)
    messages = {stage["name"]: stage["message"] for stage in without.summary["stages"]}
    assert f"Try: {option}" in messages["capture"]
    if without.summary["graphs"]["dynamo"] == 0:  # nothing was compiled: each stage says what would help
        assert without.code == 1
        assert f"Try: {option}" in messages["lower"] and f"Try: {option}" in messages["kerneldiff"]
    finished = run(*words, option)
    assert finished.code == 0, finished.output
    assert finished.summary["graphs"]["breaks"] == 0 and finished.summary["graphs"]["forward"] > 0
    assert finished.summary["numerics"]["verdict"] in ("exact", "within_floor")
    assert not any("Try:" in stage["message"] for stage in finished.summary["stages"])


@pytest.mark.slow
def test_a_setting_of_dynamos_is_swept_for_each_job_alone(tmp_path: Path) -> None:
    words = ("model=custom", "model.build._target_=small_models.recurrent", "stages=[capture]")
    finished = command("--multirun", *words, "backend.dynamo.allow_rnn=true,false", cwd=tmp_path)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    (table,) = tmp_path.glob("outputs/*/*/sweep.csv")
    rows = Finished(0, "", table.parent).table("sweep.csv")
    assert rows["verdict"].tolist() == ["passed", "failed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("backend.dynamo.alow_rnn=true", "backend.dynamo.alow_rnn: TorchDynamo has no such option; valid: allow_rnn, "),
        ("backend.dynamo.allow_rnn=3", "backend.dynamo.allow_rnn: got 3 (int); valid: bool"),
    ],
)
def test_a_wrong_setting_of_dynamos_is_told_before_anything_runs(option: str, told: str, tmp_path: Path) -> None:
    words = ("model=custom", "model.build._target_=small_models.recurrent", "stages=[capture]", "backend=eager")
    finished = command(*words, option, cwd=tmp_path)
    assert finished.returncode == 2
    assert told in finished.stderr and "Try: backend.dynamo.allow_rnn=" in finished.stderr
    assert not list(tmp_path.glob("outputs/*/*"))


def altered(run: Path, name: str, text: str) -> None:
    """Give a file of a run another content, as if the run had written that."""
    (run / name).write_text(text)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(text.encode()).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.slow
def test_what_compiled_a_run_is_recorded_and_a_rerun_restores_it_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*PERCEPTRON, "stages=[capture]", "backend.dynamo.allow_rnn=true")
    for name in ("TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_MAX_AUTOTUNE"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as then:
        then.setenv("TORCHINDUCTOR_FREEZING", "1")
        assert command(*words, "hydra.run.dir=first", cwd=tmp_path).returncode == 0
    first = Finished(0, "", tmp_path / "first")
    record = first.summary["compiled_by"]
    assert record["variables"]["TORCHINDUCTOR_FREEZING"] == "1"
    assert record["options"]["inductor"]["freezing"] is True and record["options"]["dynamo"] == {"allow_rnn": True}

    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    again = command(
        "rerun", "first", "--yes", "hydra.run.dir=second", cwd=tmp_path, module="inductor_debug.pipeline.cli"
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "TORCHINDUCTOR_FREEZING=1" in again.stderr and "without TORCHINDUCTOR_MAX_AUTOTUNE" in again.stderr
    assert Finished(0, "", tmp_path / "second").summary["compiled_by"] == record

    door = ("--config-path", "first/.hydra", "--config-name", "config")
    other = command(*door, "hydra.run.dir=third", cwd=tmp_path)
    assert other.returncode == 0
    assert "not as in" in other.stdout and "options.inductor.freezing: True then, none now" in other.stdout

    summary = first.summary
    summary["compiled_by"]["versions"]["torch"] = "1.0"
    altered(tmp_path / "first", "summary.json", json.dumps(summary))
    refused = command(
        "rerun", "first", "--yes", "hydra.run.dir=fourth", cwd=tmp_path, module="inductor_debug.pipeline.cli"
    )
    assert refused.returncode == 2 and not (tmp_path / "fourth").exists()
    assert "versions.torch: '1.0' then" in refused.stderr and "--anyway" in refused.stderr
    anyway = command(
        "rerun",
        "first",
        "--anyway",
        "--yes",
        "hydra.run.dir=fourth",
        cwd=tmp_path,
        module="inductor_debug.pipeline.cli",
    )
    assert anyway.returncode == 0 and "versions.torch: '1.0' then" in anyway.stdout


@pytest.mark.slow
def test_a_rerun_does_not_refuse_what_the_model_sets_by_itself_and_tells_where_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "setting.py").write_text(
        "import os, torch\nimport torch._dynamo.config as config\n"
        "class Net(torch.nn.Linear):\n    def forward(self, x):\n        self.configure()\n"
        "        return super().forward(x)\n    @torch._dynamo.disable\n    def configure(self):\n"
        "        config.allow_rnn = 'WITHOUT' not in os.environ\n"
        "def build():\n    return Net(4, 4), (torch.randn(2, 4),)\n"
    )
    words = ("model=custom", "model.build._target_=setting.build", "stages=[capture]")
    assert command(*words, "hydra.run.dir=first", cwd=tmp_path).returncode == 0
    record = Finished(0, "", tmp_path / "first").summary["compiled_by"]
    assert (
        record["options"]["dynamo"] == {"allow_rnn": True} and record["options_before"]["dynamo"]["allow_rnn"] is None
    )
    rerun = ("rerun", "first", "--yes")
    again = command(*rerun, "hydra.run.dir=second", cwd=tmp_path, module="inductor_debug.pipeline.cli")
    assert again.returncode == 0 and "not as in" not in again.stdout, again.stdout + again.stderr
    with pytest.MonkeyPatch.context() as then:
        then.setenv("WITHOUT", "1")
        other = command(*rerun, "hydra.run.dir=third", cwd=tmp_path, module="inductor_debug.pipeline.cli")
    assert "options.dynamo.allow_rnn: True then, none now" in other.stdout
