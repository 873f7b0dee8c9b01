"""When a side is steady, decided from given times; and what is told where it never was."""

import pytest
from test_benchmark_device_use import process

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.artifacts.time_tables import SampleRow
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.benchmark.records import Warm
from inductor_debug.stages.benchmark.tables import figures_of, report_of
from inductor_debug.stages.benchmark.warmup import Steadiness, warm_up
from inductor_debug.stages.contract import StageResult
from inductor_debug.stages.settings import Settings


def warmed(times: list[float], least: int = 0, most: int | None = None, budget_s: float = 100.0) -> tuple[int, bool]:
    """Warm-up where the calls take so long in turn, and then as long as the last."""
    now, taken = [0.0], iter(times)

    def call() -> None:
        now[0] += next(taken, times[-1])

    return warm_up(call, least=least, most=most, budget_s=budget_s, clock=lambda: now[0])


def test_long_calls_that_are_steady_take_no_more_than_the_least() -> None:
    assert warmed([1.0], least=2) == (2, True)
    assert warmed([1.0], least=7) == (7, True)
    assert warmed([1.0, 0.97, 0.96], least=2) == (2, True)


def test_calls_that_get_faster_go_on_until_they_do_not() -> None:
    assert warmed([1.0, 0.8, 0.6, 0.5, 0.5], least=2) == (5, True)


def test_short_calls_are_judged_by_blocks_of_them() -> None:
    count, steady = warmed([0.004] * 5 + [0.002] * 10 + [0.001], least=2)
    assert steady and 15 + 20 < count <= 15 + 2 * 20
    assert warmed([0.0001, 0.0002] * 400, least=2)[0] > 200  # one call slower than another says nothing of short ones


@pytest.mark.parametrize(("limits", "calls"), [({"most": 4}, 4), ({"budget_s": 2.0}, 3), ({"least": 6, "most": 4}, 4)])
def test_a_side_that_a_limit_ended_is_not_told_as_steady(limits: dict[str, float], calls: int) -> None:
    falling = [0.9**index for index in range(100)]
    assert warmed(falling, **limits) == (calls, False)  # type: ignore[arg-type]


def test_nothing_is_steady_before_two_blocks() -> None:
    found = Steadiness()
    found.take(1.0)
    assert not found.steady
    found.take(1.0)
    assert found.steady


def sampled(index: int, reference: list[float], test: list[float], steady: bool = True) -> Sampled:
    """A process with these samples."""
    found = process(index, None)
    found.rows = [SampleRow(index, side, number, ms, None, 0.0)
                  for side, times in (("reference", reference), ("test", test))
                  for number, ms in enumerate(times)]  # fmt: skip
    found.warm = {side: Warm(side, 0.1, 4, steady) for side in ("reference", "test")}
    return found


def result_of(found: list[Sampled], wanted: float | None = None) -> StageResult:
    return report_of(figures_of(found, 1.0, CacheUse(), Settings(ModelConfig())), found, wanted)


def test_a_side_that_gets_faster_while_it_is_timed_has_no_established_speed_up() -> None:
    falling = [[2.0, 1.8, 1.6, 1.2, 1.0, 1.0 + process / 100] for process in range(5)]
    result = result_of([sampled(index, [2.0] * 6, times) for index, times in enumerate(falling)])
    told = result.summary["benchmark"]
    assert told.established is False and "not steady" in told.not_established
    assert "type stages.benchmark.warmup=40" in told.not_established
    both = result_of([sampled(index, times, times) for index, times in enumerate(falling)])
    assert both.summary["benchmark"].established is True  # the machine's doing, which the ratio does not have


def test_noise_is_not_told_as_a_side_that_is_not_steady() -> None:
    noisy = [[1.0, 1.4, 0.9, 1.1, 1.3], [1.2, 0.9, 1.1, 1.4, 1.0], [1.1, 1.0, 1.2, 0.9, 1.5]]
    result = result_of([sampled(index, [1.0] * 5, times) for index, times in enumerate(noisy)])
    assert result.summary["benchmark"].established is True


def test_what_a_limit_ended_is_said_beside_the_speed_up() -> None:
    result = result_of([sampled(index, [2.0] * 4, [1.0] * 4, steady=False) for index in range(3)])
    assert "Not known to be steady after warm-up: the reference side, the test side." in result.message.splitlines()
    side = result.summary["benchmark"].test
    assert (side.warmup_calls, side.steady) == (4, False)
    assert set(result.artifacts["benchmark/summary.csv"]["steady"]) == {False}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 20),
        ({"repeats": 50}, 50),
        ({"repeats": 5, "max_repeats": 3}, 3),
        ({"interval": 0.01}, None),
        ({"interval": 0.01, "max_repeats": 7}, 7),
    ],
)
def test_repeats_are_the_least_unless_the_most_are_less(options: dict[str, float], most: int | None) -> None:
    assert BenchmarkConfig(**options).most_repeats == most  # type: ignore[arg-type]


def test_a_process_samples_until_its_own_interval_fits_the_wanted_one() -> None:
    assert BenchmarkConfig(interval=0.01).process_width == pytest.approx(0.02)
    assert BenchmarkConfig(interval=0.5).process_width == BenchmarkConfig().process_width
