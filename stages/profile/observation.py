"""Steps under ``torch.profiler``: how long each named range and each operator took, step by step.

On the CPU a range's time is that between its beginning and its end. On a device it is the time of the device's kernels
that were launched between the two, which the profiler tells by the driver's correlation of launches and kernels.
"""

import bisect
import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from inductor_debug.models.case import Case
from inductor_debug.stages.torch_internals.compile_workers import end_compile_workers
from inductor_debug.stages.torch_internals.profiling import fast_range, is_backward, is_operator

STEP = "profiled step"
EMPTY = "empty range"
EMPTIES = 300
LEAST = 3
"""Steps that are taken whatever they take."""
BACKWARD = " backward"
"""What is added to a range's name for the backward of what autograd recorded inside it."""
ACTIVITIES = {"cpu": None, "cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
"""Device type → what makes the profiler record that device's kernels; None where the host does the work itself."""


@dataclass
class Times:
    """One range, or one operator, over the recorded steps.

    Attributes:
        calls: by step.
        microseconds: by step, all calls together, without those of ranges inside it.
        host: by step, likewise, of the host's time between beginning and end.
    """

    calls: list[int]
    microseconds: list[float]
    host: list[float]

    @classmethod
    def of(cls, steps: int) -> "Times":
        return cls([0] * steps, [0.0] * steps, [0.0] * steps)


@dataclass
class Observation:
    """What the recorded steps showed. Times in microseconds.

    Attributes:
        unprofiled: wall time of each step of the code as it is, without the profiler.
        observed: wall time of each recorded step, with ranges and the profiler.
        ranges: name → times.
        operators: ``aten::name`` → times of its calls that no other operator made, those inside ranges included;
            ``outside`` those outside of every range alone.
        device: by step, time of all the device's kernels; None where the host does the work.
        on_device: whether the times are a device's; else they are the host's.
        range_cost: what an empty range costs the step, profiler on.
        range_floor: what an empty range is recorded with.
        trace: a Chrome trace of further steps, or None.
        compilations: graphs that were compiled during the steps that were timed.
        not_established: what the profiler can't tell here.
    """

    unprofiled: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)
    ranges: dict[str, Times] = field(default_factory=dict)
    operators: dict[str, Times] = field(default_factory=dict)
    outside: dict[str, Times] = field(default_factory=dict)
    device: list[float] | None = None
    on_device: bool = False
    range_cost: float = 0.0
    range_floor: float = 0.0
    trace: bytes | None = None
    compilations: int = 0
    not_established: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return len(self.observed)


def observe(
    case: Case,
    unprofiled: Callable[..., Any],
    ranged: Callable[..., Any],
    ranges: Callable[[], Collection[str]],
    compilations: Callable[[], int],
    *,
    steps: int,
    warmup: int,
    trace_steps: int,
    budget_s: float = 60.0,
) -> Observation:
    """Time steps of ``unprofiled``, and record steps of ``ranged``; the case is left as it was.

    Args:
        case: what is profiled.
        unprofiled, ranged: the same, compiled, with the module's signature; the second opens ranges.
        ranges: names of the ranges. Asked for once the steps were taken: any of them may compile graphs of its own.
        compilations: how many graphs were compiled so far.
        steps, warmup, trace_steps, budget_s: as in :class:`stages.profile.config.ProfileConfig`.
    """
    activity = ACTIVITIES.get(case.device.type)
    found = Observation(on_device=activity is not None)
    if case.device.type not in ACTIVITIES:
        found.not_established.append(f"times on {case.device.type}: torch.profiler records the host alone there")

    def taken(step: Callable[[], float], count: int, seconds: float) -> list[float]:
        before = compilations()
        times = _steps(step, count, seconds)
        found.compilations += compilations() - before
        return times

    with case.preserved():
        for _ in range(warmup):
            _step(case, unprofiled)
            _step(case, ranged)
        end_compile_workers()
        _step(case, unprofiled)
        found.unprofiled += taken(lambda: _step(case, unprofiled), steps // 2, budget_s / 2)
        with _profiler(activity) as profiler:
            _step(case, ranged)
            found.observed += taken(lambda: _marked(case, ranged), steps, budget_s)
            found.range_cost = _empty_ranges()
        found.unprofiled += taken(lambda: _step(case, unprofiled), steps - steps // 2, budget_s / 2)
        names = ranges()
        _read(found, profiler.events() or [], lambda name: name in names)
        if trace_steps:
            found.trace = _trace(case, ranged, activity, trace_steps)
    return found


def _profiler(activity: ProfilerActivity | None) -> contextlib.AbstractContextManager[Any]:
    activities = [ProfilerActivity.CPU, *([] if activity is None else [activity])]
    return profile(activities=activities, acc_events=True)


def _steps(step: Callable[[], float], count: int, budget_s: float) -> list[float]:
    """``count`` steps; fewer, but :data:`LEAST`, where they take longer than the budget."""
    taken: list[float] = []
    while len(taken) < count and (len(taken) < LEAST or sum(taken) < budget_s * 1e6):
        taken.append(step())
    return taken


def _marked(case: Case, function: Callable[..., Any]) -> float:
    with record_function(STEP):
        return _step(case, function)


def _step(case: Case, function: Callable[..., Any]) -> float:
    """Wall microseconds of one step, the device's work included."""
    began = time.perf_counter()
    case.step(function)
    case.synchronize()
    return (time.perf_counter() - began) * 1e6


def _empty_ranges() -> float:
    """Median microseconds that the profiler's empty ranges cost."""
    costs = []
    for _ in range(EMPTIES):
        began = time.perf_counter()
        with fast_range(EMPTY):
            pass
        costs.append((time.perf_counter() - began) * 1e6)
    return median(costs)


def _trace(case: Case, ranged: Callable[..., Any], activity: ProfilerActivity | None, steps: int) -> bytes:
    with _profiler(activity) as profiler:
        for _ in range(steps):
            with record_function(STEP):
                _step(case, ranged)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_bytes()


def _read(found: Observation, events: Sequence[Any], is_range: Callable[[str], bool]) -> None:
    """Fill ``found`` from the profiler's events."""
    host = [event for event in events if event.device_type == DeviceType.CPU and not event.is_async]
    spans = sorted((event.time_range.start, event.time_range.end) for event in host if event.name == STEP)
    assert len(spans) == found.steps, f"{len(spans)} of {found.steps} recorded steps are in the profile"
    found.range_floor = median([event.cpu_time_total for event in host if event.name == EMPTY] or [0.0])
    if found.on_device:
        found.device = _device_times(events, spans)
        if not any(found.device):
            found.not_established.append("device times: the profiler saw no kernel of the device (CUPTI missing?)")
    forward = _sequences(host, is_range)
    for event in host:
        step = _step_of(event, spans)
        if step is None:
            continue
        outer = _around(event, lambda item: is_range(item.name))
        backward = _around(event, lambda item: _is_backward_of(item, forward))
        if is_range(event.name):
            _add(found.ranges, event.name, found, step, event)
            if outer is not None:
                _add(found.ranges, outer.name, found, step, event, -1)
        elif _is_backward_of(event, forward):
            _add(found.ranges, forward[event.sequence_nr] + BACKWARD, found, step, event)
        elif _is_operator(event) and _around(event, _is_operator) is None:
            _add(found.operators, event.name, found, step, event)
            if outer is None and backward is None:
                _add(found.outside, event.name, found, step, event)


def _sequences(events: Sequence[Any], is_range: Callable[[str], bool]) -> dict[int, str]:
    """Autograd's sequence number → the range inside which autograd recorded it.

    An event has the number that the next node will get. Where it makes none, as ``argmax``, later events have the same
    one: the last of them made the node, in whatever range it is, or in none, as the loss.
    """
    found: dict[int, str] = {}
    for event in sorted(events, key=lambda item: item.time_range.start):
        number = event.sequence_nr
        if number < 0 or is_backward(event.name):
            continue
        if _around(event, lambda item: _is_backward_of(item, (number,))) is not None:  # noqa: B023 - called at once
            continue
        outer = _around(event, lambda item: is_range(item.name))
        if outer is not None:
            found[number] = outer.name
        else:
            found.pop(number, None)
    return found


def _is_backward_of(event: Any, forward: Collection[int]) -> bool:
    return is_backward(event.name) and event.sequence_nr in forward


def _is_operator(event: Any) -> bool:
    return is_operator(event.name)


def _around(event: Any, holds: Callable[[Any], bool]) -> Any:
    """The innermost event around this one for which it holds; None where there is none."""
    found = event.cpu_parent
    while found is not None and not holds(found):
        found = found.cpu_parent
    return found


def _device_times(events: Sequence[Any], spans: Sequence[tuple[float, float]]) -> list[float]:
    times = [0.0] * len(spans)
    for event in events:
        step = _step_of(event, spans)
        if event.device_type != DeviceType.CPU and not event.is_user_annotation and step is not None:
            times[step] += event.time_range.elapsed_us()
    return times


def _step_of(event: Any, spans: Sequence[tuple[float, float]]) -> int | None:
    found = bisect.bisect_right(spans, (event.time_range.start, math.inf)) - 1
    return found if found >= 0 and event.name != STEP and event.time_range.start < spans[found][1] else None


def _add(into: dict[str, Times], name: str, found: Observation, step: int, event: Any, sign: int = 1) -> None:
    """Count an event; with ``sign`` -1 take its time from the range around it."""
    times = into.setdefault(name, Times.of(found.steps))
    times.calls[step] += sign > 0
    times.host[step] += sign * event.cpu_time_total
    times.microseconds[step] += sign * (event.device_time_total if found.on_device else event.cpu_time_total)
