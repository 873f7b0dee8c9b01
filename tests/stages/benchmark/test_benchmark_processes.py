"""Sampling in fresh processes: they load what the run compiled, and their ends are results."""

import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import benchmark_models
import psutil
import pytest
import torch

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import UserError, mistake_in
from inductor_debug.stages.artifacts.measurements import Machine
from inductor_debug.stages.backends.compiled import compiled_case
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.processes import SamplingDied, SamplingRaised, ended, sample_in_process
from inductor_debug.stages.benchmark.sampling import Sampler
from inductor_debug.stages.benchmark.stage import BenchmarkStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.settings import BackendConfig, Settings

ROOT, HERE = Path(__file__).parents[3], Path(__file__).parents[1]
QUICK = BenchmarkConfig(processes=2, warmup=1, repeats=3, max_repeats=3)


def settings(model="net", adapter="inductor", **more):
    module = "benchmark_models."
    backend = BackendConfig(adapter, adapter) if adapter.islower() else BackendConfig("mine", module + adapter)
    return Settings(ModelConfig(model, build={"_target_": module + model}), backend=backend, **more)


@pytest.fixture
def variables(tmp_path):
    """The environment of a run with caches of its own."""
    own = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "TMPDIR": "tmp"}
    for folder in own.values():
        (tmp_path / folder).mkdir()
    return (
        os.environ
        | {name: str(tmp_path / folder) for name, folder in own.items()}
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE), str(Path(__file__).parent)]), "PYTHONHASHSEED": "0"}
    )


def environment_of(result: StageResult) -> Machine:
    return result.artifacts["benchmark/environment.json"]


@pytest.mark.slow
def test_without_a_stage_that_compiled_the_first_process_compiles_and_the_second_loads(variables):
    context = StageContext(settings(mode="training"), MemoryArtifacts(), children=variables)
    result = BenchmarkStage(QUICK).run(context)
    first, second = (item.first_test_step for item in environment_of(result).processes)
    assert first.caches.kind == "cold" and first.caches.made > 0
    assert [getattr(second.caches, name) for name in ("loaded", "missed", "refused", "made")] == [2, 0, 0, 0]
    assert second.caches.kind == "warm" and environment_of(result).compiled_again[1].startswith("nothing: ")
    rows = result.artifacts["benchmark/samples.csv"]
    assert sorted(set(rows["process"])) == [0, 1] and len(rows) == 2 * 2 * 3
    figures = result.summary["benchmark"]
    for side in (figures.reference, figures.test):
        low, high = side.ci95_ms
        assert low <= side.median_ms <= high and side.peak_memory_bytes > 0
    assert figures.speedup_ci95[0] <= figures.speedup <= figures.speedup_ci95[1]
    assert (figures.test.compile_s, figures.test.compile_kind) == (first.seconds, "cold")
    assert (figures.test.cold_compile_s, figures.test.warm_compile_s) == (first.seconds, pytest.approx(second.seconds))
    assert "(cold)" in result.message
    assert "case" not in context.live  # nothing was built in this process
    again = BenchmarkStage(QUICK).run(StageContext(settings(mode="training"), MemoryArtifacts(), children=variables))
    test = again.summary["benchmark"].test
    assert (
        test.cold_compile_s is None
        and test.compile_kind == "warm"
        and variables["TORCHINDUCTOR_CACHE_DIR"] in test.compile_reason
    )


def test_what_cannot_be_loaded_is_compiled_again_and_said(variables):
    result = BenchmarkStage(QUICK).run(
        StageContext(settings(adapter="aot_eager"), MemoryArtifacts(), children=variables)
    )
    assert environment_of(result).compiled_again == ["all: this backend's code can't be loaded by another process"] * 2
    assert result.summary["benchmark"].test.compile_kind == "unknown"


def test_a_process_that_a_kernel_kills_is_told(variables):
    with pytest.raises(SamplingDied, match="sampling process 1 of 2 was killed by SIGSEGV before it had a result"):
        sample_in_process(settings(adapter="Crashing"), QUICK, 0, 2, variables)


def test_a_mistake_that_compiling_tells_stays_one(variables, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    context = StageContext(settings(adapter="Refusing"), MemoryArtifacts(), children=variables)
    with pytest.raises(Exception, match="valid: 2") as raised:
        BenchmarkStage(QUICK).run(context)
    assert isinstance(mistake_in(raised.value), UserError)


def test_what_raises_in_a_process_is_told(variables):
    with pytest.raises(SamplingRaised, match="sampling process 2 of 2: RuntimeError: workspace=None"):
        sample_in_process(settings(adapter="Tells"), QUICK, 1, 2, variables)


def test_a_process_ends_with_the_one_that_started_it(variables):
    code = (
        "import os\n"
        "from test_benchmark_processes import QUICK, settings\n"
        "from inductor_debug.stages.benchmark.processes import sample_in_process\n"
        "sample_in_process(settings('slow'), QUICK, 0, 2, dict(os.environ))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE)
    assert parent.stdout is not None and b"sampling" in parent.stdout.readline()
    children = psutil.Process(parent.pid).children(recursive=True)
    assert children
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert not alive and len(gone) == len(children)


def test_how_a_process_ended_is_told_by_its_signal_or_its_code():
    assert [ended(code) for code in (-9, 3)] == ["was killed by SIGKILL", "ended by itself with exit code 3"]
    assert benchmark_models.net()[1][0].shape == (2, 16)


@pytest.mark.slow
def test_while_processes_sample_this_one_holds_neither_model_nor_compiled_code(variables):
    context = StageContext(settings(), MemoryArtifacts(), children=variables)
    compiled_case(context)
    weight = weakref.ref(next(context.case.module.parameters()))
    alive = []
    context.progress = lambda _: alive.append(weight() is not None)
    assert BenchmarkStage(QUICK).run(context).status == "passed"
    assert alive and not any(alive)


@pytest.mark.parametrize(
    ("device", "other", "own", "alone"),
    [
        ("cuda", None, True, True),
        ("cuda", None, False, False),
        ("cuda", "cuda", True, False),
        ("cpu", "cuda", True, True),
    ],
)
def test_a_reference_of_another_dtype_is_not_alone_on_the_device_of_the_run(
    device: str, other: str | None, own: bool, alone: bool
) -> None:
    """It is made of the run's case, whose weights stay there.

    Args:
        device: of the run's case. other: of another case, which is the reference; None where it is the run's.
    """
    run = SimpleNamespace(device=torch.device(device))
    reference = run if other is None else SimpleNamespace(device=torch.device(other))
    context: Any = SimpleNamespace(case=run)
    sampler = Sampler(context, QUICK, 0, 2, lambda event: None, lambda case: None, own=own)
    assert sampler._alone(reference) == alone
