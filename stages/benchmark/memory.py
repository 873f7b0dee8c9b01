"""Peak memory of a piece of work: what torch's allocator handed out, and resident memory of this process.

On a device the allocator keeps its own high-water mark. On the CPU it keeps none, but ``torch.profiler`` reports every
allocation: the highest sum of a step's, on top of the case's own tensors, is the like of ``max_memory_allocated``.

Resident memory is the whole process's, so it hardly tells two sides apart; it is what a machine must have. On Linux the
kernel's own high-water mark is used: writing 5 to ``/proc/self/clear_refs`` resets ``VmHWM`` (proc(5)). Where that is
not allowed, a thread samples the resident size every 2 ms, which may miss a shorter peak; ``method`` says which.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

from inductor_debug.models.case import Case
from inductor_debug.models.nested import strided_parts

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SAMPLE_S = 0.002


@dataclass
class Peak:
    """Peaks in bytes; None where unknown.

    Attributes:
        host: resident memory of the process at its highest.
        host_before: resident memory when the work began.
        device: memory that torch's allocator had handed out at its highest, on the case's device; None on the CPU,
            and on a device whose module has no ``max_memory_allocated``.
        method: of ``host``: ``VmHWM`` or ``sampled``.
    """

    host: int | None = None
    host_before: int | None = None
    device: int | None = None
    method: str = ""


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure what happens inside; the figures are there after the block."""
    peak = Peak(host_before=psutil.Process().memory_info().rss)
    module: Any = None if device.type in ("cpu", "meta") else torch.get_device_module(device)
    counts = hasattr(module, "reset_peak_memory_stats") and hasattr(module, "max_memory_allocated")
    if counts:
        module.reset_peak_memory_stats(device)
    with _kernel_peak(peak) if _reset_high_water_mark() else _sampled_peak(peak):
        yield peak
    if counts:
        peak.device = module.max_memory_allocated(device)


def allocated_peak(case: Case, call: Callable[[], object]) -> int:
    """Bytes that torch's CPU allocator held at the highest point of ``call()``, the case's own tensors included.

    Counted are tensors, and what generated kernels take from the allocator; not what a library such as oneDNN takes
    for itself, nor constants that a compiled side keeps.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes())["traceEvents"]
    on_host = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == 0]
    if not on_host:
        return case_bytes(case)
    first = min(on_host, key=lambda event: event["ts"])["args"]
    before = first["Total Allocated"] - first["Bytes"]  # what was allocated in an earlier profile and is still held
    return case_bytes(case) + max(event["args"]["Total Allocated"] for event in on_host) - before


def case_bytes(case: Case) -> int:
    """Bytes of the parameters, buffers and inputs, each storage once."""
    tensors = [*case.module.parameters(), *case.module.buffers(), *case.named_inputs().values()]
    storages = [part.untyped_storage() for tensor in tensors for part in strided_parts(tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _reset_high_water_mark() -> bool:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return _high_water_mark() is not None


def _high_water_mark() -> int | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


@contextmanager
def _kernel_peak(peak: Peak) -> Iterator[None]:
    peak.method = "VmHWM"
    yield
    peak.host = _high_water_mark()


@contextmanager
def _sampled_peak(peak: Peak) -> Iterator[None]:
    peak.method = "sampled"
    process, stop = psutil.Process(), threading.Event()
    peak.host = process.memory_info().rss

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            peak.host = max(peak.host or 0, process.memory_info().rss)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        peak.host = max(peak.host or 0, process.memory_info().rss)
