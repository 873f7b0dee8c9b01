"""What else the machine did while a process sampled, and whether that could carry the result.

A neighbour does not slow both sides alike. A side that divides its work over all cores waits for the slowest of them.
So a ratio of two sides can be wrong by any factor, and wrong alike in every process. No interval shows that.
"""

import math
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from inductor_debug.stages.artifacts.measurements import Load

SHARE = 0.1
"""Share of the cores that timing needed above which what others took of them makes a result not established."""
WINDOW_S = 0.3
"""Least seconds over which the load is observed: the kernel counts processor time in ticks of about 10 ms."""
_CGROUPS = Path("/sys/fs/cgroup")


class LoadMeter:
    """Observes from its construction to :meth:`read`.

    Args:
        threads: torch's threads within an operation.
        on_host: whether the host does the work; else one core feeds a device.
    """

    def __init__(self, threads: int, *, on_host: bool) -> None:
        self.threads, self.on_host = threads, on_host
        self._wall, self._before = time.perf_counter(), _counters()

    def read(self) -> Load:
        """The load so far, over :data:`WINDOW_S` at least: it waits for the rest, in which others are counted too."""
        sampled = time.perf_counter() - self._wall
        run = _counters()
        if sampled < WINDOW_S:
            time.sleep(WINDOW_S - sampled)
        wall, after = time.perf_counter() - self._wall, _counters()
        cores, quota = _affinity(), _quota()
        usable = usable_cores()
        before = self._before
        own = after.own - before.own
        busy = None if after.busy is None or before.busy is None else after.busy - before.busy
        # A counter that stood still while this process worked is none.
        counted = busy is not None and (busy > 0 or own < 0.05)
        threads = zip(run.threads or (), before.threads or (), strict=False)
        ran, waited = [max(0.0, now - then) for now, then in threads] or (0.0, 0.0)
        needed = max(1.0, min(self.threads, usable) if self.on_host else 1.0)
        others = max(0.0, busy - own) / wall if counted and busy is not None else None
        shares = [taken(others, needed, cores)]
        if quota is not None and after.group is not None and before.group is not None:
            shares.append(taken(max(0.0, after.group - before.group - own) / wall, needed, quota))
        return Load(
            wall_s=wall,
            usable=usable,
            needed=needed,
            threads=self.threads,
            own=own / wall,
            others=others,
            waited=waited / (waited + ran) if ran else None,
            involuntary=run.involuntary - before.involuntary,
            taken=None if None in shares else max(filter(None, shares), default=0.0),
        )


def taken(others: float | None, needed: float, cores: float) -> float | None:
    """Share of the ``needed`` cores that others had; None where they are not counted.

    Args:
        others: cores that they occupied, of those of the affinity, or of the control group's quota.
        needed: cores that timing occupies.
        cores: how many there are for all.
    """
    return None if others is None else max(0.0, others + needed - cores) / needed


def reason_against(loads: Sequence[Load], on_host: bool) -> str | None:
    """Why the loads of all processes could carry a result; None where they could not.

    Args:
        on_host: whether the host does the work on either side: then threads are compared with cores.
    """
    if not loads:
        return "no process told of its surroundings"
    first = loads[0]
    if on_host and first.threads > math.ceil(first.usable):
        return (
            f"torch uses {first.threads} threads on {first.usable:g} usable cores, which then wait for each other; "
            f"type OMP_NUM_THREADS={max(1, int(first.usable))} before the command"
        )
    known = [(load.taken, load.wall_s) for load in loads if load.taken is not None]
    if len(known) < len(loads):
        return "the load by other programs can't be measured on this system"
    share = sum(share * wall for share, wall in known) / sum(wall for _, wall in known)
    if share > SHARE:
        noun = "core" if first.needed == 1 else "cores"
        return f"other programs took {100 * share:.0f} % of the {first.needed:g} {noun} that timing needed"
    return None


def usable_cores() -> float:
    """Cores that this process may use: those of its affinity, or less where its control group has a quota."""
    quota = _quota()
    return _affinity() if quota is None else min(_affinity(), quota)


def _affinity() -> float:
    return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _quota() -> float | None:
    """Cores that the control group allows; None where there is no limit, or it can't be read."""
    try:
        allowed, window = (_CGROUPS / "cpu.max").read_text().split()
        return None if allowed == "max" else int(allowed) / int(window)
    except (OSError, ValueError):
        pass
    try:
        limit, period = (int((_CGROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return limit / period if limit > 0 else None
    except (OSError, ValueError):
        return None


def _group() -> float | None:
    """Seconds of processor time that the control group has used; None where that can't be read."""
    try:
        fields = dict(line.split() for line in (_CGROUPS / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6
    except (OSError, ValueError, KeyError):
        pass
    try:
        return int((_CGROUPS / "cpuacct" / "cpuacct.usage").read_text()) / 1e9
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class _Counters:
    """Seconds and counts since whenever: of this process, of all on the cores of its affinity (``busy``), and of its
    control group."""

    own: float
    involuntary: int
    busy: float | None
    threads: tuple[float, float] | None
    group: float | None


def _counters() -> _Counters:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _Counters(usage.ru_utime + usage.ru_stime, usage.ru_nivcsw, _busy(), _scheduled(), _group())


def _busy() -> float | None:
    """Seconds in which the cores of this process's affinity were not idle, time stolen by other machines included."""
    every = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity") and len(every) == os.cpu_count():
        every = [times for core, times in enumerate(every) if core in os.sched_getaffinity(0)]
    idle = ("idle", "iowait", "guest", "guest_nice")  # the last two are within user and nice
    return float(sum(value for times in every for name, value in times._asdict().items() if name not in idle))


def _scheduled() -> tuple[float, float] | None:
    """Seconds that this process's threads ran, and waited for a core (``/proc/PID/task/TID/schedstat``, Linux)."""
    ran = waited = 0.0
    try:
        for thread in Path("/proc/self/task").iterdir():
            run, wait, _ = (thread / "schedstat").read_text().split()
            ran, waited = ran + int(run) / 1e9, waited + int(wait) / 1e9
    except (OSError, ValueError):
        return None
    return ran, waited
