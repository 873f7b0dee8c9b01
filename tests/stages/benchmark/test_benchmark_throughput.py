"""Samples per second by batch size: built by the model's own builder, and told only where that follows the size."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_benchmark_processes import QUICK, settings, variables  # noqa: F401 - a fixture
from test_benchmark_warmup import sampled

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.measurements import Load
from inductor_debug.stages.artifacts.time_tables import ThroughputRow
from inductor_debug.stages.benchmark import stage, throughput
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.processes import Sampled, SamplingDied
from inductor_debug.stages.benchmark.sampling import Sampler, input_sizes
from inductor_debug.stages.benchmark.section import BenchmarkSection
from inductor_debug.stages.benchmark.throughput import Throughput, by_batch_size, per_second, rows_of, told
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.report.sections import ReportedRun
from inductor_debug.stages.settings import Settings

TABLE = "benchmark/throughput.csv"


def at(size: int, reference: float, test: float, **more: Any) -> Sampled:
    """A process at a batch size, with these milliseconds of each side and inputs of that many rows."""
    found = sampled(1, [reference] * 4, [test] * 4)
    found.inputs = [[size, 16]]
    return replace(found, **more)


def rows(sizes: Mapping[int, Sampled], failed: Mapping[int, str] | None = None, own: int = 1) -> list[ThroughputRow]:
    return rows_of(Throughput(dict(sizes), dict(failed or {})), at(own, 1.0, 1.0), own)


def by_side(found: list[ThroughputRow], column: str) -> dict[tuple[int, str], Any]:
    return {(row.batch_size, row.side): getattr(row, column) for row in found}


def test_a_rate_is_the_batch_size_over_the_latency_alike_on_both_sides() -> None:
    found = rows({1: at(1, 2.0, 1.0), 16: at(16, 25.0, 20.0)})
    rates = by_side(found, "samples_per_s")
    assert rates == pytest.approx({(1, "reference"): 500, (1, "test"): 1000, (16, "reference"): 640, (16, "test"): 800})
    assert not any(row.not_established for row in found) and {row.samples for row in found} == {4}
    assert told(found) == "most samples/s: 1000 at batch 1 (test), 640 at batch 16 (reference)"
    assert told(found[2:]) == "most samples/s at batch 16: 800 (test), 640 (reference)"


def test_a_rate_has_no_exponent() -> None:
    assert [per_second(rate) for rate in (0.01234, 20.123, 1234567.8)] == ["0.0123", "20.1", "1234568"]


def test_a_model_that_takes_no_batch_size_has_no_rate() -> None:
    same = {size: at(size, 1.0, 1.0, inputs=[[2, 16]]) for size in (2, 4)}
    found = rows_of(Throughput(same), at(1, 1.0, 1.0, inputs=[[2, 16]]), 1)
    assert {row.samples_per_s for row in found} == {None} and {row.median_ms for row in found} == {1.0}
    assert found[0].not_established == "the model was built with the same inputs as with model.batch_size=1"
    assert told(found).startswith("samples/s not established at batch 2, 4: the model was built with the same inputs")


def test_sizes_that_a_model_cuts_to_one_have_no_rate() -> None:
    found = rows({2: at(2, 1.0, 1.0), 8: at(8, 1.0, 1.0), 16: at(8, 1.0, 1.0)})
    rates = by_side(found, "samples_per_s")
    assert rates[2, "test"] == 2000 and rates[8, "test"] is rates[16, "test"] is None


def test_of_one_size_alone_nothing_tells_whether_the_inputs_follow_it() -> None:
    (row, _) = rows({4: at(4, 1.0, 1.0)}, own=4)
    assert row.samples_per_s is None and "no other batch size was built" in row.not_established
    assert rows({4: at(4, 1.0, 1.0)}, own=1)[0].samples_per_s == 4000


def test_a_disturbed_size_is_no_headline() -> None:
    busy = Load(1.0, 2.0, 2.0, 2, 1.0, 1.5, 0.5, 9, 0.8)
    found = rows({2: at(2, 1.0, 1.0), 4: at(4, 0.1, 0.1, load=busy)})
    assert by_side(found, "samples_per_s")[4, "test"] == pytest.approx(40_000)
    assert "other programs took 80 %" in by_side(found, "not_established")[4, "reference"]
    assert told(found) == "most samples/s at batch 2: 2000 (test), 2000 (reference); not established at batch 4"


def test_where_no_size_has_a_rate_no_reason_is_told_of_another() -> None:
    failed = rows({}, {3: "no memory", 4: "refused", 8: "no memory"})
    assert told(failed) == f"samples/s not established at batch 3, 8: no memory; nor at batch 4, see {TABLE}"


def test_what_others_executed_is_no_rate_of_the_test_side_alone() -> None:
    elsewhere = Execution(backend="mine", executor="own", given=1, graphs=0, calls=0)
    found = rows({2: at(2, 1.0, 1.0, execution=elsewhere), 4: at(4, 1.0, 1.0, cuda_graphs=0)})
    reasons = by_side(found, "not_established")
    assert reasons[2, "test"] == elsewhere.elsewhere and "recorded none" in reasons[4, "test"]
    assert reasons[2, "reference"] == reasons[4, "reference"] == ""


def test_a_side_begins_alone_in_a_process_of_the_samplers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr("inductor_debug.stages.benchmark.sampling.peaks",
                        lambda case, call, *, alone: seen.append(alone))  # fmt: skip

    for own in (True, False):
        seen.clear()
        case = Case.of(torch.nn.Linear(4, 3), (torch.randn(2, 4),))
        context = StageContext(Settings(ModelConfig()), MemoryArtifacts(), {"case": case})
        sampler = Sampler(context, BenchmarkConfig(warmup=1, max_warmup=1), 1, 1, lambda event: None,
                          lambda case: None, own=own)  # fmt: skip
        monkeypatch.setattr(sampler, "_function", lambda side, case: case.module)
        monkeypatch.setattr(sampler, "_sample", lambda cases, functions: None)
        sampler.run()
        assert seen == [own, False]


def test_the_sizes_of_inputs_are_those_of_every_tensor() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(5, 3)])
    case = Case.of(torch.nn.Bilinear(3, 3, 1), (torch.randn(2, 3), nested))
    assert input_sizes(case) == [[2, 3], [2, 3], [5, 3]]


def context_of(monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[StageContext, list[Any]]:
    """A run whose processes are made up: batch size 3 dies. And what each was asked for."""
    asked: list[Any] = []

    def sample(settings: Settings, options: BenchmarkConfig, index: int, processes: int, *_: object) -> Sampled:
        asked.append((settings.model.batch_size, options, index, processes))
        if settings.model.batch_size == 3:
            raise SamplingDied("its sampling process was killed by SIGKILL before it had a result; see run.log")
        return at(settings.model.batch_size, 2.0, 1.0)

    monkeypatch.setattr(stage, "sample_in_process", sample)
    monkeypatch.setattr(throughput, "sample_in_process", sample)
    return StageContext(Settings(ModelConfig()), MemoryArtifacts(), **({"children": {}} | more)), asked


def test_each_size_has_the_share_of_one_process_and_a_failing_one_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    context, asked = context_of(monkeypatch)
    result = stage.BenchmarkStage(BenchmarkConfig(processes=4, budget_s=60.0, batch_sizes=[2, 3, 4])).run(context)
    assert [size for size, *_ in asked] == [1, 1, 1, 1, 2, 3, 4]
    for _, options, _, processes in asked:
        assert options.budget_s / processes == 15.0
    table = result.artifacts[TABLE]
    assert list(table["batch_size"]) == [2, 2, 3, 3, 4, 4]
    failed = table[table["batch_size"] == 3]
    assert failed["samples_per_s"].isna().all() and set(failed["not_established"]) == {
        "its sampling process was killed by SIGKILL before it had a result; see run.log"
    }
    assert result.message.endswith(
        "\nMost samples/s at batch 4: 4000 (test), 2000 (reference); not established at batch 3."
    )
    assert not result.repeatable


@pytest.mark.parametrize("sizes", [None, []])
def test_without_the_option_nothing_is_added(monkeypatch: pytest.MonkeyPatch, sizes: list[int] | None) -> None:
    context, asked = context_of(monkeypatch)
    result = stage.BenchmarkStage(BenchmarkConfig(processes=2, batch_sizes=sizes)).run(context)
    assert len(asked) == 2 and set(result.artifacts) == {files.SAMPLES.path, files.BENCHMARK.path, files.MACHINE.path}
    assert "samples/s" not in result.message and result.repeatable and result.digest == {}
    with_them = stage.BenchmarkStage(BenchmarkConfig(processes=2, batch_sizes=[2])).run(context_of(monkeypatch)[0])
    assert with_them.summary == result.summary and with_them.digest == result.digest and with_them.repeatable


def test_no_size_begins_once_half_of_the_stages_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    context, asked = context_of(monkeypatch, time_s=100.0)
    monkeypatch.setattr(throughput.time, "monotonic", lambda: 51.0)
    found = by_batch_size(context, BenchmarkConfig(batch_sizes=[2, 4]), 0.0)
    assert not asked and not found.found
    assert found.failed[4] == "half of runner.timeout_s=100 was spent before it; type runner.timeout_s=200"
    assert by_batch_size(context, BenchmarkConfig(batch_sizes=[2, 4]), 2.0).failed == {}


def test_where_no_process_may_be_started_each_size_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    context, asked = context_of(monkeypatch, children=None)
    found = by_batch_size(context, BenchmarkConfig(batch_sizes=[2, 4]), 0.0)
    assert set(found.failed) == {2, 4} and not asked and "runner.isolation=none" in found.failed[2]


@pytest.fixture
def measured(variables: dict[str, str]) -> StageResult:  # noqa: F811
    """A real model of batch size 2: at 3 its builder runs out of memory, at 5 it kills the process."""
    run = settings("sized", "aot_eager")
    run = replace(run, model=replace(run.model, batch_size=2))
    options = replace(QUICK, batch_sizes=[5, 1, 3, 8])
    return stage.BenchmarkStage(options).run(StageContext(run, MemoryArtifacts(), children=variables))


@pytest.mark.slow
def test_a_real_model_is_built_at_each_size_and_both_failures_are_told(measured: StageResult) -> None:
    found = files.THROUGHPUT.records(MemoryArtifacts(measured.artifacts))
    assert found is not None and [(row.batch_size, row.side) for row in found] == [
        (size, side) for size in (1, 3, 5, 8) for side in ("reference", "test")
    ]
    told_of = by_side(found, "not_established")
    assert (
        told_of[3, "test"] == "its sampling process: OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"
    )
    assert "was killed by SIGKILL" in told_of[5, "reference"]
    for row in found:
        if row.batch_size in (1, 8):
            assert row.samples == 3 and row.median_ms is not None and row.peak_memory_bytes is not None
            assert row.samples_per_s == pytest.approx(1e3 * row.batch_size / row.median_ms)
            assert (row.compile_s is not None) == (row.side == "test")
    assert by_side(found, "peak_memory_bytes")[8, "test"] - by_side(found, "peak_memory_bytes")[1, "test"] >= 7 * 64


def test_the_report_shows_the_table_and_what_is_not_known() -> None:
    found = rows({2: at(2, 2.0, 1.0)}, {64: "its sampling process: OutOfMemoryError: no memory"})
    artifacts = MemoryArtifacts({TABLE: files.THROUGHPUT.frame(found)})
    section = BenchmarkSection()
    run = ReportedRun(artifacts, {"benchmark": {"test": {"median_ms": 1.0}}}, 3)
    data = section.collect(run)
    assert data is not None and data["throughput"]["rows_total"] == 4 and len(data["throughput"]["rows"]) == 3
    assert section.not_established(data, {}) == [
        "Samples per second at batch size 64: its sampling process: OutOfMemoryError: no memory."
    ]
    without = section.collect(ReportedRun(MemoryArtifacts(), {"benchmark": {"speedup": 1.0}}, 3))
    assert without == {"speedup": 1.0}


@pytest.mark.parametrize(
    ("given", "typed"),
    [([0], "[1,4,16]"), ([1, 4, 4], "[1,4]"), ([8, -1], "[8]"), ([True], "[1,4,16]"), ([2**63, 2], "[2]")],
)
def test_sizes_are_whole_numbers_above_zero_each_once(given: list[int], typed: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BenchmarkConfig(batch_sizes=given).check()
    assert str(raised.value) == (
        f"stages.benchmark.batch_sizes: got {given}; valid: whole numbers above 0, each of them once.\n"
        f"Try: stages.benchmark.batch_sizes={typed}"
    )


@pytest.mark.parametrize("given", [None, [], [1], [16, 1]])
def test_sizes_that_fit_are_taken(given: list[int] | None) -> None:
    BenchmarkConfig(batch_sizes=given).check()
