"""What the device can do at best: measured here, or as the accelerator's profile names it.

Bandwidth is measured by copying one array into another, both together well over the last-level cache, FLOP/s by a
product of square matrices in each dtype concerned, with the case's own threads and TF32 setting. Both are medians of
several runs and are kept short: they are what a good kernel reaches here, not a data sheet's figure.
"""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from models.case import Case
from models.tf32 import tf32_allowed
from stages.constrain.config import PeaksConfig

REPEATS = 5
BUDGET_S = 0.8
"""Seconds that one measurement may take, its first run left out."""
MIB = 2**20


@dataclass
class Ceiling:
    """Bandwidth in bytes per second, and FLOP/s by dtype; None or missing where not known.

    Attributes:
        source: ``measured``, or what the profile names.
        facts: how it was measured: sizes, cache, threads.
    """

    source: str
    bandwidth: float | None = None
    flops: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


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


def last_level_cache(device: torch.device) -> int | None:
    """Bytes of the largest cache that the host's first processor, or the device, has; None where that is not told."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    units = {"K": 1024, "M": MIB, "G": 1024 * MIB}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text))
    return max(sizes, default=None)


def _bandwidth(case: Case, cache: int | None) -> tuple[float, dict[str, Any]]:
    """Bytes read and written per second by a copy."""
    smallest, largest = (64 * MIB, 256 * MIB) if case.device.type == "cpu" else (256 * MIB, 1024 * MIB)
    size = min(max(smallest, 2 * (cache or 0)), largest)
    source = torch.ones(size, dtype=torch.uint8, device=case.device)
    target = torch.empty_like(source)
    seconds, runs = _timed(case, lambda: target.copy_(source))
    beyond = None if cache is None else 2 * size >= 3 * cache
    return 2 * size / seconds, {"array_bytes": size, "runs": runs, "well_beyond_cache": beyond}


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
