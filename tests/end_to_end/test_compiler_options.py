"""Compiler options from the command line: swept, and AOTInductor with its printer of intermediate values."""

from collections.abc import Callable

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
