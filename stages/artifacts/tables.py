"""Rows of the stored tables: what a stage makes, and what a reader gets back. Further columns may hold anything.

A column whose field has a default may be missing.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ViolationRow:
    """constrain/violations.csv: see :class:`stages.rules.violation.Violation`."""

    graph: str
    node: str
    module: str
    source: str
    rule: str
    effect: str
    severity: str
    suggestion: str
    cost_bytes: int | None
    cost_share: float | None
    message: str = ""
    finding: str = ""


@dataclass(frozen=True)
class RuleRow:
    """constrain/summary.csv: see :func:`stages.constrain.tables.by_rule`."""

    rule: str
    effect: str
    findings: int
    waived: int
    undecided: int
    nodes: int | None
    nodes_share: float | None
    cost_bytes: int | None
    bytes_share: float | None
    flops: int | None
    flops_share: float | None


@dataclass(frozen=True)
class KernelRow:
    """lower/GRAPH/kernels.csv: see :func:`stages.lower.decisions.kernel_rows`."""

    name: str
    handle: int | None
    kind: str
    file: str | None
    nodes: str
    modules: str
    source: str
    lines: int
    bytes_read: int | None
    bytes_written: int | None


@dataclass(frozen=True)
class FusionRow:
    """lower/GRAPH/fusions.csv: a decision about two operations.

    Attributes:
        first, second: as the IR names them.
        reason: why they were not fused; "" where they were.
        times: how often.
        first_nodes, second_nodes: the post-grad nodes behind them, by spaces.
    """

    first: str
    second: str
    fused: bool
    reason: str
    times: int
    first_nodes: str
    second_nodes: str


@dataclass(frozen=True)
class CandidateRow:
    """lower/GRAPH/autotuning.csv: a candidate that was timed; without ``milliseconds`` one that failed."""

    operation: str
    inputs: str
    choice: str
    milliseconds: float | None
    fastest: bool


@dataclass(frozen=True)
class ValueRow:
    """lower/values.csv: see :mod:`stages.lower.values`."""

    graph: str
    call: int
    launch: int | None
    kernel: str
    handle: int | None = field(default=None, kw_only=True)
    when: str
    buffer: str
    written: bool | None
    holds: str = ""
    writer: str = ""
    elements: int | None = None
    dtype: str = ""
    shape: str = ""
    stride: str = ""
    device: str = ""
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    state: str = field(kw_only=True)
    born: str = ""
    value: str = ""
    file: str = ""
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One row of ``lower/emulation.csv``: one kind of finding at one node.

    Attributes:
        graph, node, target, module, source: as in ``constrain/violations.csv``.
        kind: one of :data:`stages.emulation.kinds.KINDS`.
        count: elements concerned, in the worst run; None for ``fallback`` and ``not_emulated``.
        elements: elements of the tensor.
        worst: the largest magnitude concerned; None where there is none.
        bytes: of the tensors that the host reads and writes (``fallback``), as in ``capture/graphs``.
        flops: of the operation, where a formula is known (``fallback``).
        message: one sentence.
    """

    graph: str
    node: str
    target: str
    module: str
    source: str
    kind: str
    count: int | None = None
    elements: int | None = None
    worst: float | None = None
    bytes: int | None = None
    flops: int | None = None
    message: str = ""


@dataclass(frozen=True)
class OutputRow:
    """kerneldiff/outputs.csv: see :class:`stages.numerics.records.TensorComparison`."""

    kind: str
    path: str
    verdict: str
    bound: str = ""
    ratio: float | None = None


@dataclass
class JitterRow:
    """kerneldiff/jitter.csv: how later runs of the test side differ from its first.

    Attributes:
        runs: how many there were; ``differing``: in how many of the later ones any bit was another.
        max_abs, rmse: of the run that differed most.
    """

    kind: str
    path: str
    runs: int
    differing: int = 0
    max_abs: float = 0.0
    rmse: float = 0.0


@dataclass(frozen=True)
class DriftRow:
    """kerneldiff/drift.csv: the sides after an optimizer step. None where a side did not train.

    Attributes:
        step: from 1.
        floor_rms: RMS over all parameters together of reference less gold.
        error_rms: of test less gold, or less reference where there is no gold. ``ratio``: that over ``floor_rms``.
        worst_parameter: the one of the largest ratio, which is ``worst_ratio``.
    """

    step: int
    loss_reference: float | None
    loss_test: float | None
    loss_gold: float | None
    floor_rms: float | None
    error_rms: float | None
    ratio: float | None
    worst_parameter: str | None
    worst_ratio: float | None


@dataclass(frozen=True)
class SensitivityRow:
    """kerneldiff/sensitivity.csv: a fault at one place, as one compared tensor shows it.

    Attributes:
        fault: weight, activation or gradient: what is multiplied by 1 + the error.
        site: the parameter, or the module whose operation it is.
        operation: whose result it is; "" for a weight.
        source: the operation's line, FILE:LINE; "" where that is not known.
        kind, path: of the compared tensor; ``any`` where any of them counts, as for the verdict of the run.
        found: defect; passes: no error was one, up to the largest; no_effect: nor did one change the tensor, or what
            float64 gives.
        relative_error: the smallest one planted that was a defect; None where none was.
        passed: the largest one below that was none.
        ratio: error over floor at ``relative_error``, or at the largest error; None where no floor decided.
        confirmed: ``relative_error`` is at most twice ``passed``, or no error was a defect.
    """

    fault: str
    site: str
    operation: str
    source: str
    kind: str
    path: str
    found: str
    relative_error: float | None
    passed: float | None
    ratio: float | None
    confirmed: bool


@dataclass(frozen=True)
class SampleRow:
    """benchmark/samples.csv: a timed call; ``device_ms`` is None where no device did the work.

    Attributes:
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


@dataclass(frozen=True)
class ProbeRow:
    """bisect/probes.csv; ``fault`` is present, gone, or other (another failure)."""

    probe: int
    purpose: str
    compiler: str
    setting: str
    fault: str
    verdict: str
    failure: str
    graphs: int
    seconds: float
    message: str


@dataclass(frozen=True, kw_only=True)
class KernelTimeRow:
    """profile/kernels.csv: see :mod:`stages.profile.tables`."""

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
    """What a row of operations.csv is about."""

    operation: str


@dataclass(frozen=True)
class ModuleName:
    """What a row of modules.csv is about, and how many modules it is inside."""

    module: str
    depth: int


@dataclass(frozen=True)
class LineName:
    """What a row of lines.csv is about."""

    source: str
    code: str
    operations: str


@dataclass(frozen=True)
class TimeRow:
    """The time of an operation, a module or a line: see :mod:`stages.profile.tables`."""

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
