"""Rows of the tables that benchmark and profile store, as :mod:`stages.artifacts.tables` has those of other stages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleRow:
    """benchmark/samples.csv: one row a timed call.

    Attributes:
        process: index of the process that sampled, from 0.
        side: reference or test.
        index: of the call within its process and side, from 0.
        ms: milliseconds of wall time, synchronised.
        device_ms: the device's own milliseconds; None where no device did the work.
        started: seconds since the process's timing began.
        forward_ms, backward_ms: in training, on the CPU of this call, on a device of one of its own.
        optimizer_ms: of an optimizer's step of its own.
    """

    process: int
    side: str
    index: int
    ms: float
    device_ms: float | None
    started: float
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None


@dataclass(frozen=True)
class ThroughputRow:
    """benchmark/throughput.csv: one side at one batch size; None of what was not measured.

    Attributes:
        batch_size: ``model.batch_size`` that the model was built with.
        side: reference or test.
        median_ms: latency of a call, as that of the whole run but of one process.
        samples_per_s: ``batch_size`` over the latency.
        peak_memory_bytes: of the allocator of the case's device.
        samples: timed calls.
        steady: whether the warm-up ended by getting no faster, and not by a limit.
        compile_s: seconds of the test side's first step, compilation or loading included.
        compile_kind: what that met in the caches, see :class:`stages.artifacts.measurements.CacheUse`.
        not_established: why ``samples_per_s`` is missing, or is not to be relied on; empty where it is.
    """

    batch_size: int
    side: str
    median_ms: float | None = None
    samples_per_s: float | None = None
    peak_memory_bytes: int | None = None
    samples: int | None = None
    steady: bool | None = None
    compile_s: float | None = None
    compile_kind: str = ""
    not_established: str = ""


@dataclass(frozen=True, kw_only=True)
class KernelTimeRow:
    """profile/kernels.csv: one row a launch; of a backend without kernels of its own, an operation of the graph.

    Attributes:
        graph, kernel, handle: as in ``lower/GRAPH/provenance.json``.
        kind: ``cpp``, ``triton``, ``extern`` (a library's or ATen's function) or ``operation``.
        launches: calls in a step (median over the steps).
        time_us: microseconds in a step, all its launches together: the median over the recorded steps. Where the steps
            differ much, medians don't add up to the median of the steps' sums.
        iqr_us: the third quartile less the first, over the steps.
        share: of the step (median), see :attr:`stages.profile.tables.Profile.step`.
        host_us: host time of the launch: on the CPU the same, on a device what it takes to launch.
        bytes_read, bytes_written: bytes of the buffers that it comes to at most, each once; None where not known.
        flops: a multiply-add is two; None where no formula is known (loops of pointwise operations).
        dtype: of the operands, where there are FLOPs.
        gb_s, gflop_s: achieved: 1e9 bytes, and 1e9 FLOP, per second.
        bandwidth_share: of the measured bandwidth.
        flops_share: of the measured FLOP/s in that dtype.
        roofline_share: the larger of the two shares; where no ceiling was measured, that of the profile's.
        bound: which of them it is: ``memory`` or ``compute``.
        profile_bandwidth_share, profile_flops_share, profile_roofline_share, profile_bound: the four against what the
            accelerator's profile names (``accel.peaks``).
        operations, modules, sources: what it computes, each once.
        note: what to know of the row.
    """

    graph: str
    kernel: str
    handle: int | None
    kind: str
    launches: float
    time_us: float | None
    iqr_us: float | None
    share: float | None
    host_us: float | None
    bytes_read: int | None
    bytes_written: int | None
    flops: int | None
    dtype: str
    gb_s: float | None
    gflop_s: float | None
    bandwidth_share: float | None
    flops_share: float | None
    roofline_share: float | None
    bound: str
    profile_bandwidth_share: float | None
    profile_flops_share: float | None
    profile_roofline_share: float | None
    profile_bound: str
    operations: str
    modules: str
    sources: str
    note: str


@dataclass(frozen=True)
class OperationName:
    """What a row of operations.csv is about.

    Attributes:
        operation: before decomposition; "" for time that no operation is known for.
    """

    operation: str


@dataclass(frozen=True)
class ModuleName:
    """What a row of modules.csv is about.

    Attributes:
        module: its path; a parent contains its children, and the row without a name is all.
        depth: how many modules it is inside.
    """

    module: str
    depth: int


@dataclass(frozen=True)
class LineName:
    """What a row of lines.csv is about.

    Attributes:
        source: ``file:line`` of the model; "" for time that no line is known for.
        code: of that line.
        operations: that it calls, by spaces.
    """

    source: str
    code: str
    operations: str


@dataclass(frozen=True)
class TimeRow:
    """The time of an operation, a module or a line.

    Attributes:
        time_us: the kernels' time, put down by their elements to the operations that a kernel computes (what one takes
            inside a loop can't be observed). Over operations, and over lines, it adds up to the kernels' time.
        share: of the step.
        alone_us: kernels that compute nothing else.
        at_most_us: all kernels in which it takes part, whole: what it takes lies between the two.
        launches: kernel launches in which it takes part.
        kernels: their names, the longest first.
    """

    time_us: float
    share: float | None
    alone_us: float
    at_most_us: float
    launches: float
    kernels: str


@dataclass(frozen=True)
class OperationTimeRow(TimeRow, OperationName):
    """profile/operations.csv."""


@dataclass(frozen=True)
class ModuleTimeRow(TimeRow, ModuleName):
    """profile/modules.csv."""


@dataclass(frozen=True)
class LineTimeRow(TimeRow, LineName):
    """profile/lines.csv."""
