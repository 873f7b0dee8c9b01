"""Timing with a clock of ours, and the stage on a small real model."""

import mmap

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.memory import Peak, _sampled_peak, allocated_peak, case_bytes, peak_memory
from inductor_debug.stages.benchmark.stage import BenchmarkStage
from inductor_debug.stages.benchmark.tables import milliseconds
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.settings import BackendConfig, Settings


class Clock:
    """Time that passes only when a call says so."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def side(self, name, seconds):
        def call():
            self.order.append(name)
            self.now += seconds

        return call


def timed(reference=0.2, test=0.1, **options):
    clock = Clock()
    calls = {"reference": clock.side("reference", reference), "test": clock.side("test", test)}
    defaults = {"repeats": 5, "max_repeats": 9, "relative_ci": 0.05, "budget_s": 100.0}
    return timing.interleave(calls, clock=clock, **(defaults | options)), clock


def test_sides_alternate_and_the_order_reverses():
    samples, clock = timed()
    assert clock.order[:4] == ["reference", "test", "test", "reference"]
    assert samples.stopped == "interval" and len(samples.milliseconds["test"]) == 5
    assert samples.milliseconds["reference"] == pytest.approx([200.0] * 5)
    assert timed(first=1)[1].order[:4] == ["test", "reference", "reference", "test"]


def test_the_budget_ends_timing_but_never_below_three_samples():
    samples, _ = timed(budget_s=0.01)
    assert samples.stopped == "budget" and len(samples.milliseconds["reference"]) == 3


def test_a_wide_interval_goes_on_to_the_most_repeats():
    samples, _ = timed(relative_ci=-1.0)
    assert samples.stopped == "max_repeats" and len(samples.milliseconds["test"]) == 9


def new_pages(size):
    """Memory from the kernel, written to; the allocator might give what it holds since an earlier test."""
    block = mmap.mmap(-1, size)
    block.write(bytes([1]) * size)
    return block


@pytest.mark.parametrize("sampled", [False, True])
def test_peak_memory_sees_what_was_freed_again(sampled):
    size = 64 * 2**20
    if sampled:
        peak = Peak(host_before=0)
        with _sampled_peak(peak):
            before = peak.host
            kept = new_pages(size)
        assert peak.host - before > size * 0.9 and len(kept) == size
    else:
        with peak_memory(torch.device("cpu")) as peak:
            new_pages(size).close()
        assert peak.host - peak.host_before > size * 0.9 and peak.device is None


def test_the_allocated_peak_is_of_live_tensors_and_counts_each_storage_once():
    size = 8 * 2**20
    module = torch.nn.Linear(512, 512, bias=False)
    module.register_buffer("shared", module.weight.detach().view(-1))
    case = Case("net", module, (torch.zeros(1024),), {}, "inference", torch.float32, torch.device("cpu"))

    def step():
        first = torch.ones(size, dtype=torch.uint8)
        second = torch.ones(size, dtype=torch.uint8)
        del first, second
        torch.ones(size, dtype=torch.uint8)

    own = 512 * 512 * 4 + 1024 * 4
    assert case_bytes(case) == own
    held = []
    allocated_peak(case, lambda: held.append(torch.ones(448, dtype=torch.uint8)))
    assert allocated_peak(case, step) == own + 2 * size


def context_of(adapter):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    case = Case("net", module, (torch.randn(3, 4),), {}, "training", torch.float32, torch.device("cpu"))
    settings = Settings(ModelConfig("net"), backend=BackendConfig(adapter, adapter), mode="training")
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def test_in_this_process_both_sides_are_reported_and_the_model_is_left_alone():
    context = context_of("aot_eager")
    before = {name: value.clone() for name, value in context.case.module.state_dict().items()}
    random = torch.get_rng_state()
    result = BenchmarkStage(BenchmarkConfig(warmup=1, repeats=3, max_repeats=4)).run(context)
    figures = result.summary["benchmark"]
    samples = result.artifacts["benchmark/samples.csv"]
    parts = ["forward_ms", "backward_ms", "optimizer_ms"]
    assert list(samples.columns) == ["process", "side", "index", "ms", "device_ms", "started", *parts]
    assert (samples[samples["index"] < 3][parts] > 0).all().all() and set(figures.parts) == {
        "forward",
        "backward",
        "optimizer",
    }
    assert (samples["forward_ms"] + samples["backward_ms"]).tolist() == pytest.approx(samples["ms"].tolist())
    for side in ("reference", "test"):
        found = getattr(figures, side)
        assert found.samples == sum(samples["side"] == side) >= 3
        assert found.ci95_ms is None and found.device_ms is None
        assert case_bytes(context.case) < found.peak_memory_bytes < 2**16 < found.peak_host_bytes
    assert figures.test.compile_s == context.live["compiled"].compile_s > figures.test.median_ms / 1e3
    assert figures.speedup == pytest.approx(figures.reference.median_ms / figures.test.median_ms)
    assert figures.established is False and "one process" in figures.not_established
    assert result.message.startswith("The speed is not established: it was sampled in one process")
    for name in result.artifacts:
        assert encode(name, result.artifacts[name])
    for name, value in context.case.module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in context.case.module.parameters())


def test_a_backend_that_left_all_to_inductor_has_no_speed_of_its_own():
    context = context_of("benchmark_models.Silent")
    result = BenchmarkStage(BenchmarkConfig(warmup=1, repeats=3, max_repeats=3)).run(context)
    reason = "TorchInductor executed all 2 graphs in place of silent"
    assert result.message.startswith(f"The speed is not established: {reason}. Measured: ")
    assert result.message.count(reason) == 1 and result.summary["benchmark"].not_established == reason
    (process,) = result.artifacts[files.MACHINE.path].processes
    assert process.execution.inductor == process.execution.graphs == 2


def test_the_message_has_no_exponents():
    assert [milliseconds(value) for value in (0.01234, 20.123, 2012.3)] == ["0.0123 ms", "20.1 ms", "2012 ms"]
