"""What benchmark says of a side."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Bytes at the highest point of a step: see :class:`stages.artifacts.measurements.SideFigures`."""

    peak_memory_bytes: int | None = None
    peak_host_bytes: int | None = None
    host_method: str | None = None
