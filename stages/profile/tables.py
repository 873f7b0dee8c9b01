"""What a profile stores.

``profile/kernels.csv`` has one row a launch; ``operations.csv``, ``modules.csv`` and ``lines.csv`` have the same time
by operation (before decomposition), module and source line. :mod:`stages.artifacts.time_tables` describes the columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy
import pandas

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.measurements import Ceiling
from inductor_debug.stages.artifacts.time_tables import (
    KernelTimeRow,
    LineTimeRow,
    ModuleTimeRow,
    OperationTimeRow,
    TimeRow,
)
from inductor_debug.stages.benchmark.timing import interquartile_range
from inductor_debug.stages.lower.attribution import Part
from inductor_debug.stages.profile.ceiling import share_of
from inductor_debug.stages.profile.observation import Observation, Times
from inductor_debug.stages.profile.work import Work

Rows = TypeVar("Rows", bound=TimeRow)
NAMED = 8
"""Kernels that a row of operations, modules or lines names at most."""
SHORT = 2.0
"""Times an empty range under which a launch can't be told from one."""


@dataclass
class Timed:
    """A launch with its time: microseconds in a step, None where none of the recorded steps showed it."""

    work: Work
    time: float | None
    spread: float | None = None
    host: float | None = None
    launches: float = 0.0


@dataclass
class Profile:
    """Everything that a profile says."""

    timed: list[Timed]
    observation: Observation
    measured: Ceiling | None
    named: Ceiling | None
    not_established: list[str] = field(default_factory=list)

    @property
    def ceilings(self) -> dict[str, Ceiling]:
        """What there is to hold a rate against: ``measured``, and ``profile's`` where that names one."""
        known = {"measured": self.measured, "profile's": self.named}
        return {whose: ceiling for whose, ceiling in known.items() if ceiling is not None}

    @property
    def step(self) -> float:
        """Median microseconds of the step that shares are of.

        On a device one of the code as it is: recording holds up the host and leaves kernels as they are. Where the host
        does the work, a recorded one.
        """
        return float(numpy.median(self.steps))

    @property
    def steps(self) -> list[float]:
        """Microseconds of each such step."""
        return self.observation.unprofiled if self.observation.on_device else self.observation.observed

    @property
    def kernels(self) -> float:
        """Microseconds that the tables add up to: the sum of the launches' medians."""
        return sum(item.time or 0.0 for item in self.timed)

    @property
    def inside(self) -> float:
        """Microseconds of the step in all launches together; on the host by the median of the steps' own shares."""
        inside = self._inside()
        if self.observation.on_device:
            return float(numpy.median(inside))
        return self.step * float(numpy.median(inside / numpy.asarray(self.observation.observed)))

    @property
    def outside(self) -> float:
        """Microseconds of the step that no launch took."""
        return self.step - self.inside

    def _inside(self) -> numpy.ndarray:
        ranges = [self.observation.ranges.get(item.work.range) for item in self.timed]
        times = [times.microseconds for times in ranges if times is not None]
        return numpy.sum([[0.0] * self.observation.steps, *times], axis=0)

    def longest(self) -> list[Timed]:
        """Launches with a time, the longest first."""
        return sorted((item for item in self.timed if item.time is not None), key=lambda item: -(item.time or 0.0))


def timed(work: Sequence[Work], observation: Observation) -> list[Timed]:
    """Each launch with its times; those that no step showed have none."""
    return [_timed(item, observation.ranges.get(item.range), observation) for item in work]


def _timed(work: Work, times: Times | None, observation: Observation) -> Timed:
    if times is None or not any(times.calls):
        return Timed(work, None)
    microseconds = float(numpy.median(times.microseconds))
    host, launches = float(numpy.median(times.host)), float(numpy.median(times.calls))
    if observation.on_device and not any(times.microseconds):
        return Timed(work, None, None, host, launches)
    return Timed(work, microseconds, interquartile_range(times.microseconds), host, launches)


def rates(item: Timed) -> tuple[float | None, float | None]:
    """Achieved bytes and FLOP per second."""
    if not item.time or not item.launches:
        return None, None
    seconds = item.time / item.launches * 1e-6
    bandwidth, flops = (None if amount is None else amount / seconds for amount in (item.work.bytes, item.work.flops))
    return bandwidth, flops


def shares(item: Timed, ceiling: Ceiling | None) -> tuple[float | None, float | None]:
    """Achieved bandwidth and FLOP/s as shares of a ceiling."""
    if ceiling is None:
        return None, None
    bandwidth, flops = rates(item)
    return share_of(bandwidth, ceiling.bandwidth), share_of(flops, ceiling.flops.get(item.work.dtype))


def roofline(item: Timed, ceiling: Ceiling | None) -> tuple[float | None, str]:
    """The larger share of the ceiling, and which of the two bounds it is."""
    known = {name: share for name, share in zip(("memory", "compute"), shares(item, ceiling), strict=True) if share}
    bound = max(known, key=lambda name: known[name], default="")
    return known.get(bound), bound


def kernel_rows(profile: Profile) -> list[KernelTimeRow]:
    """``kernels.csv``."""
    return [_kernel_row(item, profile) for item in profile.timed]


def _kernel_row(item: Timed, profile: Profile) -> KernelTimeRow:
    work, (bandwidth, flops) = item.work, rates(item)
    measured, named = shares(item, profile.measured), shares(item, profile.named)
    share, bound = roofline(item, profile.measured or profile.named)
    named_share, named_bound = roofline(item, profile.named)
    return KernelTimeRow(
        graph=work.graph,
        kernel=work.kernel,
        handle=work.handle,
        kind=work.kind,
        launches=item.launches,
        time_us=item.time,
        iqr_us=item.spread,
        share=_share(item.time, profile),
        host_us=item.host,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        flops=work.flops,
        dtype=work.dtype,
        gb_s=bandwidth and bandwidth / 1e9,
        gflop_s=flops and flops / 1e9,
        bandwidth_share=measured[0],
        flops_share=measured[1],
        roofline_share=share,
        bound=bound,
        profile_bandwidth_share=named[0],
        profile_flops_share=named[1],
        profile_roofline_share=named_share,
        profile_bound=named_bound,
        operations=" ".join(work.distinct("operation")),
        modules=" ".join(work.distinct("module")),
        sources=" ".join(work.distinct("source")),
        note="; ".join(notes(item, profile)),
    )


def notes(item: Timed, profile: Profile) -> list[str]:
    """What a reader must know of a launch's row."""
    found = list(item.work.notes)
    if item.time is None:
        seen = bool(item.launches)
        return [*found, "no device kernel was seen in its range" if seen else "not seen in the recorded steps"]
    if not profile.observation.on_device and item.time < SHORT * item.launches * profile.observation.range_floor:
        found.append("as short as an empty range")
    memory, _ = shares(item, profile.measured)
    if memory is not None and memory > 1 and profile.measured is not None:
        cache = profile.measured.facts.get("last_level_cache_bytes")
        fits = cache is not None and item.work.bytes is not None and item.work.bytes <= cache
        found.append("above memory's bandwidth: " + (
            "its buffers fit in the last-level cache" if fits else "a cache had part of it, or it moved less than that"
        ))  # fmt: skip
    return found


def part_rows(
    profile: Profile, keys: Callable[[Part], Iterable[str]], row: Callable[[str, list[Part], TimeRow], Rows]
) -> list[Rows]:
    """Rows of operations, modules or lines, the longest first.

    Args:
        keys: the rows that a part belongs to.
        row: one of them, from its name, its parts and their time.
    """
    groups: dict[str, list[tuple[Timed, float, list[Part]]]] = {}
    for item in profile.longest():
        found: dict[str, list[Part]] = {}
        for part in item.work.parts:
            for name in keys(part):
                found.setdefault(name, []).append(part)
        for name, parts in found.items():
            groups.setdefault(name, []).append((item, sum(part.weight for part in parts), parts))
    rows = []
    for name, members in groups.items():
        time = sum((item.time or 0.0) * weight for item, weight, _ in members)
        took = TimeRow(
            time_us=time,
            share=_share(time, profile),
            alone_us=sum(item.time or 0.0 for item, _, parts in members if len(parts) == len(item.work.parts)),
            at_most_us=sum(item.time or 0.0 for item, _, _ in members),
            launches=sum(item.launches for item, _, _ in members),
            kernels=" ".join(item.work.range for item, _, _ in members[:NAMED]),
        )
        rows.append(row(name, [part for _, _, parts in members for part in parts], took))
    return sorted(rows, key=lambda row: -row.time_us)


def operation_rows(profile: Profile) -> list[OperationTimeRow]:
    """``operations.csv``."""
    return part_rows(
        profile, lambda part: [part.operation], lambda name, parts, took: OperationTimeRow(name, **vars(took))
    )


def module_rows(profile: Profile) -> list[ModuleTimeRow]:
    """``modules.csv``: a module contains those inside it, and the row without a name everything."""

    def row(name: str, parts: list[Part], took: TimeRow) -> ModuleTimeRow:
        return ModuleTimeRow(name, len(enclosing(name)) - 1, **vars(took))

    return part_rows(profile, lambda part: enclosing(part.module), row)


def line_rows(profile: Profile) -> list[LineTimeRow]:
    """``lines.csv``."""

    def row(name: str, parts: list[Part], took: TimeRow) -> LineTimeRow:
        code = next((part.code for part in parts if part.code), "")
        operations = " ".join(dict.fromkeys(part.operation for part in parts if part.operation))
        return LineTimeRow(name, code, operations, **vars(took))

    return part_rows(profile, lambda part: [part.source], row)


def enclosing(module: str) -> list[str]:
    """``a.b`` → ``["", "a", "a.b"]``."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]


def tables(profile: Profile) -> dict[str, pandas.DataFrame]:
    """The tables by path relative to the run."""
    rows: dict[str, Sequence[KernelTimeRow | TimeRow]] = {
        "kernels": kernel_rows(profile),
        "operations": operation_rows(profile),
        "modules": module_rows(profile),
        "lines": line_rows(profile),
    }
    return {file.path: file.frame(rows[name]) for name, file in files.PROFILE_TABLES.items()}


def _share(time: float | None, profile: Profile) -> float | None:
    return None if time is None or not profile.step else time / profile.step
