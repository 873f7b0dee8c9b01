"""What benchmark says of a side."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Bytes at the highest point of a step: see :class:`SideFigures`."""

    peak_memory_bytes: int | None = None
    peak_host_bytes: int | None = None
    host_method: str | None = None


@dataclass(frozen=True, kw_only=True)
class SideFigures:
    """One side's part of summary.json's ``benchmark``: see ``docs/benchmark.md``. None where it was not measured.

    Attributes:
        ci95_ms: both ends of the 95 % interval of ``median_ms``, the latency's geometric mean over the processes.
        device_ms: the device's own time; ``device_waited``: whether waiting for the host is in it.
        peak_memory_bytes: of the allocator of the case's device; ``peak_host_bytes``: of the process, by
            ``host_method``.
        compile_s: first step, compilation included; ``compile_kind`` as of :class:`CacheUse`.
    """

    median_ms: float
    iqr_ms: float
    ci95_ms: list[float] | None = None
    device_ms: float | None = None
    device_waited: bool | None = None
    samples: int
    processes: int
    peak_memory_bytes: int | None = None
    peak_host_bytes: int | None = None
    host_method: str | None = None
    compile_s: float | None = None
    compile_kind: str | None = None
    compile_reason: str | None = None
