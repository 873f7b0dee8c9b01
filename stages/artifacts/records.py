"""What the stored JSON files hold, as their readers need it.

Keys that are not named here may hold anything.
"""

from typing import Any, NotRequired, TypedDict

from inductor_debug.models.shapes import Number


class Run(TypedDict, total=False):
    """``run`` of summary.json."""

    id: str
    model: str | None
    accel: str | None
    backend: str | None
    dtype: str | None
    mode: str | None
    device: str | None
    seconds: Number | None
    overrides: list[str]
    flags: list[str]


class StageEntry(TypedDict):
    """One of ``stages`` of summary.json, and a stage's record."""

    name: str
    status: str
    message: NotRequired[str | None]
    seconds: NotRequired[Number | None]
    mistake: NotRequired[str | None]


class Violations(TypedDict, total=False):
    """``violations`` of summary.json."""

    total: int | None
    by_rule: dict[str, int]
    by_effect: dict[str, int]
    strict: bool | None
    profile: str | None
    declared_by: str | None


class Numerics(TypedDict, total=False):
    """``numerics`` of summary.json."""

    compared: int | None
    failed: int | None
    verdict: str | None


class Benchmark(TypedDict, total=False):
    """``benchmark`` of summary.json."""

    reference: dict[str, Any] | None
    test: dict[str, Any] | None
    speedup: Number | None
    speedup_ci95: tuple[Number, Number] | tuple[None, None] | None
    established: bool | None
    not_established: str | None


class Summary(TypedDict):
    """summary.json."""

    run: Run
    verdict: str
    stages: list[StageEntry]
    graphs: NotRequired[dict[str, Any] | None]
    violations: NotRequired[Violations | None]
    numerics: NotRequired[Numerics | None]
    benchmark: NotRequired[Benchmark | None]
    guards: NotRequired[dict[str, Any] | None]
    repros: NotRequired[list[dict[str, Any]] | None]


class Rejection(TypedDict):
    """configuration_error.json."""

    message: str
    overrides: NotRequired[list[str]]


class Manifest(TypedDict, total=False):
    """manifest.json."""

    environment: dict[str, str]
    files: dict[str, str]


class Printer(TypedDict):
    """``printer`` of lower/summary.json."""

    level: int
    kernels: list[str]


class Lowering(TypedDict):
    """lower/summary.json."""

    graphs: dict[str, dict[str, Any]]
    inductor_options: NotRequired[dict[str, Any]]
    compile_s: NotRequired[Number | None]
    caches: NotRequired[dict[str, Any]]
    printer: NotRequired[Printer]


class Break(TypedDict):
    """A graph break."""

    reason: str
    detail: NotRequired[str | None]
    kind: NotRequired[str]
    file: NotRequired[str | None]
    line: NotRequired[int | None]


class HeldGuard(TypedDict):
    """A guard."""

    type: str
    code: list[str]
    source: str | None


class CapturedGuard(HeldGuard):
    """One of capture/guards.json."""

    graph: str | None


class GuardedGraph(TypedDict):
    """One of ``graphs`` of guards/guards.json."""

    graph: str | None
    function: str
    file: str
    line: int
    guards: list[HeldGuard]
    dynamic_shapes: dict[str, Any]


class Guards(TypedDict):
    """guards/guards.json."""

    graphs: list[GuardedGraph]
    limits: list[dict[str, Any]]
    not_established: list[str]
    recompiling: NotRequired[dict[str, list[str]]]


class RaisedBySide(TypedDict):
    """``error`` of diagnosis.json."""

    side: NotRequired[str]
    type: NotRequired[str]


class Diagnosis(TypedDict):
    """kerneldiff/diagnosis.json."""

    error: NotRequired[RaisedBySide | None]
    baseline: NotRequired[str | None]
    verdict: NotRequired[str]
    message: NotRequired[str]
    golden: NotRequired[str | None]


class Applications(TypedDict):
    """A place where a culprit is applied."""

    name: str
    index: int | None
    definition: str | None
    nodes: list[dict[str, Any]]


class Pattern(TypedDict):
    """``pattern`` of bisect.json."""

    applications: NotRequired[list[Applications] | None]


class Remedy(TypedDict):
    """``remedy`` of bisect.json."""

    kind: str
    text: str


class Bisection(TypedDict):
    """bisect/bisect.json."""

    verdict: str
    answer: str
    applications: list[Applications]
    pattern: Pattern | None
    remedy: Remedy | None


class ReportData(TypedDict, total=False):
    """report/report.json."""

    findings: list[str]


class DeclaredRule(TypedDict, total=False):
    """A rule of declared.json, all fields."""

    rule: str
    effect: str | None
    dims: str | None
    roles: list[str] | None
    unit: str | None
    operations: list[str] | None
    value: Any
    source: str | None
    version: str | None


class DeclaredWaiver(TypedDict, total=False):
    """A waiver of declared.json."""

    rule: str
    source: str
    target: str
    reason: str
    expires: str | None


class Declared(TypedDict):
    """constrain/declared.json."""

    name: str
    strict: bool
    rules: list[DeclaredRule]
    waivers: list[DeclaredWaiver]
    own_check: bool
