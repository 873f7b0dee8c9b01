"""What a speed-up must not depend on: memory of the benchmark's own, one process alone, threads without cores."""

import json
import os
from pathlib import Path

import pytest
import torch

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.stage import BenchmarkStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.settings import BackendConfig, Settings

ROOT, HERE = Path(__file__).parents[3], Path(__file__).parents[1]
THREADS = (os.cpu_count() or 1) + 5
Measured = tuple[StageResult, list[dict[str, int]]]
"""Of the stage, and what the model noted at each of its calls."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A benchmark of two processes with more threads than cores, and what the model noted at each call."""
    notes = tmp_path_factory.mktemp("notes") / "notes"
    build = {"_target_": "benchmark_models.counting", "file": str(notes), "threads": THREADS}
    model = ModelConfig("counting", build)
    context = StageContext(Settings(model, backend=BackendConfig("eager", "eager")), MemoryArtifacts())
    context.children = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    options = BenchmarkConfig(warmup=1, repeats=3, max_repeats=3)
    options.processes = 2
    threads = torch.get_num_threads()
    result = BenchmarkStage(options).run(context)
    torch.set_num_threads(threads)
    return result, [json.loads(line) for line in notes.read_text().splitlines()]


@pytest.mark.slow
def test_no_process_that_measures_holds_a_copy_of_the_weights(measured: Measured) -> None:
    assert {note["copies"] for note in measured[1]} == {1}  # the model's own


def test_several_fresh_processes_sample(measured: Measured) -> None:
    processes = {note["process"] for note in measured[1]}
    assert len(processes) == 2 and os.getpid() not in processes


def test_more_threads_than_cores_establish_no_speed_up(measured: Measured) -> None:
    assert measured[0].message.startswith(f"The speed is not established: torch uses {THREADS} threads on ")
