"""Whether it is as fast and as small: latency, compile time, peak memory.

A time is compared on one machine alone. A latency has an interval over the processes that sampled it, never one
sample's. Where A and B have the same reference (its code, torch, variables), each process's latency is taken over its
reference's: what makes the machine slower today makes both slower. Else the latencies themselves are compared, and
where the reference is as much slower, it is not established whose doing that is.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from inductor_debug.models import stored
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import MANIFEST
from inductor_debug.pipeline.directory.records import Machine
from inductor_debug.pipeline.query.gate.judgement import NOTHING_TO_HOLD_TO, ONLY_IN_A, Scales, number
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import Benchmark
from inductor_debug.stages.benchmark.interference import reason_against
from inductor_debug.stages.benchmark.interval import Interval, of_runs
from inductor_debug.stages.stored_run import StoredRun

REFERENCE_VERSIONS = ("python", "torch", "numpy")
COLUMNS = {"latency": "ms", "latency on the device": "device_ms"}
"""What is held → its column of benchmark/samples.csv."""
LEAST, MOST = 1e-6, 1e12
"""Milliseconds of a step: from a nanosecond to 30 years. What a stored file has beyond is no time."""
UNKNOWN = "unknown"
_HYDRA = ".hydra/hydra.yaml"
PARTLY, FOUND = "partly warm", "it may have found a part of the code in the compilers' caches"
"""A kind of compilation of which no two are alike (:class:`~stages.artifacts.measurements.CacheUse`)."""


def hold_times(scales: Scales, a: StoredRun, b: StoredRun, *, same_case: bool) -> None:
    """Hold B's latency, compile time and peak memory.

    Args:
        scales: what judges.
        a, b: the runs.
        same_case: whether both ran the same model, so that their references may be the same.
    """
    elsewhere = other_machine(a, b)
    _hold_compile_time(scales, a, b, elsewhere)
    paired = same_case and same_reference(a, b)
    for what, column in COLUMNS.items():
        _hold_latency(scales, what, [medians(run, column) for run in (a, b)], [a, b], elsewhere, paired)
    _hold_memory(scales, a, b)


def other_machine(a: StoredRun, b: StoredRun) -> str:
    """Why the times of two runs are not of one machine; empty where they are."""
    facts = [_machine(run) for run in (a, b)]
    if facts[0] is None or facts[1] is None:
        return f"not compared: which machine {'A' if facts[0] is None else 'B'} ran on is not known"
    differing = [f"{key} ({facts[0][key]}, {facts[1][key]})" for key in facts[0] if facts[0][key] != facts[1][key]]
    return f"not compared: times of another machine: {', '.join(differing)}" if differing else ""


def same_reference(a: StoredRun, b: StoredRun) -> bool:
    """Whether both references are the same code, so that what they differ by is the machine's doing."""
    first, second = a.head.compiled_by, b.head.compiled_by
    if first is None or second is None or first.model is None or first.model != second.model:
        return False
    if any(_benchmark(run).reference.compile_s != 0.0 for run in (a, b)):  # it may be compiled, by what is under test
        kinds = ("versions", "commit", "options", "options_before")
        if any(getattr(first, kind) != getattr(second, kind) for kind in kinds):
            return False
    versions = all(first.versions.get(name) == second.versions.get(name) for name in REFERENCE_VERSIONS)
    return versions and (first.variables, first.settings, first.device) == (
        second.variables, second.settings, second.device)  # fmt: skip


def _machine(run: StoredRun) -> dict[str, str] | None:
    try:
        manifest = run.artifacts.read_json(MANIFEST)
    except FileNotFoundError:
        return None
    found = manifest.get("machine")
    if run.head.compiled_by is None or found is None or (isinstance(found, dict) and "hostname" not in found):
        return None  # as an export, which names no machine
    machine: Machine = stored.shaped(manifest["machine"], Machine, run.folder / MANIFEST)
    device = run.head.compiled_by.device
    found = {"host": machine.hostname, "cpu": machine.cpu, "cores": str(machine.cores_usable)}
    return {**found, "device": "" if device is None else device.name}


def _benchmark(run: StoredRun) -> Benchmark:
    return run.head.benchmark or Benchmark()


def _doubt(run: StoredRun) -> str:
    """Why a run's latency is not established; empty where it is."""
    told = _benchmark(run)
    return (told.not_established or "it says no reason") if told.established is False else ""


Samples = dict[str, dict[str, float]]
"""Side → process → the median of its samples in milliseconds."""


def medians(run: StoredRun, column: str) -> Samples:
    """A run's times, of a column of :data:`COLUMNS`; those that are no time are left out."""
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in files.SAMPLES.read(run.artifacts) or []:
        value = number(row[column])
        if value is not None and LEAST < value < MOST:
            groups[str(row["side"])][str(row["process"])].append(value)
    return {side: {name: median(values) for name, values in found.items()} for side, found in groups.items()}


def ratio_of(a: Samples, b: Samples, *, paired: bool) -> Interval:
    """B's latency over A's; ``paired``: each process's over its reference's."""
    sides = [[time / found["reference"][name] if paired else time for name, time in found["test"].items()]
             for found in (a, b)]  # fmt: skip
    return of_runs(*sides)


def _hold_latency(
    scales: Scales, what: str, samples: Sequence[Samples], runs: Sequence[StoredRun], elsewhere: str, paired: bool
) -> None:
    limit = scales.limit("latency")
    sides = [found.get("test", {}) for found in samples]
    a, b = (math.exp(sum(map(math.log, side.values())) / len(side)) if side else None for side in sides)
    if limit is None or (a is None and b is None):
        return
    doubts = [_doubt(run) for run in runs]
    reason, fails = _not_comparable([a, b], [len(side) for side in sides], doubts, elsewhere)
    if reason:
        scales.unknown("latency", f"{what} (ms)", a, b, reason, fails=fails)
        return
    timed = all(found.get("reference", {}).keys() >= found["test"].keys() for found in samples)
    relative = ratio_of(samples[0], samples[1], paired=True) if timed else None
    ratio = relative if relative and paired else ratio_of(samples[0], samples[1], paired=False)
    assert ratio.low is not None and ratio.high is not None
    change = f"{_told(ratio)}{', over the time of the reference, which is the same' if ratio is relative else ''}"
    if ratio.low > limit and relative and relative.low is not None and relative.low <= limit:
        why = f"{change}, but over the time of the reference {_told(relative)}: the machine's doing, or the reference's"
        scales.unknown("latency", f"{what} (ms)", a, b, why, fails=True)
    elif ratio.low > limit:
        scales.worse("latency", f"{what} (ms)", a, b, change)
    elif ratio.high * limit < 1:
        scales.better("latency", f"{what} (ms)", a, b, change)
    elif ratio.high > limit:
        scales.unknown("latency", f"{what} (ms)", a, b, f"no more than noise: {change}", fails=False)


def _not_comparable(
    values: Sequence[float | None], processes: Sequence[int], doubts: Sequence[str], elsewhere: str
) -> tuple[str, bool]:
    """Why latencies can't be compared, and whether that fails: it does where A's was established, and B's is not."""
    if values[0] is None:
        return NOTHING_TO_HOLD_TO, False
    if doubts[0] or processes[0] < 2:
        return f"A's is not established: {doubts[0] or 'one process sampled it'}", False
    if elsewhere:
        return elsewhere, False
    if values[1] is None:
        return ONLY_IN_A, True
    if doubts[1] or processes[1] < 2:
        return f"B's is not established: {doubts[1] or 'one process sampled it'}", True
    return "", False


def _told(ratio: Interval) -> str:
    return f"{ratio.value:.3g} times (95 %: {ratio.low:.3g} to {ratio.high:.3g})"


def _hold_compile_time(scales: Scales, a: StoredRun, b: StoredRun, elsewhere: str) -> None:
    """Hold the wall time of the first step, where both met alike caches on a machine that did nothing else."""
    (before, met), (now, meets) = (_compile_time(run) for run in (a, b))
    if scales.limit("compile_s") is None or (before is None and now is None):
        return
    what, busy = "compile time (s)", [_beside(run) or _busy(run) for run in (a, b)]
    reason, fails = "", False
    if before is None:
        reason = NOTHING_TO_HOLD_TO
    elif elsewhere:
        reason = elsewhere
    elif met in (None, UNKNOWN) and met != meets:
        reason = "A's is not established: what it found in the compilers' caches is not known"
    elif busy[0] or met == PARTLY:
        reason = f"A's is not established: {busy[0] or FOUND}"
    elif now is None:
        reason, fails = ONLY_IN_A, True
    elif met != meets:
        reason, fails = f"other caches: A's compilation was {met}, B's {meets}", True
    elif busy[1]:
        reason, fails = f"B's is not established: {busy[1]}", True
    if reason:
        scales.unknown("compile_s", what, before, now, reason, fails=fails)
    else:
        scales.amount("compile_s", what, before, now)


def _compile_time(run: StoredRun) -> tuple[float | None, str | None]:
    """Seconds of the first step, and what it met in the compilers' caches."""
    lowered = files.LOWERING.read(run.artifacts)
    if lowered is not None and lowered.compile_s is not None:
        return number(lowered.compile_s), lowered.caches.kind
    test = _benchmark(run).test
    return test.compile_s, test.compile_kind


def _busy(run: StoredRun) -> str:
    """What others took of the cores while the run was timed; empty where they took little or that was not looked at."""
    found = files.MACHINE.read(run.artifacts)
    loads = [process.load for process in found.processes if process.load is not None] if found else []
    device = run.head.compiled_by.device if run.head.compiled_by else None
    return (reason_against(loads, device is None or device.name == "cpu") or "") if loads else ""


def _beside(run: StoredRun) -> str:
    """Why other jobs of its sweep may have worked while a run compiled; empty where they followed one another."""
    stored = StoredFolder(run.folder)
    found = stored.read_yaml(_HYDRA, dict[str, Any]).get("hydra") if stored.has(_HYDRA) else None
    if not isinstance(found, dict) or found.get("mode") != "MULTIRUN" or not isinstance(found.get("launcher"), dict):
        return ""
    launcher = found["launcher"]
    name = str(launcher.get("_target_", "")).rpartition(".")[2]
    alone = name in ("", "BasicLauncher") or launcher.get("n_jobs") == 1
    return "" if alone else f"other jobs of its sweep may have worked at the same time ({name})"


def _hold_memory(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    before, now = (_benchmark(run).test.peak_memory_bytes for run in (a, b))
    devices = [run.head.compiled_by and run.head.compiled_by.device for run in (a, b)]
    names = [device.name if device else None for device in devices]
    if names[0] != names[1] and before is not None:
        why = f"not compared: memory of another device ({names[0]}, {names[1]})"
        scales.unknown("peak_memory", "peak memory (bytes)", before, now, why, fails=False)
    else:
        scales.amount("peak_memory", "peak memory (bytes)", before, now)
