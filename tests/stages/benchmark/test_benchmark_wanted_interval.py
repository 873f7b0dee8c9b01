"""Processes by the wanted interval within the budget, on given samples; and how often such an interval is right."""

from collections.abc import Iterator

import numpy
import pytest
from test_benchmark_warmup import result_of, sampled

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.benchmark import interval, stage
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.processes import numbered
from inductor_debug.stages.benchmark.section import BenchmarkSection, width_told
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings

RATIOS = [1.0, 1.2, 0.9, 1.1, 1.0, 1.05, 1.0, 1.05, 1.0, 1.05]
"""Speed-ups of ten processes; their interval gets narrower with each."""


def ran(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0, **options: float) -> tuple[StageResult, int]:
    """The stage's result, with processes that have :data:`RATIOS` and take so many seconds each; how many sampled."""
    now = [0.0]

    def sample(settings: object, config: object, index: int, processes: int, environment: object) -> object:
        now[0] += seconds
        return sampled(index, [RATIOS[index % len(RATIOS)]] * 5, [1.0] * 5)

    monkeypatch.setattr(stage, "sample_in_process", sample)
    monkeypatch.setattr(stage.time, "monotonic", lambda: now[0])
    context = StageContext(Settings(ModelConfig()), MemoryArtifacts(), children={})
    result = stage.BenchmarkStage(BenchmarkConfig(**options)).run(context)  # type: ignore[arg-type]
    return result, result.summary["benchmark"].test.processes


def test_without_a_wanted_interval_there_are_as_many_processes_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result, count = ran(monkeypatch)
    told = result.summary["benchmark"]
    assert count == 5 and told.wanted_half_width is told.interval_reached is None and result.repeatable
    low, high = told.speedup_ci95
    assert told.speedup * (1 + told.half_width) == pytest.approx(high)
    assert told.speedup / (1 + told.half_width) == pytest.approx(low)


def test_further_processes_sample_until_the_interval_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    result, count = ran(monkeypatch, interval=0.07)
    told = result.summary["benchmark"]
    assert 5 < count < 10 and told.interval_reached is True and told.half_width <= 0.07
    assert "was not reached" not in result.message and result.repeatable


def test_a_budget_that_ends_first_is_said_with_the_width_that_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    result, count = ran(monkeypatch, seconds=10.0, interval=0.01, budget_s=65.0)
    told = result.summary["benchmark"]
    assert count == 7 and told.interval_reached is False and not result.repeatable
    width = f"±{100 * told.half_width:.3g} % in the budget"
    assert f"The wanted interval of ±1 % was not reached: {width}." in result.message.splitlines()
    (line,) = [line for line in BenchmarkSection().not_established(jsonable(told), {}) if "wanted" in line]
    assert line.endswith("the wanted one of ±1 % was not reached within the budget.")


def test_the_least_processes_sample_whatever_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, seconds=10.0, interval=0.01, budget_s=6.0)[1] == 5


def test_one_process_reaches_no_interval() -> None:
    told = result_of([sampled(0, [2.0] * 5, [1.0] * 5)], wanted=0.5)
    assert told.summary["benchmark"].interval_reached is False and "one process has no interval" in told.message


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, ""),
        ({}, ""),
        ({"half_width": 0.034}, "an interval of ±3.4 %"),
        ({"half_width": 0.01, "wanted_half_width": 0.02, "interval_reached": True}, "the wanted one of ±2 % reached"),
        ({"wanted_half_width": 0.02, "interval_reached": False}, "no interval; the wanted one of ±2 % was not reached"),
    ],
)
def test_the_width_in_words(record: dict[str, object] | None, words: str) -> None:
    assert words in width_told(record) if words else width_told(record) == ""


def test_a_further_process_is_not_one_of_five() -> None:
    assert [numbered(index, 5) for index in (4, 5)] == ["sampling process 5 of 5", "sampling process 6"]


def trials(spread: float, wanted: float, count: int) -> Iterator[tuple[bool, bool]]:
    """Whether the interval held the truth, and whether it was reached by 60 processes, where each look may end it."""
    draw = numpy.random.default_rng(1)
    for _ in range(count):
        ratios = numpy.exp(draw.normal(0, spread, 60)).tolist()
        for used in range(5, 61):
            found = interval.over_processes(ratios[:used])
            if found.half_width <= wanted:  # type: ignore[operator]
                break
        assert found.low is not None and found.high is not None and found.half_width is not None
        yield found.low <= 1 <= found.high, found.half_width <= wanted


@pytest.mark.parametrize("spread", [0.01, 0.02, 0.05])
def test_an_interval_that_ends_the_sampling_covers_nearly_what_it_says(spread: float) -> None:
    held = list(trials(spread, 0.02, 500))
    assert sum(covered for covered, _ in held) / len(held) >= 0.91
    assert all(narrow for _, narrow in held)
