"""Sampling processes as the stage sees them: started one after the other, their results, and their ends."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.measurements import FirstStep, Load, Surroundings
from inductor_debug.stages.artifacts.time_tables import SampleRow
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.device_use import DeviceUse, of_record
from inductor_debug.stages.benchmark.records import LINES, Done, Event, Inputs, Memory, Peaks, Raised, Warm
from inductor_debug.stages.benchmark.timing import SIDES
from inductor_debug.stages.child_processes import send, signal_name
from inductor_debug.stages.config_json import to_primitives
from inductor_debug.stages.settings import Settings


class SamplingRaised(RuntimeError):
    """A sampling process raised; the message is that of what it raised."""


class SamplingDied(RuntimeError):
    """A sampling process ended without a result: killed by a signal, or by itself."""


@dataclass
class Sampled:
    """What one process found.

    Attributes:
        index: of the process, from 0.
        rows: one a timed call.
        compiled: the test side's first step.
        execution: who executed the test side's first untimed step.
        warm: side → its untimed steps.
        memory: side → peaks in bytes, of the sides that this process held alone.
        load: its surroundings; ``on_host``: whether the host did the work of either side.
        device_use: others on the device, where one did the work of either side.
        stopped, environment: why timing ended, and what may disturb it.
        device_waited: side → whether waiting for the host is in the device's times.
        without_optimizer: why a training step's optimizer was not timed; empty where it was, or was not to be.
        l2_flushed: before each timed call.
        cuda_graphs: how many TorchInductor recorded; None where none were asked for.
        inputs: sizes of the case's inputs; None where they are not told, see :class:`Inputs`.
        raised: what it raised, in words.
    """

    index: int
    rows: list[SampleRow] = field(default_factory=list)
    compiled: FirstStep = field(default_factory=FirstStep)
    execution: Execution | None = None
    warm: dict[str, Warm] = field(default_factory=dict)
    memory: dict[str, Peaks] = field(default_factory=dict)
    load: Load | None = None
    on_host: bool = True
    device_use: DeviceUse | None = None
    stopped: str = ""
    environment: Surroundings | None = None
    device_waited: dict[str, bool] = field(default_factory=dict)
    without_optimizer: str = ""
    l2_flushed: bool = False
    cuda_graphs: int | None = None
    inputs: list[list[int]] | None = None
    raised: str | None = None

    def take(self, event: Event) -> None:
        """Keep what an event tells."""
        match event:
            case SampleRow():
                self.rows.append(event)
            case Inputs():
                self.inputs = event.sizes
            case FirstStep():
                self.compiled = event
            case Execution():
                self.execution = event
            case Warm():
                self.warm[event.side] = event
            case Memory():
                self.memory[event.side] = event.peaks
            case Raised():
                self.raised = event.text
            case Done():
                self.load, self.on_host, self.environment = event.load, event.on_host, event.environment
                self.stopped, self.device_waited = event.stopped, event.device_waited
                self.without_optimizer = event.without_optimizer
                self.l2_flushed, self.cuda_graphs = event.l2_flushed, event.cuda_graphs
                self.device_use = None if event.device_use is None else of_record(event.device_use)

    def column(self, side: str, name: str = "ms") -> list[float]:
        """One side's samples; those that are None left out."""
        samples = (getattr(row, name) for row in self.rows if row.side == side)
        return [sample for sample in samples if sample is not None]


def sample_in_process(
    settings: Settings,
    options: BenchmarkConfig,
    index: int,
    processes: int,
    environment: Mapping[str, str],
    name: str = "",
) -> Sampled:
    """Start one sampling process, and wait for its result.

    Args:
        settings: the run's.
        options: the stage's.
        index: which process it is, from 0.
        processes: how many there are at least; a later one has the same share of the budget.
        environment: its environment variables, all of them.
        name: what messages call it; its number where that is empty.

    Raises:
        SamplingRaised: something in it raised.
        SamplingDied: it ended without a result.
    """
    request = {
        "settings": to_primitives(settings),
        "options": to_primitives(options),
        "index": index,
        "processes": processes,
        "path": sys.path,
        "parent": os.getpid(),
    }
    found, name = Sampled(index), name or numbered(index, processes)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as results:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "inductor_debug.stages.benchmark.process", str(writing)],
                stdin=subprocess.PIPE,
                env=dict(environment),
                pass_fds=[writing],
            )
        finally:
            os.close(writing)
        try:
            send(process.stdin, json.dumps(request).encode())
            for line in results:
                if line.endswith(b"\n"):  # one that was cut off is of a process that died
                    found.take(LINES.read(line))
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if found.raised is not None:
        raise SamplingRaised(f"{name}: {found.raised}")
    if found.load is None or any(not found.column(side) for side in SIDES):
        raise SamplingDied(f"{name} {ended(process.returncode)} before it had a result; see run.log")
    return found


def numbered(index: int, processes: int) -> str:
    """A process's name: ``sampling process 2 of 5``, or ``sampling process 6``, which the wanted interval takes."""
    return f"sampling process {index + 1}" + (f" of {processes}" if index < processes else "")


def ended(returncode: int) -> str:
    """How a process ended: the signal's name, or the exit code."""
    if returncode >= 0:
        return f"ended by itself with exit code {returncode}"
    return f"was killed by {signal_name(-returncode)}"
