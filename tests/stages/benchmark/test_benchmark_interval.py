"""The interval over processes, against the coverage that it promises, and its rivals."""

import math

import numpy
import pytest

from inductor_debug.stages.benchmark import interval, timing

PROCESSES, SAMPLES = 5, 10


def pairs(trials, ratio, draw, spread=0.03, noise=0.05, outliers=0.0):
    """Samples of both sides by process: each process has a factor of its own on the ratio, and noise within."""
    for _ in range(trials):
        factors = draw.normal(0, spread, PROCESSES)
        factors = numpy.where(draw.random(PROCESSES) < outliers, factors * 5, factors)
        common = draw.normal(0, 0.2, (PROCESSES, 1))  # a slow process is slow on both sides
        reference = numpy.exp(common + factors[:, None] + draw.normal(0, noise, (PROCESSES, SAMPLES)))
        test = numpy.exp(common + draw.normal(0, noise, (PROCESSES, SAMPLES))) / ratio
        yield reference.tolist(), test.tolist()


def coverage(method, trials, ratio, **shape):
    draw = numpy.random.default_rng(7)
    hits = 0
    for reference, test in pairs(trials, ratio, draw, **shape):
        low, high = method(reference, test)
        hits += low <= ratio <= high
    return hits / trials


def ours(reference, test):
    found = interval.speedup(reference, test)
    return found.low, found.high


def two_levels(reference, test, draw=numpy.random.default_rng(3)):  # noqa: B008 - one generator for all calls
    """The bootstrap that was not taken: processes drawn again, then samples within."""
    values = []
    for _ in range(200):
        logarithms = []
        for process in draw.integers(0, PROCESSES, PROCESSES):
            first, second = (draw.choice(side[process], SAMPLES) for side in (reference, test))
            logarithms.append(math.log(numpy.median(first) / numpy.median(second)))
        values.append(math.exp(numpy.mean(logarithms)))
    return tuple(numpy.percentile(values, [2.5, 97.5]))


@pytest.mark.parametrize("ratio", [1.0, 1.2])
@pytest.mark.parametrize("shape", [{}, {"spread": 0.0}, {"spread": 0.2}, {"outliers": 0.1}])
def test_the_interval_covers_the_truth_as_often_as_it_says(ratio, shape):
    assert coverage(ours, 1000, ratio, **shape) >= 0.93


def test_an_interval_of_one_process_hides_what_processes_differ_by():
    def one_process(reference, test):
        return timing.ratio_interval(reference[0], test[0])

    assert coverage(one_process, 60, 1.0, spread=0.1) < 0.6


def test_a_bootstrap_in_two_levels_covers_less():
    assert coverage(two_levels, 100, 1.0, spread=0.1) < 0.9 < coverage(ours, 100, 1.0, spread=0.1)


def test_a_fifth_more_work_is_told_from_none():
    draw = numpy.random.default_rng(1)
    found = [interval.speedup(*pair) for pair in pairs(200, 1 / 1.2, draw)]
    assert sum(each.high < 1 for each in found) >= 190


def test_the_speed_up_is_the_ratio_of_the_latencies():
    reference, test = next(pairs(1, 1.3, numpy.random.default_rng(2)))
    ratio = interval.latency(reference).value / interval.latency(test).value
    assert interval.speedup(reference, test).value == pytest.approx(ratio)


def test_one_process_has_no_interval():
    found = interval.speedup([[2.0, 2.2]], [[1.0, 1.1]])
    assert found.value == pytest.approx(2.0) and found.ends is None


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (4, 2.776), (10, 2.228), (11, 2.201), (29, 2.045)])
def test_students_quantiles_are_those_of_the_tables(degrees, quantile):
    assert interval.t_quantile(degrees) == pytest.approx(quantile, abs=3e-3)


@pytest.mark.parametrize("ratio", [1.0, 1.2])
@pytest.mark.parametrize("spreads", [(0.05, 0.05), (0.02, 0.2), (0.0, 0.1)])
@pytest.mark.parametrize("processes", [(5, 5), (3, 5), (2, 2)])
def test_the_interval_of_two_runs_covers_the_truth(ratio, spreads, processes):
    draw, hits = numpy.random.default_rng(7), 0
    for _ in range(1000):
        first, second = (numpy.exp(draw.normal(0, spread, count))
                         for spread, count in zip(spreads, processes, strict=True))  # fmt: skip
        found = interval.of_runs(first.tolist(), (ratio * second).tolist())
        hits += found.low <= ratio <= found.high
    assert hits >= 930


def test_a_tenth_more_time_is_told_between_two_runs_of_five_processes():
    draw = numpy.random.default_rng(1)
    found = [interval.of_runs(*numpy.exp(draw.normal([[0.0], [math.log(1.1)]], 0.02, (2, 5)))) for _ in range(300)]
    assert sum(each.low > 1.05 for each in found) >= 240 > 15 >= sum(each.low > 1.1 for each in found)


def test_an_interval_that_no_float_holds_ends_at_infinity():
    assert interval.of_runs([1e-90, 1e90], [1e90, 1e-90]).ends == [0.0, math.inf]


def test_runs_of_which_one_has_a_single_process_have_no_interval():
    assert interval.of_runs([1.0], [1.0, 1.1]).ends is None
    assert interval.of_runs([2.0, 2.0], [4.0, 4.0]).ends == [2.0, 2.0]
