"""What the device can do at best: measured here, or as the accelerator's profile names it.

Bandwidth is measured by copying one array into another, both together well over the last-level caches. FLOP/s are
measured by a product of square matrices in each dtype concerned, with the case's threads and TF32 setting. Both are
medians of several short runs: what a good kernel reaches here, not a data sheet's figure.
"""

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.tf32 import tf32_allowed
from inductor_debug.stages.accelerators.config import PeaksConfig
from inductor_debug.stages.artifacts.measurements import Ceiling
from inductor_debug.stages.formatting import human_bytes

REPEATS = 5
BUDGET_S = 0.8
"""Seconds that one measurement may take, its first run left out."""
MIB = 2**20
SYSFS = Path("/sys/devices/system/cpu")
"""Where Linux describes the host's processors."""
SMALLEST = {"cpu": 64 * MIB}
"""Device type → bytes of each of the two arrays at least; of others :data:`SMALLEST_ELSEWHERE`."""
SMALLEST_ELSEWHERE = 256 * MIB
LARGEST = 1024 * MIB
MEMORY_SHARE = 8
"""An array takes at most this part, one eighth, of the host's available memory."""


def named_ceiling(peaks: PeaksConfig, profile: str) -> Ceiling | None:
    """What the accelerator's profile names; None where it names nothing."""
    if not peaks.stated:
        return None
    facts = {"profile": profile, "source": peaks.source, "version": peaks.version}
    return Ceiling("profile", peaks.bandwidth, dict(peaks.flops), facts)


def measured_ceiling(case: Case, dtypes: Iterable[str]) -> Ceiling:
    """Measure the case's device.

    Args:
        dtypes: of matrix products, without the ``torch.`` prefix.
    """
    cache = last_level_cache(case.device)
    found = Ceiling("measured", facts={"last_level_cache_bytes": cache, "threads": torch.get_num_threads()})
    found.bandwidth, found.facts["copy"] = _bandwidth(case, cache)
    tf32 = tf32_allowed(case.tf32) if case.device.type == "cuda" else nullcontext()
    with torch.no_grad(), tf32:
        for name in dtypes:
            rate, facts = _products(case, getattr(torch, name))
            found.flops[name] = rate
            found.facts[f"matmul_{name}"] = facts
    return found


def last_level_cache(device: torch.device, root: Path = SYSFS) -> int | None:
    """Bytes of the device's last-level cache, or of the host's together; None where that is not told.

    The host's are those of the processors that this process may use, each counted once: some have one for every few.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    last = [max(found) for cpu in allowed if (found := _caches(root / f"cpu{cpu}" / "cache"))]
    return sum({(level, shared): size for level, shared, size in last}.values()) or None


def _caches(folder: Path) -> list[tuple[int, str, int]]:
    """Level, processors that share it and bytes of each of a processor's caches.

    Left out are those of instructions, and those that a virtual machine tells no size of.
    """
    units = {"K": 1024, "M": MIB, "G": 1024 * MIB}
    found = []
    for path in folder.glob("index*"):
        names = ("level", "shared_cpu_list", "size", "type")
        if not all((path / name).is_file() for name in names):
            continue
        level, shared, text, kind = ((path / name).read_text().strip() for name in names)
        if kind != "Instruction":
            size = int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
            found.append((int(level), shared, size))
    return found


def _bandwidth(case: Case, cache: int | None) -> tuple[float, dict[str, Any]]:
    """Bytes read and written per second by a copy."""
    smallest = SMALLEST.get(case.device.type, SMALLEST_ELSEWHERE)
    size = min(max(smallest, 2 * (cache or 0)), LARGEST, _available(case.device) // MEMORY_SHARE)
    source = torch.ones(size, dtype=torch.uint8, device=case.device)
    target = torch.empty_like(source)
    seconds, runs = _timed(case, lambda: target.copy_(source))
    beyond = None if cache is None else 2 * size >= 3 * cache
    return 2 * size / seconds, {"array_bytes": size, "runs": runs, "well_beyond_cache": beyond}


def _available(device: torch.device) -> int:
    """Bytes of memory to be had; of a device's no more is known than that the arrays are small against it."""
    return int(psutil.virtual_memory().available) if device.type == "cpu" else LARGEST * MEMORY_SHARE


def doubts(ceiling: Ceiling, device: torch.device) -> list[str]:
    """What of a measured ceiling is not established."""
    copy, cache = ceiling.facts["copy"], ceiling.facts["last_level_cache_bytes"]
    if copy["well_beyond_cache"] is not False:
        return []
    return [
        f"the bandwidth of {device}'s memory: {human_bytes(2 * copy['array_bytes'])} of arrays were copied, not well "
        f"beyond the caches' {human_bytes(cache)}"
    ]


def _products(case: Case, dtype: torch.dtype) -> tuple[float, dict[str, Any]]:
    """FLOP/s of a product of square matrices: of sizes that double while the budget lets them, the best."""
    size, largest = 256, 2048 if case.device.type == "cpu" else 8192
    best, facts = 0.0, {}
    while True:
        seconds, runs = _timed(case, _product(size, dtype, case.device))
        if 2 * size**3 / seconds > best:
            best, facts = 2 * size**3 / seconds, {"size": size, "runs": runs}
        if size >= largest or 8 * seconds * (REPEATS + 1) > BUDGET_S:
            return best, facts
        size *= 2


def _product(size: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Any]:
    left, right = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _timed(case: Case, call: Callable[[], Any]) -> tuple[float, int]:
    """Median seconds of a call, the device synchronised, and over how many."""
    call()
    case.synchronize()
    taken: list[float] = []
    while len(taken) < REPEATS and (len(taken) < 2 or sum(taken) < BUDGET_S):
        began = time.perf_counter()
        call()
        case.synchronize()
        taken.append(time.perf_counter() - began)
    return median(taken), len(taken)


def share_of(rate: float | None, peak: float | None) -> float | None:
    """``rate / peak``; None where either is not known."""
    if rate is None or not peak or not math.isfinite(peak):
        return None
    return rate / peak
