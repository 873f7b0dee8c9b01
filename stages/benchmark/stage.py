"""The benchmark stage: reference and test timed in turn, with compile time and peak memory."""

import os
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import psutil
import torch

from models.case import Case
from stages.benchmark import timing
from stages.benchmark.memory import allocated_peak, peak_memory
from stages.contract import Stage, StageContext, StageResult

SUMMARY_COLUMNS = [
    "side", "median_ms", "iqr_ms", "ci95_low_ms", "ci95_high_ms", "samples", "compile_s", "compile_reason",
    "peak_memory_bytes", "peak_host_bytes", "host_method",
]  # fmt: skip


class BenchmarkStage(Stage):
    """Times one step of the case on both sides. Raises where the test side can't be compiled."""

    name = "benchmark"

    def run(self, context: StageContext) -> StageResult:
        """Warm both sides, measure their peak memory, then time them in turn; the model is left as found."""
        from stages.kerneldiff.sides import reference_case, reference_function
        from stages.lower import compiled_case

        before = environment()
        compiled = compiled_case(context)
        base = reference_case(context)
        with base.preserved(), context.case.preserved():
            calls = {
                "reference": stepper(base, reference_function(context, base)),
                "test": stepper(context.case, compiled),
            }
            context.progress("warming up")
            warm = {side: self._warm(call) for side, call in calls.items()}
            peaks = {side: _peak(case, calls[side]) for side, case in (("reference", base), ("test", context.case))}
            context.progress("timing")
            samples = timing.interleave(
                calls,
                repeats=self.config.repeats,
                max_repeats=self.config.max_repeats,
                relative_ci=self.config.relative_ci,
                budget_s=self.config.budget_s,
                seed=context.settings.seed,
            )
        compile_s, reason = compile_seconds(context, compiled)
        compiles = {"reference": _reference_compile(context), "test": (compile_s, reason)}
        figures = {
            side: _figures(samples.milliseconds[side], compiles[side], peaks[side], context.settings.seed)
            for side in calls
        }
        return _result(samples, figures, context.settings.seed, before, warm)

    def _warm(self, call: Callable[[], None]) -> float | None:
        """Untimed calls; returns the first one's seconds, None where there is none."""
        first = None
        for index in range(self.config.warmup):
            start = time.perf_counter()
            call()
            first = time.perf_counter() - start if index == 0 else first
        return first


def stepper(case: Case, function: Callable[..., Any]) -> Callable[[], None]:
    """One synchronised step of ``case`` through ``function``; the result is dropped before it returns."""

    def call() -> None:
        case.step(function)
        case.synchronize()

    return call


def _peak(case: Case, call: Callable[[], None]) -> dict[str, Any]:
    """Peaks in bytes of one step; ``peak_memory_bytes`` is the allocator's of the device that the case is on.

    None where the device does not tell: what the host's allocator held is not the device's memory.
    """
    with peak_memory(case.device) as peak:
        call()
    return {
        "peak_memory_bytes": allocated_peak(case, call) if case.device.type == "cpu" else peak.device,
        "peak_host_bytes": peak.host,
        "host_method": peak.method,
    }


def compile_seconds(context: StageContext, compiled: Any) -> tuple[float | None, str]:
    """Seconds of the cold first step, which contains the compilation; or None and why it is not known.

    From the compiled case of this process, else from what ``lower`` stored. The lazy ``torch.compile()`` call is
    never what is meant.
    """
    seconds = getattr(compiled, "compile_s", None)
    if seconds is None and "lower/summary.json" in context.artifacts.names("lower/"):
        seconds = context.artifacts.read_json("lower/summary.json").get("compile_s")
    if seconds is None:
        return None, "no cold first step was timed"
    return float(seconds), "wall time of the cold first step, compilation included"


def _reference_compile(context: StageContext) -> tuple[float | None, str]:
    name = context.settings.reference.backend
    if name == "eager":
        return 0.0, "eager compiles nothing"
    return None, f"the first step of reference.backend={name} was not timed apart"


def _figures(
    values: list[float], compiled: tuple[float | None, str], peak: dict[str, Any], seed: int
) -> dict[str, Any]:
    return {
        "median_ms": float(pd.Series(values).median()),
        "iqr_ms": timing.interquartile_range(values),
        "ci95_ms": list(timing.median_interval(values, seed)),
        "samples": len(values),
        "compile_s": compiled[0],
        "compile_reason": compiled[1],
    } | peak


def _result(
    samples: timing.Samples,
    figures: dict[str, dict[str, Any]],
    seed: int,
    before: dict[str, Any],
    warm: dict[str, float | None],
) -> StageResult:
    reference, test = samples.milliseconds["reference"], samples.milliseconds["test"]
    ratio, interval = timing.speedup(reference, test), timing.speedup_interval(reference, test, seed)
    rows = [
        {"side": side, "index": index, "ms": ms, "started": started}
        for side in ("reference", "test")
        for index, (ms, started) in enumerate(zip(samples.milliseconds[side], samples.started[side], strict=True))
    ]
    table = [
        {"side": side, **figure, "ci95_low_ms": figure["ci95_ms"][0], "ci95_high_ms": figure["ci95_ms"][1]}
        for side, figure in figures.items()
    ]
    noise = {"before": before, "after": environment(), "stopped": samples.stopped, "first_warm_step_s": warm}
    message = (
        f"{milliseconds(figures['reference']['median_ms'])} → {milliseconds(figures['test']['median_ms'])}, "
        f"{ratio:.3g}× (95 %: {interval[0]:.3g} to {interval[1]:.3g}), {len(test)} samples a side"
    )
    if interval[0] <= 1 <= interval[1]:
        message += "; no difference established"
    return StageResult(
        "passed",
        message,
        {
            "benchmark/samples.csv": pd.DataFrame(rows, columns=["side", "index", "ms", "started"]),
            "benchmark/summary.csv": pd.DataFrame(table, columns=SUMMARY_COLUMNS),
            "benchmark/environment.json": noise,
        },
        {"benchmark": figures | {"speedup": ratio, "speedup_ci95": list(interval)}},
    )


def milliseconds(value: float) -> str:
    """Three digits or all whole ones, never an exponent: ``0.0123 ms``, ``20.1 ms``, ``2012 ms``."""
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def environment() -> dict[str, Any]:
    """What may disturb a timing: load averages, processors, torch's threads, processor frequency (None: unknown)."""
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return {
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cpu_mhz": frequency.current if frequency else None,
        "memory_available_bytes": psutil.virtual_memory().available,
    }
