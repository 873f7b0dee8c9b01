"""Cold and warm compilation and the first call, of given processes."""

import pytest
from test_benchmark_warmup import sampled

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts.measurements import CacheUse, FirstStep, SideFigures
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.benchmark.records import Warm
from inductor_debug.stages.benchmark.tables import figures_of, report_of
from inductor_debug.stages.settings import ReferenceConfig, Settings

COLD, WARM = CacheUse("cold", "nothing there"), CacheUse("warm", "all there")


def figures(
    found: list[Sampled], compile_s: float, caches: CacheUse, settings: Settings | None = None
) -> dict[str, SideFigures]:
    return figures_of(found, compile_s, caches, settings or Settings(ModelConfig()))


def compiled(index: int, seconds: float, caches: CacheUse) -> Sampled:
    """A process with this first step, whose first call takes 0.1 s and a little."""
    found = sampled(index, [2.0] * 4, [1.0] * 4)
    found.compiled = FirstStep(seconds, True, caches)
    found.warm = {side: Warm(side, 0.1 + index / 1000, 4, True) for side in ("reference", "test")}
    return found


def test_where_the_first_process_filled_the_caches_the_others_are_warm() -> None:
    found = [compiled(0, 30.0, COLD), *(compiled(index, 2.0 + index / 10, WARM) for index in (1, 2, 3, 4, 5))]
    sides = figures(found, 30.0, COLD)
    test = sides["test"]
    assert test.cold_compile_s == 30.0 and test.warm_compile_s == pytest.approx(2.3, rel=1e-2)
    assert test.warm_compile_ci95_s is not None
    assert 1.7 < test.warm_compile_ci95_s[0] < 2.3 < test.warm_compile_ci95_s[1] < 3.0
    assert test.warm_compile_reason == (
        "no compiler ran in 5 of 6 sampling processes; of another: cold, nothing there; timed in 3 of them, which "
        "began with it"
    )
    assert test.first_call_ms == pytest.approx(103.0, rel=1e-3) and test.median_ms == pytest.approx(1.0)
    reference = sides["reference"]
    assert reference.cold_compile_s is reference.warm_compile_s is reference.warm_compile_reason is None
    assert reference.first_call_ms == pytest.approx(102.0, rel=1e-3)
    result = report_of(sides, found)
    assert "The first step took 30 s (cold), 2.29 s warm." in result.message.splitlines()
    table = result.artifacts["benchmark/summary.csv"].set_index("side")
    assert table.loc["test", "warm_compile_ci95_low_s"] == test.warm_compile_ci95_s[0]
    assert table.loc["test", "first_call_ci95_high_ms"] == test.first_call_ci95_ms[1]  # type: ignore[index]


def test_a_first_call_is_of_the_processes_in_which_nothing_ran_before() -> None:
    """Where the other side ran first, it had started CUDA and loaded the libraries."""
    found = [compiled(index, 2.0 if index % 2 else 0.5, WARM) for index in range(4)]
    for each in found:
        first, second = ("reference", "test") if each.index % 2 == 0 else ("test", "reference")
        each.warm = {first: Warm(first, 0.5, 4, True), second: Warm(second, 0.008, 4, True)}
    sides = figures(found, 30.0, COLD)
    assert [sides[side].first_call_ms for side in ("reference", "test")] == pytest.approx([500.0, 500.0])
    assert sides["test"].warm_compile_s == pytest.approx(2.0)
    (alone,) = (figures([found[0]], 30.0, COLD)[side] for side in ("test",))
    assert alone.first_call_ms == pytest.approx(8.0)  # one process began with the reference: there is no other


def test_where_another_stage_compiled_its_step_is_the_cold_one() -> None:
    test = figures([compiled(index, 2.0, WARM) for index in range(3)], 40.0, COLD)["test"]
    assert (test.cold_compile_s, test.warm_compile_s) == (40.0, pytest.approx(2.0))
    assert test.warm_compile_reason == (
        "no compiler ran in 3 of 3 sampling processes; timed in 1 of them, which began with it"
    )


@pytest.mark.parametrize("kind", ["warm", "partly warm", "unknown"])
def test_what_found_code_in_the_caches_was_not_cold(kind: str) -> None:
    found = [compiled(index, 2.0, WARM) for index in range(3)]
    test = figures(found, 5.0, CacheUse(kind, "x"))["test"]
    assert test.cold_compile_s is None and test.compile_s == 5.0


@pytest.mark.parametrize(
    ("caches", "reason"),
    [
        (CacheUse("partly warm", "3 files compiled"),
         "no compiler ran in 0 of 2 sampling processes; of another: partly warm, 3 files compiled"),
        (CacheUse("unknown", "not through TorchInductor"), "not through TorchInductor"),
    ],
)  # fmt: skip
def test_where_every_process_compiled_there_is_no_warm_figure_and_why(caches: CacheUse, reason: str) -> None:
    test = figures([compiled(index, 9.0, caches) for index in range(2)], 30.0, COLD)["test"]
    assert test.warm_compile_s is test.warm_compile_ci95_s is None and test.warm_compile_reason == reason


def test_the_first_call_of_a_compiled_reference_has_its_compilation_in_it_and_is_not_told() -> None:
    settings = Settings(ModelConfig(), reference=ReferenceConfig(backend="inductor"))
    sides = figures([compiled(index, 2.0, WARM) for index in range(2)], 30.0, COLD, settings)
    assert sides["reference"].first_call_ms is None and sides["test"].first_call_ms is not None
