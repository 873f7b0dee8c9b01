"""What an inspection of guards finds and stores: ``guards/guards.json``, and the rows of its tables."""

from dataclasses import dataclass, field


@dataclass
class Guard:
    """One guard of one compiled frame.

    Attributes:
        type: torch's name of its kind; SHAPE_ENV for a condition on symbolic sizes, each condition one guard.
        name: what it looks at, ``L`` being the frame's locals; empty for what is no single object.
        scope: "local", "global", … where torch tells.
        code: conditions as Python, without object addresses; empty for types that torch checks in C++ and tells
            no condition of, and where another guard has told the same condition.
        source: ``file:line`` of the model that made it necessary, or None.
        size, stride: what a tensor's must be, None in the place of one that is free; None altogether for no tensor.
        dynamic: with ``dynamic=True`` the guard is "kept", "relaxed" (it lets more through) or "gone"; empty where
            that was not established.
        becomes: what stands in its place where it is relaxed.
    """

    type: str
    name: str
    scope: str
    code: list[str]
    source: str | None
    size: list[int | None] | None = None
    stride: list[int | None] | None = None
    dynamic: str = ""
    becomes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recompile:
    """A guard that failed, so that a frame was compiled again, or was not because of a limit.

    Attributes:
        compile_id: of the new compilation.
        graph: of the new compilation, None where there is none.
        failed: compile id of the old one, whose guard failed.
        failed_graph: its graph.
        guard: the condition that failed, in torch's words.
        source: ``file:line`` of the model that made that guard necessary, or None.
        function, file, line: the frame.
        limit: of ``torch._dynamo.config``, where it stopped the compilation; else None.
        suggestion: what would spare the recompilation.
    """

    compile_id: str
    graph: str | None
    failed: str
    failed_graph: str | None
    guard: str
    source: str | None
    function: str
    file: str
    line: int
    limit: str | None = None
    suggestion: str = ""


@dataclass(frozen=True)
class Limit:
    """A limit that was reached: ``name`` of ``torch._dynamo.config``, its ``value``."""

    name: str
    value: int
    compile_id: str
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Break:
    """One graph break.

    Attributes:
        graph: the graph that it ended, None where it made none.
        compile_id: of the compilation that met it.
        kind: "break", or "skipped_frame": the whole frame runs in Python.
        reason: torch's name of the kind of break.
        explanation: torch's.
        suggestion: what to do about it.
        hints: torch's own.
        documentation: torch's page on it, or None.
        file, line, function, code: the model's own frame.
        stack: all frames, outermost first.
    """

    graph: str | None
    compile_id: str
    kind: str
    reason: str
    explanation: str
    suggestion: str
    hints: list[str]
    documentation: str | None
    file: str | None
    line: int | None
    function: str | None
    code: str | None
    stack: list[str]


@dataclass(frozen=True)
class Occurrence:
    """The call in which something happened.

    Attributes:
        variation: what was varied.
        step: of the variation, from 1; None in the first call.
        policy: ``static``, ``automatic`` or ``dynamic``, as ``torch.compile(dynamic=…)`` has it.
    """

    variation: str
    step: int | None
    policy: str


@dataclass(frozen=True)
class RecompileRow(Recompile, Occurrence):
    """guards/recompiles.csv."""


@dataclass(frozen=True)
class BreakRow(Break):
    """guards/breaks.csv; ``seen_in``: the calls that met it."""

    seen_in: list[str]


@dataclass(frozen=True)
class LimitRow(Limit):
    """A limit with the ``option`` that raises it, and the call that met it."""

    option: str
    call: str


@dataclass(frozen=True)
class VariationRow:
    """guards/variations.csv: how the variation was made, and its outcome under each policy.

    Attributes:
        variation: ``batch``, ``length`` (or image size), ``dtype``, ``contiguity``, or ``repeat``: the same inputs.
        step: of that variation, from 1.
        change: what was changed, in words.
        established_by: how it is known which dimension varies.
        eager: whether the model itself takes the inputs.
        static, automatic, dynamic: ``reused``, ``recompiled``, ``new_frames``, ``limit_hit`` (Python runs the frame),
            ``refused_by_compiler`` (eager accepts it: a finding), ``refused_by_model`` or ``not_established``.
        message: what was raised, or why it is not established.
    """

    variation: str
    step: int
    change: str
    established_by: str
    eager: str
    static: str
    automatic: str
    dynamic: str
    message: str


@dataclass(frozen=True)
class FirstCall:
    """The first call under a policy, whose argument of torch.compile is ``dynamic``; the last three are counts."""

    dynamic: bool | None
    outcome: str
    message: str
    graphs: int
    breaks: int
    guards: int


@dataclass(frozen=True, kw_only=True)
class GuardedGraph:
    """One of ``graphs`` of guards.json: see :class:`stages.guards.records.CompiledFrame`.

    Attributes:
        dynamic_shapes: how many guards they keep, relax and remove; empty where that was not established.
    """

    compile_id: str = ""
    graph: str | None
    code: str = ""
    function: str
    file: str
    line: int
    guards: list[Guard]
    not_established: str = ""
    added: list[str] = field(default_factory=list)
    dynamic_shapes: dict[str, int]


@dataclass(frozen=True)
class RecompiledFrame:
    """What varied inputs compiled.

    Attributes:
        guards: how many.
        first: compile id of the first compilation of its code, or None.
        gone, new: the conditions in which it differs from that.
    """

    call: str
    compile_id: str
    graph: str | None
    function: str
    file: str
    line: int
    guards: int
    first: str | None
    gone: list[str]
    new: list[str]


@dataclass(frozen=True, kw_only=True)
class Guards:
    """guards/guards.json.

    Attributes:
        policies: by name.
        graphs: those of torch's default for the case's own inputs.
        recompiling: kind of variation → the policies under which it compiles again.
    """

    schema: int = 1
    policies: dict[str, FirstCall] = field(default_factory=dict)
    graphs: list[GuardedGraph]
    recompiled: list[RecompiledFrame] = field(default_factory=list)
    recompiling: dict[str, list[str]] = field(default_factory=dict)
    variations: list[VariationRow] = field(default_factory=list)
    recompiles: list[RecompileRow] = field(default_factory=list)
    breaks: list[BreakRow] = field(default_factory=list)
    limits: list[LimitRow]
    not_established: list[str]
