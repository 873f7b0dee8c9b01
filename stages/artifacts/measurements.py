"""What benchmark and profile store beside their tables: figures, and what they tell of the machine."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import OMITTED, Number
from inductor_debug.stages.artifacts.execution import Execution


@dataclass(frozen=True)
class Surroundings:
    """What may disturb a timing.

    Attributes:
        load_average: of 1, 5 and 15 minutes; None, like the others, where the system does not tell.
        cpu_count, cpu_usable: processors there are, and those that this process may use.
        threads, interop_threads: torch's, within an operation and between operations.
        cpu_mhz: processor frequency.
    """

    load_average: list[Number] | None
    cpu_count: int | None
    cpu_usable: int | None
    threads: int
    interop_threads: int
    cpu_mhz: Number | None
    memory_available_bytes: int


@dataclass
class Ceiling:
    """Bandwidth in bytes per second, and FLOP/s by dtype; None or missing where not known.

    Attributes:
        source: ``measured``, or what the profile names.
        facts: how it was measured: sizes, caches, threads.
    """

    source: str
    bandwidth: float | None = None
    flops: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProfileFacts:
    """profile/summary.json. Times are microseconds of a step, medians over the steps.

    Attributes:
        times: whose they are: ``device kernels`` or ``host``.
        steps: that were recorded.
        plain_us, recorded_us: a step of the code as it is, and a recorded one, each with the third quartile less the
            first (``_iqr_us``); ``observation_us`` is what they differ by.
        step_us: the one that shares are of: plain where a device's kernels are timed, which recording leaves as they
            are, else recorded.
        kernels_us: what the tables add up to, the sum of the kernels' medians.
        inside_us, outside_us: in kernels, and the rest of that step.
        operators_outside_us: in torch's own operators outside (the loss, what the graphs leave out).
        device_us: on a device all of its kernels' time.
        range_floor_us, range_cost_us: what an empty range is recorded with, and what it costs.
        launches: in a step.
        lines_share: of the kernels' time, for which a source line is known.
        longest: launches in words, the longest first.
        operators_outside: name → time, the longest first.
        environment: ``before`` and ``after``.
    """

    schema: int = 1
    backend: str
    times: str
    steps: int
    plain_us: Number
    plain_iqr_us: Number
    recorded_us: Number
    recorded_iqr_us: Number
    step_us: Number
    kernels_us: Number
    inside_us: Number
    outside_us: Number
    operators_outside_us: Number
    observation_us: Number
    device_us: Number | None
    range_floor_us: Number
    range_cost_us: Number
    launches: Number
    lines_share: Number | None
    ceilings: list[Ceiling]
    longest: list[str]
    operators_outside: dict[str, Number]
    environment: dict[str, Surroundings]
    not_established: list[str]


@dataclass
class CacheUse:
    """What one compilation met in the caches, and left there.

    Attributes:
        kind: ``cold`` (they held nothing that a compiler made), ``warm`` (what was needed was there: no compiler ran),
            ``partly warm`` (it made some files, and may have loaded others), or ``unknown``.
        reason: the same in words.
        folders: the caches; TorchInductor's own, which holds the compiled graphs, is the first.
        found: compiled files that were there before: libraries, precompiled headers, device code.
        found_in: how many of them each folder held; folders that held none are left out.
        made: those that were added.
        loaded: graphs that came out of the cache of compiled graphs as a whole.
        missed, refused: graphs that were not there, and those that can't be stored.
    """

    kind: str = "unknown"
    reason: str = "nothing was compiled"
    folders: list[str] = field(default_factory=list)
    found: int = 0
    found_in: dict[str, int] = field(default_factory=dict)
    made: int = 0
    loaded: int = 0
    missed: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Load:
    """One process's surroundings while it sampled.

    Attributes:
        wall_s: seconds that were observed.
        usable: cores that this process may use: its affinity, and the control group's quota.
        needed: cores that the work occupies: torch's threads on the CPU, one where a device does the work.
        threads: torch's threads within an operation.
        own: cores that this process occupied on average.
        others: cores, of those in its affinity, that anything else occupied on average; None where the system does not
            count them.
        waited: share of its threads' runnable time in which another thread had the core; None where not counted.
        involuntary: context switches that the system forced on this process.
        taken: share of the needed cores that others had; None where they are not counted.
    """

    wall_s: float
    usable: float
    needed: float
    threads: int
    own: float
    others: float | None
    waited: float | None
    involuntary: int
    taken: float | None


@dataclass(frozen=True)
class DeviceUseRecord:
    """Who else had the device open: see :class:`stages.benchmark.device_use.DeviceUse`; ``told``: the same in words."""

    others: list[int] | None
    told: str
    reason: str


@dataclass(frozen=True)
class FirstStep:
    """The test side's first step in a process.

    Attributes:
        seconds: compilation included.
        loads: whether the backend can load what another process compiled.
    """

    seconds: float | None = None
    loads: bool = False
    caches: CacheUse = field(default_factory=CacheUse)


@dataclass(frozen=True)
class SampledProcess:
    """One of ``processes`` of environment.json.

    Attributes:
        process: index, from 0.
        stopped: why timing ended.
        first_warm_step_s: side → seconds of its first untimed step; ``warmup_calls``: side → how many there were;
            ``steady``: side → whether the times of these fell no more.
        device_use: where a device did the work of either side.
        execution: who executed the test side's first warm step.
    """

    process: int
    stopped: str
    first_warm_step_s: dict[str, Number]
    first_test_step: FirstStep
    load: Load | None
    device_use: DeviceUseRecord | None
    after: Surroundings | None
    execution: Execution | None = field(default=None, metadata=OMITTED)
    warmup_calls: dict[str, int] | None = field(default=None, metadata=OMITTED)
    steady: dict[str, bool] | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class PartSpeedup:
    """The reference's time of a part of the training step over the test side's, with its 95 % interval."""

    speedup: Number
    ci95: list[float] | None


@dataclass(frozen=True)
class SideFigures:
    """One side's part of summary.json's ``benchmark``: see
    ``docs/explanation/benchmark.md``. None where it was not measured.

    Attributes:
        ci95_ms: both ends of the 95 % interval of ``median_ms``, the latency's geometric mean over the processes.
        device_ms: the device's own time; ``device_waited``: whether waiting for the host is in it.
        compile_s: first step, compilation included; ``compile_kind`` as of :class:`CacheUse`.
        cold_compile_s: first step in a process whose caches held nothing; ``warm_compile_s``: in fresh processes in
            which no compiler ran, their geometric mean; ``warm_compile_reason``: how many they were, and what
            others met.
        first_call_ms: first call in a process that compiles nothing, before the warm-up. Of the reference where it is
            eager.
        warmup_calls: untimed calls of a process, the most; ``steady``: whether in each process they ended by getting no
            faster, and not by a limit.
        forward_ms, backward_ms, optimizer_ms: of a training step by part, as ``median_ms`` is of the whole; each has
            its interval as ``…_ci95_ms``. The whole has no optimizer.
        peak_memory_bytes: of the allocator of the case's device; ``peak_host_bytes``: of the process, by
            ``host_method``.
    """

    median_ms: float | None = None
    iqr_ms: float | None = None
    ci95_ms: list[float] | None = None
    device_ms: float | None = None
    device_waited: bool | None = None
    samples: int | None = None
    processes: int | None = None
    warmup_calls: int | None = field(default=None, metadata=OMITTED)
    steady: bool | None = field(default=None, metadata=OMITTED)
    cold_compile_s: float | None = field(default=None, metadata=OMITTED)
    warm_compile_s: float | None = field(default=None, metadata=OMITTED)
    warm_compile_ci95_s: list[float] | None = field(default=None, metadata=OMITTED)
    warm_compile_reason: str | None = field(default=None, metadata=OMITTED)
    first_call_ms: float | None = field(default=None, metadata=OMITTED)
    first_call_ci95_ms: list[float] | None = field(default=None, metadata=OMITTED)
    forward_ms: float | None = field(default=None, metadata=OMITTED)
    forward_ci95_ms: list[float] | None = field(default=None, metadata=OMITTED)
    backward_ms: float | None = field(default=None, metadata=OMITTED)
    backward_ci95_ms: list[float] | None = field(default=None, metadata=OMITTED)
    optimizer_ms: float | None = field(default=None, metadata=OMITTED)
    optimizer_ci95_ms: list[float] | None = field(default=None, metadata=OMITTED)
    compile_s: float | None = None
    compile_kind: str | None = None
    peak_memory_bytes: int | None = None
    peak_host_bytes: int | None = field(default=None, metadata=OMITTED)
    host_method: str | None = field(default=None, metadata=OMITTED)
    compile_reason: str | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class Machine:
    """benchmark/environment.json: what each process met, and whether it compiled anything, in words.

    Attributes:
        not_established: why the speed is not; None where it is.
        others_on_device: in words; None where nobody was.
    """

    not_established: str | None
    others_on_device: str | None
    compiled_again: list[str]
    processes: list[SampledProcess]
