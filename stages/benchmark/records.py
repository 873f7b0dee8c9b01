"""What a sampling process tells, event by event."""

import typing
from dataclasses import dataclass

from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.measurements import DeviceUseRecord, FirstStep, Load, Surroundings
from inductor_debug.stages.artifacts.time_tables import SampleRow
from inductor_debug.stages.event_lines import EventLines


@dataclass(frozen=True)
class Peaks:
    """Bytes at the highest point of a step: see :class:`stages.artifacts.measurements.SideFigures`."""

    peak_memory_bytes: int | None = None
    peak_host_bytes: int | None = None
    host_method: str | None = None


@dataclass(frozen=True)
class Warm:
    """A side's untimed steps: seconds of the first, how many there were, and whether the times fell no more."""

    side: str
    seconds: float
    calls: int
    steady: bool


@dataclass(frozen=True)
class Memory:
    """Peaks of one step, of a side that the process held alone."""

    side: str
    peaks: Peaks


@dataclass(frozen=True)
class Inputs:
    """The sizes of each input, in the order of forward; told where batch sizes are measured."""

    sizes: list[list[int]]


@dataclass(frozen=True)
class Done:
    """All was sampled.

    Attributes:
        stopped, environment: why timing ended, and what may disturb it.
        load: its surroundings; ``on_host``: whether the host did the work of either side.
        device_use: others on the device, where one did the work of either side.
        device_waited: side → whether waiting for the host is in the device's times.
        without_optimizer: why the optimizer of a training step was not timed; empty where it was, or was not to be.
        l2_flushed: before each timed call.
        cuda_graphs: how many TorchInductor recorded in this process; None where none were asked for.
    """

    stopped: str
    load: Load
    on_host: bool
    environment: Surroundings
    device_use: DeviceUseRecord | None
    device_waited: dict[str, bool]
    without_optimizer: str = ""
    l2_flushed: bool = False
    cuda_graphs: int | None = None


@dataclass(frozen=True)
class Raised:
    """In place of :class:`Done`: what was raised, in words; the traceback is on standard error."""

    text: str


Event = Inputs | FirstStep | Execution | Warm | Memory | SampleRow | Done | Raised
"""Of the test side its first step, and who executed its first untimed one; then each timed call."""

LINES: EventLines[Event] = EventLines(typing.get_args(Event))
