"""What the stored JSON files hold, as their readers need it.

Keys that are not named here may hold anything.
"""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import OMITTED, Number
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.measurements import PartSpeedup, SideFigures


@dataclass(frozen=True)
class Run:
    """``run`` of summary.json.

    Attributes:
        id: its folder's name after that of the folder it is in, as commands take it.
        identity: the run's own: a directory may have held another before.
        model, accel, backend, dtype, device, mode: of the configuration.
        overrides: words of the command line that changed the configuration.
        flags: those of the command line without which ``overrides`` mean something else.
        started: date and time, ISO 8601. seconds: wall clock; None until the run is over.
    """

    id: str = ""
    identity: str = ""
    model: str | None = None
    accel: str | None = None
    backend: str | None = None
    dtype: str | None = None
    device: str | None = None
    mode: str | None = None
    flags: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    started: str | None = None
    seconds: Number | None = None


@dataclass(frozen=True)
class StageEntry:
    """One of ``stages`` of summary.json.

    Attributes:
        name: of the stage.
        status: passed, failed (a verdict failed), skipped (it had nothing to do), crashed or timed_out.
        seconds: wall clock.
        cached: whether the result was taken from an earlier run.
        message: one line for a person.
        mistake: one in the configuration that only running could tell.
    """

    name: str
    status: str
    seconds: Number | None = None
    cached: bool = False
    message: str | None = None
    mistake: str | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class StageRecord:
    """What a stage left for the summary and the manifest.

    Attributes:
        status, message: of its result. seconds: wall clock.
        summary: part of summary.json → what it has to add there.
        digest: artifact → its columns or keys that must repeat; empty for all.
        digests: artifact → SHA-256 of these, wherever the run lies.
        artifacts: relative paths.
        mistake: one in the configuration that only running could tell.
        cause: what ended it where it came to no result: ``error TYPE…`` (of the exception, then of what it wraps),
            ``signal NUMBER`` or ``hang``; empty where it came to one, and where memory, the disk, a mistake or an
            interruption ended it.
        identity: of the run.
        key: of what the result depends on, under which it may be kept; empty where that is not known.
        cached: directory of the run that the result was made in, where it is another's; else empty.
    """

    name: str
    status: str
    seconds: float
    message: str
    summary: dict[str, Any] = field(default_factory=dict)
    digest: dict[str, list[str]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)
    mistake: str | None = None
    cause: str = ""
    identity: str = ""
    key: str = ""
    cached: str = ""

    def entry(self) -> StageEntry:
        """As ``stages`` of summary.json has it."""
        return StageEntry(
            self.name, self.status, self.seconds, bool(self.cached), message=self.message, mistake=self.mistake or None
        )


@dataclass(frozen=True)
class GraphCounts:
    """``graphs`` of summary.json, and counts of breaks and guards; ``nodes`` are those of the AOT graphs."""

    dynamo: int | None = None
    forward: int | None = None
    backward: int | None = None
    breaks: int | None = None
    guards: int | None = None
    nodes: int | None = None


@dataclass(frozen=True)
class Violations:
    """``violations`` of summary.json. They count findings, the waived and undecided ones too.

    Attributes:
        total: None where nothing was checked.
        declared_by: whose rules they are: ``accel``, or the ``backend``.
    """

    total: int | None = None
    by_rule: dict[str, int] = field(default_factory=dict)
    by_effect: dict[str, int] = field(default_factory=dict)
    by_severity: dict[str, int] | None = field(default=None, metadata=OMITTED)
    strict: bool | None = None
    profile: str | None = None
    declared_by: str | None = None


@dataclass(frozen=True)
class Numerics:
    """``numerics`` of summary.json: over all compared tensors together.

    Attributes:
        execution: who executed the test side; None where nothing was compared.
    """

    compared: int | None = None
    failed: int | None = None
    max_abs: Number | None = None
    max_rel: Number | None = None
    rmse: Number | None = None
    max_ulp: int | None = None
    verdict: str | None = None
    first_divergence: Any = None
    execution: Execution | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class Benchmark:
    """``benchmark`` of summary.json.

    Attributes:
        half_width: half the width of ``speedup_ci95`` relative to ``speedup``.
        wanted_half_width: what ``stages.benchmark.interval`` asked for; ``interval_reached``: whether
            it is that narrow.
        parts: of a training step → its speed-up; without those that were not timed, for which ``without_optimizer`` has
            the reason.
        l2_flushed: true where the L2 cache was flushed before each timed call.
        cuda_graphs: how many the test side recorded, of the processes the fewest; None where none were asked for.
    """

    reference: SideFigures = field(default_factory=SideFigures)
    test: SideFigures = field(default_factory=SideFigures)
    speedup: Number | None = None
    speedup_ci95: list[float] | tuple[None, None] | None = None
    established: bool | None = None
    not_established: str | None = None
    half_width: Number | None = field(default=None, metadata=OMITTED)
    wanted_half_width: Number | None = field(default=None, metadata=OMITTED)
    interval_reached: bool | None = field(default=None, metadata=OMITTED)
    parts: dict[str, PartSpeedup] | None = field(default=None, metadata=OMITTED)
    without_optimizer: str | None = field(default=None, metadata=OMITTED)
    l2_flushed: bool | None = field(default=None, metadata=OMITTED)
    cuda_graphs: int | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class DynamicShapes:
    """How many guards dynamic shapes keep, relax and remove; None where that was not established."""

    kept: int | None = None
    relaxed: int | None = None
    gone: int | None = None


@dataclass(frozen=True)
class GuardCounts:
    """``guards`` of summary.json: counts of graphs, guards, breaks, variations, and of what these came to.

    Attributes:
        recompiling: kind of variation → the policies under which it compiles again.
        recompiled, limits_hit, refused_by_compiler: calls. refused_by_model, not_established: variations.
    """

    graphs: int | None = None
    guards: int | None = None
    breaks: int | None = None
    variations: int | None = None
    recompiling: dict[str, list[str]] | None = None
    recompiled: int | None = None
    limits_hit: int | None = None
    refused_by_compiler: int | None = None
    refused_by_model: int | None = None
    not_established: int | None = None
    dynamic_shapes: DynamicShapes | None = None


@dataclass(frozen=True)
class ReproRecord:
    """One of ``repros`` of summary.json: see :class:`stages.rules.repros.Repro`.

    Attributes:
        reason: why it is not verified.
        violations: how many it stands for.
        failure: what it shows: ``defect``, ``error TYPE in FILE:FUNCTION, FILE:FUNCTION``, ``signal NUMBER``, ``hang``,
            or the rule, what breaks it and the effect.
        fingerprint: the same for the same failure (:mod:`stages.repro.fingerprint`); "" where an earlier version wrote
            the run.
        met_in: id of the first run of the same output directory that met it; None where none did before.
    """

    path: str
    failure_class: str = ""
    nodes: int = 0
    verified: bool = False
    reason: str = ""
    target: str = ""
    graph: str = ""
    node: str = ""
    source: str = ""
    violations: int = 0
    failure: str = ""
    fingerprint: str = ""
    met_in: str | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class Summary:
    """The machine-readable result; a package's stage may add a part of its own.

    Attributes:
        run: which run it is.
        verdict: passed, failed or crashed: the worst of its stages'.
        stages: in the order in which they ran.
        graphs, violations, numerics, benchmark, guards: what a stage found; None where it did not run.
        repros: the scripts in ``repros/``.
        compiled_by: what compiled it; None where an earlier version did not record that.
    """

    run: Run
    verdict: str
    stages: list[StageEntry]
    graphs: GraphCounts | None = None
    violations: Violations | None = None
    numerics: Numerics | None = None
    benchmark: Benchmark | None = None
    guards: GuardCounts | None = None
    repros: list[ReproRecord] | None = None
    compiled_by: CompiledBy | None = None


@dataclass(frozen=True)
class Rejection:
    """Why a job of a sweep was rejected before it ran.

    Attributes:
        message: what was got, what is valid, what to type next.
        overrides: words of the command line.
    """

    message: str
    overrides: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Manifest:
    """What the run was made with, and a digest of each file.

    Attributes:
        environment: versions and the machine; None where it tells none.
        files: path → SHA-256.
    """

    environment: dict[str, str] | None = None
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BreakRecord:
    """A graph break.

    Attributes:
        graph: id of the Dynamo graph that it ended; None where it made none.
        kind: "break", or "skipped_frame": the whole frame ran in Python.
        setting: the override that would let Dynamo capture it, or None.
        file, line, function, code: the model's own frame.
        stack: all frames, each ``file:line``.
    """

    graph: str | None = None
    kind: str = "break"
    reason: str
    detail: str | None = None
    setting: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    stack: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RecompileRecord:
    """A recompilation in capture's one step."""

    reason: str
    function: str
    file: str
    line: int


@dataclass(frozen=True, kw_only=True)
class CapturedGuard:
    """One of capture/guards.json.

    Attributes:
        graph: the Dynamo graph that it protects; None for a frame without one.
        code: conditions as Python.
        source: ``file:line`` of the model that made it necessary, or None.
    """

    graph: str | None
    type: str
    name: str = ""
    scope: str = ""
    code: list[str]
    source: str | None


@dataclass(frozen=True)
class ReportData:
    """What is read of report/report.json."""

    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DeclaredRule:
    """A rule of declared.json: see :class:`stages.accelerators.config.Rule`."""

    rule: str = ""
    effect: str | None = None
    dims: str | None = None
    roles: list[str] | None = None
    unit: str | None = None
    operations: list[str] | None = None
    value: Any = None
    source: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class DeclaredWaiver:
    """A waiver of declared.json: see :class:`stages.accelerators.config.Waiver`."""

    rule: str = ""
    source: str = ""
    target: str = ""
    reason: str = ""
    expires: str | None = None


@dataclass(frozen=True)
class Declared:
    """constrain/declared.json."""

    name: str
    strict: bool
    rules: list[DeclaredRule]
    waivers: list[DeclaredWaiver]
    own_check: bool
