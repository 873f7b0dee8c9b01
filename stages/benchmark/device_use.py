"""Which other processes had a CUDA device open while a process sampled, as far as ``nvidia-smi`` tells.

What they did there is not known: the device does not count its time by process for everybody. An open context is no
proof of work, so that it is told beside the result and decides nothing.
"""

import os
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import psutil

from inductor_debug.stages.artifacts.measurements import DeviceUseRecord

COMMAND = ("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")
"""Prints ``PID, UUID of the device`` for each process with a compute context, a line each."""
UNSEEN = "what other programs did on the device was not looked at"
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class DeviceUse:
    """Who had this process's devices open.

    Attributes:
        others: process ids, without this process and those that started it; None where that could not be looked at.
        reason: why it could not; empty where it could.
    """

    others: tuple[int, ...] | None
    reason: str = ""

    def joined(self, other: "DeviceUse") -> "DeviceUse":
        """Of two looks; where either could not look, neither did."""
        if self.others is None or other.others is None:
            return self if self.others is None else other
        return DeviceUse(tuple(sorted({*self.others, *other.others})))

    @property
    def record(self) -> DeviceUseRecord:
        """As it is stored."""
        return DeviceUseRecord(None if self.others is None else list(self.others), told([self]), self.reason)


def look() -> DeviceUse:
    """Now, of the devices on which this process has a context."""
    try:
        done = subprocess.run(
            COMMAND, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return DeviceUse(None, "there is no nvidia-smi")
    except (OSError, subprocess.TimeoutExpired) as error:
        return DeviceUse(None, f"nvidia-smi: {type(error).__name__}")
    if done.returncode != 0:
        return DeviceUse(None, f"nvidia-smi ended with exit code {done.returncode}")
    return read(done.stdout, os.getpid(), [process.pid for process in psutil.Process().parents()])


def read(output: str, pid: int, ancestors: Collection[int] = ()) -> DeviceUse:
    """What :data:`COMMAND` printed, for the process ``pid``.

    Where ``pid`` is not in it (a container has other process ids, or sees none), nothing is known of the others.
    """
    rows = []
    for line in filter(None, map(str.strip, output.splitlines())):
        process, _, device = (part.strip() for part in line.partition(","))
        if not (process.isdecimal() and device):
            return DeviceUse(None, "nvidia-smi printed something else than process ids")
        rows.append((int(process), device))
    devices = {device for process, device in rows if process == pid}
    if not devices:
        return DeviceUse(None, "nvidia-smi does not list this process, so that it can't tell others from it")
    ours = {pid, *ancestors}
    return DeviceUse(tuple(sorted({process for process, device in rows if device in devices and process not in ours})))


def told(uses: Iterable[DeviceUse]) -> str:
    """What a person has to know of the others on the device, over all processes; empty where there were none."""
    uses = list(uses)
    if any(use.others is None for use in uses):
        return UNSEEN
    most = max((len(use.others or ()) for use in uses), default=0)
    if not most:
        return ""
    noun = "other process" if most == 1 else "other processes"
    return f"{most} {noun} had the device open, and what they did there is not known"


def of_record(stored: DeviceUseRecord) -> DeviceUse:
    """The inverse of :attr:`DeviceUse.record`."""
    return DeviceUse(None if stored.others is None else tuple(stored.others), stored.reason)
