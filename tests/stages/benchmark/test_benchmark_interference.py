"""Which surroundings could carry a timing, decided from figures; and the meter beside a neighbour of our own."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from inductor_debug.stages.artifacts.measurements import Load
from inductor_debug.stages.benchmark import interference, interval
from inductor_debug.stages.benchmark.interference import (
    SHARE,
    LoadMeter,
    _Counters,
    reason_against,
    taken,
    usable_cores,
)


def load(others=0.0, usable=2.0, threads=2, on_host=True, wall=1.0):
    needed = max(1.0, min(threads, usable) if on_host else 1.0)
    return Load(
        wall,
        usable,
        needed,
        threads,
        own=needed,
        others=others,
        waited=None,
        involuntary=0,
        taken=taken(others, needed, usable),
    )


def test_cores_that_nobody_needed_may_be_taken():
    assert load(others=12.0, usable=16.0, threads=4).taken == 0.0
    assert load(others=14.0, usable=16.0, threads=4).taken == pytest.approx(0.5)
    assert load(others=14.5, usable=16.0, threads=16, on_host=False).taken == 0.0  # one core feeds the device
    assert load(others=1.0).taken == pytest.approx(0.5)


@pytest.mark.parametrize("others", [0.0, 0.02, 0.1])
def test_a_quiet_machine_is_no_reason(others):
    assert reason_against([load(others=others)] * 5, True) is None


@pytest.mark.parametrize("others", [0.3, 1.0, 2.0])
def test_a_neighbour_is_a_reason_with_its_share(others):
    reason = reason_against([load(others=others)] * 5, True)
    assert reason is not None and f"{50 * others:.0f} % of the 2 cores" in reason


def test_a_neighbour_that_came_for_two_of_five_processes_is_one():
    assert reason_against([load(others=1.0)] * 2 + [load()] * 3, True) is not None


def test_more_threads_than_cores_is_a_reason_that_says_what_to_type():
    reason = reason_against([load(threads=15)] * 5, True)
    assert reason is not None and "15 threads on 2 usable cores" in reason and "OMP_NUM_THREADS=2" in reason
    assert reason_against([load(threads=15, on_host=False)] * 5, False) is None


def test_a_load_that_cannot_be_measured_is_a_reason():
    assert "can't be measured" in (reason_against([load(others=None)] * 5, True) or "")
    assert reason_against([], True)


def test_no_pair_of_equals_is_called_different_beside_a_neighbour():
    """A neighbour slows one side by a factor that is alike in all processes: no interval shows that."""
    draw = numpy.random.default_rng(5)
    wrong = told = 0
    for _ in range(40):
        slowed = 1 + draw.uniform(0.2, 100)
        reference = numpy.exp(draw.normal(numpy.log(slowed), 0.05, (5, 10))).tolist()
        test = numpy.exp(draw.normal(0, 0.05, (5, 10))).tolist()
        found = interval.speedup(reference, test)
        established = reason_against([load(others=draw.uniform(0.5, 2.0)) for _ in range(5)], True) is None
        wrong += established and not found.low <= 1 <= found.high
        told += not found.low <= 1 <= found.high
    assert wrong == 0 and told >= 36  # without the load, nearly all would be told wrong


def test_few_of_the_pairs_on_a_quiet_machine_say_nothing():
    draw = numpy.random.default_rng(6)
    silent = sum(
        reason_against([load(others=draw.exponential(0.05)) for _ in range(5)], True) is not None for _ in range(40)
    )
    assert silent <= 2 and SHARE == 0.1


def test_the_meter_sees_a_neighbour_on_its_core_and_its_own_work():
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}}); print('on', flush=True)\nwhile True: pass"
    found = []

    def observe():
        os.sched_setaffinity(0, {core})  # of this thread alone
        meter = LoadMeter(1, on_host=True)
        total = 0
        while total < 2_000_000:
            total += 1
        found.append(meter.read())

    neighbour = subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE)
    try:
        assert neighbour.stdout is not None and neighbour.stdout.readline()
        thread = threading.Thread(target=observe)
        thread.start()
        thread.join()
    finally:
        neighbour.kill()
        neighbour.wait()
    assert found[0].usable == 1 and found[0].needed == 1
    assert found[0].own > 0.02 and found[0].taken is not None and found[0].taken > SHARE
    assert reason_against(found, True)


def test_usable_cores_are_at_most_those_of_the_affinity():
    assert 0 < usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("others", "in_group", "share"),
    [
        (0.25, 0.0, 0.0),  # 60 of 64 cores are idle
        (63.0, 0.0, 0.5),  # of 64 cores one is left
        (10.0, 1.0, 0.5),  # of the quota of two cores another process of the container has one
    ],
)
def test_what_others_take_is_of_the_cores_that_they_can_take(
    others: float, in_group: float, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with a quota of two cores on a machine of 64."""
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    clock = iter((0.0, 1.0, 1.0))
    worked = _Counters(2.0, 0, 2.0 + others, None, 2.0 + in_group)
    told = iter((_Counters(0.0, 0, 0.0, None, 0.0), worked, worked))
    monkeypatch.setattr(interference, "_CGROUPS", tmp_path)
    monkeypatch.setattr(interference, "_affinity", lambda: 64.0)
    monkeypatch.setattr(interference, "_counters", lambda: next(told))
    monkeypatch.setattr(interference, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = LoadMeter(2, on_host=True).read()
    assert (found.usable, found.needed, found.others) == (2.0, 2.0, others)
    assert found.taken == pytest.approx(share)


def test_the_control_groups_own_time_is_read_in_either_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "_CGROUPS", tmp_path)
    assert interference._group() is None
    (tmp_path / "cpuacct").mkdir()
    (tmp_path / "cpuacct" / "cpuacct.usage").write_text("2500000000\n")
    assert interference._group() == 2.5
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\n")
    assert interference._group() == 1.5
