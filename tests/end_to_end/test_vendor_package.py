"""A vendor's package: built as a wheel, installed in a fresh environment, and run as a backend like the others."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import TESTS, Finished

pytestmark = pytest.mark.slow  # each run starts a process of a fresh environment

PROJECT = TESTS.parent
PERCEPTRON = ("model=custom", "model.build._target_=small_models.perceptron", "model.name=perceptron")
BLOCK = ("model=custom", "model.build._target_=small_models.block", "model.name=block")
QUICK = ("stages.benchmark.processes=2", "stages.benchmark.repeats=3", "stages.benchmark.max_repeats=3",
         "stages.benchmark.warmup=1", "stages.kerneldiff.plots=false")  # fmt: skip
SEGFAULT = "killed by SIGSEGV"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the example package, which sees what is installed here as well."""
    place = tmp_path_factory.mktemp("vendor")
    source = shutil.copytree(TESTS / "vendor_package", place / "source")  # building leaves files
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", place, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    interpreter = place / "venv" / "bin" / "python"
    (wheel,) = place.glob("acme_npu_backend-*-py3-none-any.whl")
    subprocess.run([*pip, "--python", interpreter, "install", *offline, wheel], check=True)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    parent = sysconfig.get_paths()["purelib"]  # addsitedir: an editable install of this project is a .pth file there
    (packages / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
    return interpreter


@pytest.fixture(scope="session")
def acme(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    """Runs the pipeline in the package's environment, in a fresh working directory."""

    def acme(*arguments: str, runs: int = 1) -> Finished:
        cwd = tmp_path_factory.mktemp("work")
        finished = pipeline(python, *arguments, cwd=cwd)
        output = finished.stdout + finished.stderr
        directories = sorted(path.parent for path in cwd.glob("outputs/**/manifest.json"))
        assert len(directories) == runs, output
        return Finished(finished.returncode, output, directories[0] if directories else cwd)

    return acme


def pipeline(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python -m pipeline`` with this project's sources and the small models on the path, but not the package's."""
    paths = [str(PROJECT), str(TESTS / "end_to_end")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [str(python), "-P", "-m", "inductor_debug.pipeline", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def message(run: Finished, stage: str) -> str:
    (found,) = [item["message"] for item in run.summary["stages"] if item["name"] == stage]
    return str(found)


def test_the_package_is_a_backend_like_the_others(acme: Callable[..., Finished]) -> None:
    run = acme(*PERCEPTRON, *QUICK, "backend=acme")
    assert run.code == 0, run.output
    assert run.statuses() == {
        "capture": "passed", "constrain": "passed", "lower": "passed", "kerneldiff": "passed", "benchmark": "passed",
        "minify": "passed", "report": "passed",
    }  # fmt: skip
    assert run.summary["run"]["backend"] == "acme"
    assert run.json("manifest.json")["versions"]["acme-npu-backend"] == "0.3.0"
    assert (run.summary["violations"]["profile"], run.summary["violations"]["declared_by"]) == ("acme", "backend")
    assert set(run.table("constrain/violations.csv")["rule"]) == {"alignment"}
    rules = "The rules are those that the backend acme declares (accel=none). The backend acme checked as well."
    assert rules in message(run, "constrain").splitlines()
    log = (run.directory / "run.log").read_text()
    assert "acme: a graph of" in log and "aten.erf.default" in log and "aten.gelu" not in log.partition("acme: ")[2]


ABILITIES = {
    "acme": ("acme compiled 2 AOT graphs to ", ["g0.forward", "g0.backward"]),
    "acme_sim": ("acme_sim compiled 2 AOT graphs to ", ["g0.forward", "g0.backward"]),
    "acme_dynamo": ("acme_dynamo compiled 1 Dynamo graph to ", ["g0.dynamo"]),
}


@pytest.mark.parametrize("backend", ABILITIES)
def test_each_ability_goes_through_every_stage(acme: Callable[..., Finished], backend: str) -> None:
    lowered, graphs = ABILITIES[backend]
    run = acme(
        *BLOCK, f"backend={backend}", "mode=training", "stages.kerneldiff.plots=false",
        "stages=[capture,constrain,lower,kerneldiff,bisect,profile,report]", "stages.profile.ceiling=false",
    )  # fmt: skip
    assert run.code == 0, run.output
    assert set(run.statuses().values()) == {"passed"}, run.output
    assert message(run, "lower").startswith(lowered) and "not established" not in message(run, "lower")
    emulated = "\nThe emulation of every result rounded to bfloat16 found "
    assert (emulated in message(run, "lower")) == ("emulat" in message(run, "lower")) == (backend == "acme_sim")
    assert list(run.json("lower/summary.json")["graphs"]) == graphs
    kernels = run.table(f"lower/{graphs[0]}/kernels.csv")
    assert len(kernels) and kernels["name"].str.startswith("acme_").all()
    assert "no graph" not in message(run, "kerneldiff")
    assert message(run, "bisect").startswith("There is nothing to bisect: ")
    assert "\nThe longest: " in message(run, "profile")


def test_a_flag_of_the_packages_bisects(acme: Callable[..., Finished]) -> None:
    run = acme(
        *PERCEPTRON, "backend=acme", "backend.options.fast_erf=true", "stages=[kerneldiff,bisect,report]",
        "stages.kerneldiff.plots=false",
    )  # fmt: skip
    assert run.code == 1, run.output
    assert "goes away with fast_erf=false" in message(run, "bisect")
    assert message(run, "bisect").count("add to the command: backend.options.fast_erf=false\n") == 1


def test_training_on_the_packages_device(acme: Callable[..., Finished]) -> None:
    run = acme(*BLOCK, *QUICK, "backend=acme", "device=acme", "mode=training")
    assert run.code == 0, run.output
    assert run.statuses()["kerneldiff"] == run.statuses()["benchmark"] == "passed"
    compared = run.table("kerneldiff/outputs.csv")
    assert set(compared["kind"]) == {"output", "loss", "gradient", "buffer"}
    assert set(compared["verdict"]) <= {"exact", "within_floor"}
    nodes = run.json("capture/graphs/g0.backward.json")["nodes"]
    assert {node["device"] for node in nodes if node.get("device")} == {"acme:0"}
    assert run.summary["benchmark"]["test"]["peak_memory_bytes"] is None  # the device's module does not count


def test_a_wrong_kernel_is_a_defect_on_the_device_too(acme: Callable[..., Finished]) -> None:
    run = acme(
        *PERCEPTRON, "backend=acme", "backend.options.fail=wrong_kernel", "device=acme", "stages=[kerneldiff,report]",
        "stages.kerneldiff.plots=false", "reference.device=cpu",
    )  # fmt: skip
    assert run.code == 1, run.output
    assert run.summary["numerics"]["verdict"] == "defect"


def test_the_compilers_error_is_the_stages_result(acme: Callable[..., Finished]) -> None:
    run = acme(*PERCEPTRON, *QUICK, "backend=acme", "backend.options.fail=compile_error", "~stages.minify")
    assert run.code == 3, run.output
    assert run.statuses() | {"capture": "passed", "constrain": "passed", "report": "passed"} == run.statuses()
    assert run.statuses()["kerneldiff"] == "failed" and run.summary["numerics"]["verdict"] == "not_established"
    assert "AcmeCompileError: ACME-E042: no schedule for a graph of" in message(run, "kerneldiff")
    assert message(run, "benchmark").startswith("AcmeCompileError: ACME-E042")


def test_a_kernel_that_kills_the_process_costs_its_stage_alone(
    acme: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # the next worker knows the device from the adapter alone
    run = acme(
        *PERCEPTRON, "backend=acme", "backend.options.fail=crash", "device=acme", "stages=[kerneldiff,capture,report]"
    )
    assert run.code == 3, run.output
    assert run.statuses() == {"kerneldiff": "crashed", "capture": "passed", "report": "passed"}
    assert SEGFAULT in message(run, "kerneldiff")
    assert (run.directory / "report" / "report.html").exists()


DEVICE = """
import copy
import torch

x = torch.randn(4, 6).to("acme")
assert (x.device, x.t().stride(), x[1:, 2].storage_offset()) == (torch.device("acme:0"), (1, 6), 8)
x.view(-1)[7] = 5.0
assert x.cpu()[1, 1] == 5.0, "a view is a view"
pair = copy.deepcopy({"x": x, "row": x[0]})
pair["row"].zero_()
assert pair["x"].cpu()[0].abs().max() == 0 and x.cpu()[0].abs().max() > 0, "a copy shares what the original shared"
host = torch.get_rng_state()
torch.acme.manual_seed(3)
drawn = torch.randn(5, device="acme")
torch.acme.manual_seed(3)
assert torch.equal(torch.randn(5, device="acme"), drawn) and torch.equal(torch.get_rng_state(), host)
for refused in (lambda: x.double(), lambda: torch.zeros(2, dtype=torch.float64, device="acme")):
    try:
        refused()
    except TypeError as error:
        assert "no torch.float64" in str(error)
    else:
        raise AssertionError("float64 on the chip")

model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
there = copy.deepcopy(model).to("acme")
model(x.cpu()).square().mean().backward()
torch.compile(there, backend="acme")(x).square().mean().backward()
for mine, other in zip(model.parameters(), there.parameters()):
    torch.testing.assert_close(other.grad.cpu(), mine.grad)
"""


def test_tensors_on_the_packages_device_are_real_tensors(python: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run([python, "-P", "-c", DEVICE], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_adapters_own_check_and_a_profile_of_the_packages(acme: Callable[..., Finished]) -> None:
    run = acme(
        *PERCEPTRON, "backend=acme", "backend.options.programs=1", "accel=acme_strict", "stages=[capture,constrain]"
    )
    assert run.code == 1, run.output
    table = run.table("constrain/violations.csv")
    assert set(table["rule"]) == {"alignment", "custom"} and set(table["severity"]) == {"error"}
    (full,) = table[table["rule"] == "custom"].itertuples()
    assert (full.graph, full.target) == ("g0.forward", "aten.addmm.default")
    assert "acme_strict took the place of the rules that the backend acme declares" in message(run, "constrain")
    assert run.summary["violations"]["declared_by"] == "accel"


def test_the_packages_stage_and_its_section(acme: Callable[..., Finished]) -> None:
    run = acme(*PERCEPTRON, "stages=[capture,acme_energy,report]")
    assert run.code == 0 and run.statuses()["acme_energy"] == "passed", run.output
    assert ">What does a step cost? <span" in (run.directory / "report" / "report.html").read_text()


def test_a_sweep_over_ours_and_the_packages_with_its_other_doors(acme: Callable[..., Finished]) -> None:
    backends = "backend.adapter=aot_eager,acme,acme_npu.adapter.AcmeAdapter"
    run = acme("--multirun", *PERCEPTRON, "stages=[kerneldiff]", "stages.kerneldiff.plots=false", backends, runs=3)
    assert run.code == 0, run.output
    other = acme(
        "--multirun", *PERCEPTRON, "stages=[kerneldiff]", "stages.kerneldiff.plots=false", "backend=eager,acme",
        "reference.backend=aot_eager", runs=2,
    )  # fmt: skip
    assert other.code == 0, other.output


def test_the_dynamo_entry_point_remains(acme: Callable[..., Finished]) -> None:
    run = acme(
        *PERCEPTRON, "backend=dynamo", "backend.name=acme", "+backend.options.fail=wrong_kernel", "stages=[kerneldiff]"
    )
    assert run.code == 1 and run.summary["numerics"]["verdict"] == "defect", run.output


MISTAKES = {
    "backend": (["backend=acmee"], "backend: got 'acmee' (in backend=acmee); valid: acme, "),
    "device": (["backend=acme", "device=acne"], "device: got 'acne'; valid: acme:0, cpu.\nTry: device=acme:0"),
    "option": (["backend=acme", "backend.options.fail=melt"], "ValueError: fail is 'melt', not one of none, compile_"),
    "target": (["backend._target_=acme_npu.adapter.AcmeAdaptr"], "valid: acme_npu.adapter.AcmeAdapter"),
    "switched": (
        ["backend._target_=acme_mistakes.NotSwitched", "stages=[kerneldiff,bisect]"],
        "has no method switched; valid: a subclass of inductor_debug.AcceleratorAdapter that defines it.\n"
        "Try: def switched(self, values): ...",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_the_package_is_one_message(python: Path, tmp_path: Path, mistake: str) -> None:
    arguments, expected = MISTAKES[mistake]
    done = pipeline(python, *PERCEPTRON, *arguments, cwd=tmp_path)
    assert (done.returncode, list(tmp_path.glob("outputs/*/*"))) == (2, []), done.stdout + done.stderr
    assert expected in done.stderr and "Traceback" not in done.stderr
