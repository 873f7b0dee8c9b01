"""Peak memory of a piece of work: resident memory of this process, and the device's allocator.

On Linux the kernel's own high-water mark is used: writing 5 to ``/proc/self/clear_refs`` resets ``VmHWM`` (proc(5)).
Where that is not allowed, a thread samples the resident size every 2 ms, which may miss a shorter peak; ``method``
says which.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SAMPLE_S = 0.002


@dataclass
class Peak:
    """Peaks in bytes; None where unknown.

    Attributes:
        host: resident memory of the process at its highest.
        host_before: resident memory when the work began.
        device: memory that torch's allocator had handed out at its highest, on the case's device; None on the CPU.
        method: ``VmHWM`` or ``sampled``.
    """

    host: int | None = None
    host_before: int | None = None
    device: int | None = None
    method: str = ""


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure what happens inside; the figures are there after the block."""
    peak = Peak(host_before=psutil.Process().memory_info().rss)
    on_device = device.type not in ("cpu", "meta")
    if on_device:
        torch.get_device_module(device).reset_peak_memory_stats(device)
    with _kernel_peak(peak) if _reset_high_water_mark() else _sampled_peak(peak):
        yield peak
    if on_device:
        peak.device = torch.get_device_module(device).max_memory_allocated(device)


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
