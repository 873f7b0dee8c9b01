"""From a process's first step to its steady state: cold and warm compilation, and the first call after it."""

from typing import Any

from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.backends.compile_caches import COLD, UNKNOWN, WARM
from inductor_debug.stages.benchmark import interval, timing
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.formatting import counted

COLUMNS = ("cold_compile_s", "warm_compile_s", "warm_compile_ci95_low_s", "warm_compile_ci95_high_s",
           "warm_compile_reason", "first_call_ms", "first_call_ci95_low_ms", "first_call_ci95_high_ms")  # fmt: skip
"""Of benchmark/summary.csv."""


def compilations(found: list[Sampled], compile_s: float | None, caches: CacheUse) -> dict[str, Any]:
    """Fields of the test side's figures on compilation, each the wall time of a first step.

    Cold is one measurement, of the process whose caches held nothing. Warm is that of sampling processes in which no
    compiler ran, for an earlier process had filled the caches, and which began with this side if any such did.

    Args:
        found: by process.
        compile_s: seconds of the first step that compiled, of whichever process, and the ``caches`` that it met.
    """
    warm = [sampled for sampled in found if sampled.compiled.caches.kind == WARM]
    fields: dict[str, Any] = {
        "cold_compile_s": compile_s if caches.kind == COLD else None,
        "warm_compile_reason": _reason(found, len(warm)),
    }
    first = beginning_with("test", warm)
    seconds = [sampled.compiled.seconds for sampled in first if sampled.compiled.seconds]
    if len(first) < len(warm):
        fields["warm_compile_reason"] += f"; timed in {counted(len(first), 'of them', 'of them')}, which began with it"
    if seconds:
        mean = interval.over_processes(seconds)
        fields |= {"warm_compile_s": mean.value, "warm_compile_ci95_s": mean.ends}
    return fields


def first_call(found: list[Sampled], side: str) -> dict[str, Any]:
    """Fields of a side's figures on the first call that compiles nothing, before the warm-up."""
    mean = interval.over_processes([1e3 * sampled.warm[side].seconds for sampled in beginning_with(side, found)])
    return {"first_call_ms": mean.value, "first_call_ci95_ms": mean.ends}


def beginning_with(side: str, found: list[Sampled]) -> list[Sampled]:
    """The processes that began with a side, or all where none did: in others the other side had started CUDA and loaded
    the libraries."""
    return [sampled for sampled in found if sampled.index % 2 == timing.SIDES.index(side)] or found


def _reason(found: list[Sampled], warm: int) -> str:
    kinds = {sampled.compiled.caches.kind for sampled in found}
    if kinds == {UNKNOWN}:
        return found[0].compiled.caches.reason
    told = f"no compiler ran in {warm} of {counted(len(found), 'sampling process', 'sampling processes')}"
    others = next((sampled.compiled.caches for sampled in found[::-1] if sampled.compiled.caches.kind != WARM), None)
    return told if others is None else f"{told}; of another: {others.kind}, {others.reason}"
