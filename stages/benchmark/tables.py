"""What all sampling processes together come to: the figures of both sides, the tables and the message."""

from typing import Any

import pandas as pd

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.measurements import CacheUse, Machine, PartSpeedup, SampledProcess, SideFigures
from inductor_debug.stages.artifacts.records import Benchmark
from inductor_debug.stages.benchmark import interval, timing
from inductor_debug.stages.benchmark.device_use import DeviceUse, told
from inductor_debug.stages.benchmark.interference import reason_against
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.benchmark.records import Peaks
from inductor_debug.stages.benchmark.starts import COLUMNS, compilations, first_call
from inductor_debug.stages.contract import StageResult
from inductor_debug.stages.formatting import as_sentence, counted, in_lines, percent
from inductor_debug.stages.settings import Settings

SUMMARY_COLUMNS = [
    "side", "median_ms", "iqr_ms", "ci95_low_ms", "ci95_high_ms", "device_ms", "device_waited", "samples",
    "processes", "warmup_calls", "steady", "compile_s", "compile_kind", "compile_reason",
    "peak_memory_bytes", "peak_host_bytes", "host_method",
    *COLUMNS,
    *(f"{part}_{column}" for part in timing.PARTS for column in ("ms", "ci95_low_ms", "ci95_high_ms")),
]  # fmt: skip
DRIFT = 0.05
"""Share by which the speed-up of a process's first samples may differ from that of its last."""
_ONE_PROCESS = "it was sampled in one process, so that nothing tells how much processes differ"


def figures_of(
    found: list[Sampled], compile_s: float | None, caches: CacheUse, settings: Settings
) -> dict[str, SideFigures]:
    """Side → its part of ``summary.json``: the latency's geometric mean over the processes' medians, and the rest.

    Args:
        found: by process.
        compile_s: seconds of the test side's first step that compiled, and the ``caches`` that it met.
        settings: the run's.
    """
    told = f"wall time of the first step, compilation included; {caches.kind}: {caches.reason}"
    eager = settings.reference.uncompiled
    compiled = {
        "reference": (0.0, None, "eager compiles nothing") if eager else (None, None, "it was not timed apart"),
        "test": (compile_s, caches.kind, told),
    }
    figures: dict[str, SideFigures] = {}
    for side in timing.SIDES:
        by_process = [sampled.column(side) for sampled in found]
        device = [times for sampled in found if (times := sampled.column(side, "device_ms"))]
        every = [value for samples in by_process for value in samples]
        latency = interval.latency(by_process)
        memory = next((sampled.memory[side] for sampled in found if side in sampled.memory), Peaks())
        seconds, kind, reason = compiled[side]
        starts = first_call(found, side) if side == "test" or eager else {}
        starts |= compilations(found, compile_s, caches) if side == "test" else {}
        figures[side] = SideFigures(
            median_ms=latency.value,
            iqr_ms=timing.interquartile_range(every),
            ci95_ms=latency.ends,
            device_ms=interval.latency(device).value if device else None,
            device_waited=any(sampled.device_waited.get(side) for sampled in found) if device else None,
            samples=len(every),
            processes=len(found),
            warmup_calls=max(sampled.warm[side].calls for sampled in found),
            steady=all(sampled.warm[side].steady for sampled in found),
            **starts,
            **_parts_of_side(found, side),
            **vars(memory),
            compile_s=seconds,
            compile_kind=kind,
            compile_reason=reason,
        )
    return figures


def _parts_of_side(found: list[Sampled], side: str) -> dict[str, Any]:
    """Of a training step the fields of :class:`SideFigures` by part, those that were timed."""
    fields: dict[str, Any] = {}
    for part in timing.PARTS:
        times = [sampled.column(side, f"{part}_ms") for sampled in found]
        if all(times):
            latency = interval.latency(times)
            fields |= {f"{part}_ms": latency.value, f"{part}_ci95_ms": latency.ends}
    return fields


def parts_of(found: list[Sampled]) -> dict[str, PartSpeedup] | None:
    """Speed-up by part of a training step; None where no part was timed."""
    speedups = {}
    for part in timing.PARTS:
        times = [[sampled.column(side, f"{part}_ms") for sampled in found] for side in timing.SIDES]
        if all(map(all, times)):
            ratio = interval.speedup(*times)
            speedups[part] = PartSpeedup(ratio.value, ratio.ends)
    return speedups or None


def reached(found: list[Sampled], wanted: float) -> bool:
    """Whether the speed-up's interval is as narrow as wanted: half its width, relative to the speed-up."""
    width = speedup_of(found).half_width
    return width is not None and width <= wanted


def speedup_of(found: list[Sampled]) -> interval.Interval:
    """The reference's time over the test side's."""
    return interval.speedup(*([sampled.column(side) for sampled in found] for side in timing.SIDES))


def report_of(figures: dict[str, SideFigures], found: list[Sampled], wanted: float | None = None) -> StageResult:
    """The stage's result: passed, with what is not established said in the message and in ``summary.json``.

    Args:
        figures: of both sides, see :func:`figures_of`.
        found: by process.
        wanted: half-width of the speed-up's interval that was asked for, relative to it; None where none was.
    """
    ratio = speedup_of(found)
    reason = not_established(found)
    table = []
    for side, figure in figures.items():
        intervals = {"": figure.ci95_ms} | {f"{part}_": getattr(figure, f"{part}_ci95_ms") for part in timing.PARTS}
        intervals |= {"first_call_": figure.first_call_ci95_ms}
        columns = {f"{name}ci95_{end}_ms": (both or (None, None))[place]
                   for name, both in intervals.items() for place, end in enumerate(("low", "high"))}  # fmt: skip
        low, high = figure.warm_compile_ci95_s or (None, None)
        columns |= {"warm_compile_ci95_low_s": low, "warm_compile_ci95_high_s": high}
        table.append({"side": side, **vars(figure), **columns})
    part = Benchmark(
        figures["reference"],
        figures["test"],
        ratio.value,
        ratio.ends,
        reason is None,
        reason,
        half_width=ratio.half_width,
        wanted_half_width=wanted,
        interval_reached=None if wanted is None else reached(found, wanted),
        parts=parts_of(found),
        without_optimizer=next((sampled.without_optimizer for sampled in found if sampled.without_optimizer), None),
        l2_flushed=True if found[0].l2_flushed else None,
        cuda_graphs=_graphs(found),
    )
    return StageResult(
        "passed",
        in_lines(
            message(figures, ratio, reason, told(device_uses(found))),
            "L2 was flushed before each call." if part.l2_flushed else "",
            unreached(part),
            f"{counted(part.cuda_graphs, 'CUDA graph')} on the test side." if part.cuda_graphs else "",
            _without(part),
            executed(found, reason),
        ),
        {
            files.SAMPLES.path: files.SAMPLES.frame(row for sampled in found for row in sampled.rows),
            files.BENCHMARK.path: pd.DataFrame(table, columns=SUMMARY_COLUMNS),
            files.MACHINE.path: machine(found, reason),
        },
        {"benchmark": part},
        repeatable=part.interval_reached is not False,
    )


def not_established(found: list[Sampled]) -> str | None:
    """Why the speed-up is not established, whatever its interval; None where it is."""
    execution = found[0].execution
    if execution is not None and execution.elsewhere:
        return execution.elsewhere
    if len(found) < 2:
        return _ONE_PROCESS
    if _graphs(found) == 0:
        return "CUDA graphs were asked for, and torch recorded none; TORCH_LOGS=cudagraphs says why it skipped them"
    loads = [sampled.load for sampled in found if sampled.load is not None]
    return reason_against(loads, found[0].on_host) or _drifted(found)


def _graphs(found: list[Sampled]) -> int | None:
    """CUDA graphs that each process recorded at least; None where none were asked for."""
    counts = [sampled.cuda_graphs for sampled in found if sampled.cuda_graphs is not None]
    return min(counts, default=None)


def _drifted(found: list[Sampled]) -> str | None:
    """That the speed-up changed while it was sampled, by more than :data:`DRIFT` beyond noise; None where not."""
    change = interval.drift(*([sampled.column(side) for sampled in found] for side in timing.SIDES))
    if change.low is None or change.high is None or (change.low <= 1 + DRIFT and change.high >= 1 / (1 + DRIFT)):
        return None
    calls = max(warm.calls for sampled in found for warm in sampled.warm.values())
    return (
        f"it was not steady: in the first half of a process's samples the speed-up was {change.value:.3g} times that "
        f"in the second (95 %: {change.low:.3g} to {change.high:.3g}); type stages.benchmark.warmup={10 * calls}"
    )


def _without(part: Benchmark) -> str:
    """That the optimizer of a training step was not timed, a sentence; empty where it was."""
    return as_sentence(f"the optimizer was not timed: {part.without_optimizer}") if part.without_optimizer else ""


def unreached(part: Benchmark) -> str:
    """That the wanted interval was not reached, with the width that was; empty where it was, or none was wanted."""
    if part.interval_reached is not False:
        return ""
    assert part.wanted_half_width is not None, "one was wanted"
    width = "one process has no interval" if part.half_width is None else f"±{percent(part.half_width)} in the budget"
    return f"The wanted interval of ±{percent(part.wanted_half_width)} was not reached: {width}."


def executed(found: list[Sampled], reason: str | None) -> str:
    """What others than the backend executed, a sentence, unless it is ``reason``; empty where nothing."""
    execution = found[0].execution
    if execution is None or reason == execution.elsewhere or not execution.told:
        return ""
    return as_sentence(execution.told.removeprefix("; "))


def device_uses(found: list[Sampled]) -> list[DeviceUse]:
    """Who else had the device open, by process; empty where no device did the work."""
    return [sampled.device_use for sampled in found if sampled.device_use is not None]


def message(
    figures: dict[str, SideFigures], ratio: interval.Interval, reason: str | None, others_on_device: str = ""
) -> str:
    """How fast it is in a sentence, what is not established first; below it the figures.

    Args:
        figures: of both sides, see :func:`figures_of`; times in milliseconds.
        ratio: the reference's time over the test side's, with its 95 % interval.
        reason: why the speed is not established; None where it is.
        others_on_device: who else used the device, as text; empty where nobody did.
    """
    reference, test = figures["reference"], figures["test"]
    parts = [f"{part} {milliseconds(first)} → {milliseconds(second)}" for part in timing.PARTS
             if (first := getattr(reference, f"{part}_ms")) and (second := getattr(test, f"{part}_ms"))]  # fmt: skip
    assert reference.median_ms is not None and test.median_ms is not None and test.processes, "both sides were timed"
    lines = [f"{test.samples} samples a side in {counted(test.processes, 'process', 'processes')}."]
    if reference.device_ms is not None and test.device_ms is not None:
        text = f"The device alone: {milliseconds(reference.device_ms)} → {milliseconds(test.device_ms)}"
        waited = [side for side in timing.SIDES if figures[side].device_waited]
        lines.append(text + (f" (waits for the host included: {', '.join(waited)})." if waited else "."))
    lines += [f"By part: {', '.join(parts)}."] if parts else []
    lines += [as_sentence(others_on_device)] if others_on_device else []
    unsteady = [f"the {side} side" for side in timing.SIDES if figures[side].steady is False]
    lines += [f"Not known to be steady after warm-up: {', '.join(unsteady)}."] if unsteady else []
    if test.compile_s is not None:
        text = f"The first step took {test.compile_s:.3g} s ({test.compile_kind})"
        if test.cold_compile_s is not None and test.warm_compile_s is not None:
            text += f", {test.warm_compile_s:.3g} s warm"
        lines.append(f"{text}.")
    return in_lines(_speed(reference.median_ms, test.median_ms, ratio, reason), *lines)


def _speed(reference_ms: float, test_ms: float, ratio: interval.Interval, reason: str | None) -> str:
    """The speed-up in a sentence; ``reason``: why it is not established."""
    known = ratio.low is not None and ratio.high is not None
    ends = f", 95 %: {ratio.low:.3g} to {ratio.high:.3g}" if known else ""
    value = f"{ratio.value:.3g}" if abs(ratio.value - 1) >= 0.005 else f"{ratio.value:.2f}"
    times = f"{value} times as fast as the reference"
    figures = f"({milliseconds(reference_ms)} → {milliseconds(test_ms)}{ends})"
    if reason is not None:
        return f"The speed is not established: {reason}. Measured: {times} {figures}."
    if ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high:
        return f"No difference in speed is established: {times}, and the interval contains 1 {figures}."
    return f"The compiled model is {times} {figures}."


def machine(found: list[Sampled], reason: str | None) -> Machine:
    """``benchmark/environment.json``."""
    processes = [
        SampledProcess(
            process=sampled.index,
            stopped=sampled.stopped,
            first_warm_step_s={side: warm.seconds for side, warm in sampled.warm.items()},
            first_test_step=sampled.compiled,
            load=sampled.load,
            device_use=None if sampled.device_use is None else sampled.device_use.record,
            after=sampled.environment,
            execution=sampled.execution,
            warmup_calls={side: warm.calls for side, warm in sampled.warm.items()},
            steady={side: warm.steady for side, warm in sampled.warm.items()},
        )
        for sampled in found
    ]
    return Machine(reason, told(device_uses(found)) or None, [compiled_again(sampled) for sampled in found], processes)


def compiled_again(sampled: Sampled) -> str:
    """What one sampling process compiled, in words."""
    caches = sampled.compiled.caches
    if not sampled.compiled.loads:
        return "all: this backend's code can't be loaded by another process"
    parts = []
    if caches.missed:
        parts.append(f"{counted(caches.missed, 'graph')} not found among the stored ones")
    if caches.refused:
        parts.append(f"{counted(caches.refused, 'graph')} that torch can't store")
    if caches.made:
        parts.append(f"{counted(caches.made, 'file')} by the compilers")
    loaded = f"{counted(caches.loaded, 'graph')} loaded"
    return f"{', '.join(parts)}; {loaded}" if parts else f"nothing: {loaded}"


def milliseconds(value: float) -> str:
    """Three digits or all whole ones, never an exponent: ``0.0123 ms``, ``20.1 ms``, ``2012 ms``."""
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"
