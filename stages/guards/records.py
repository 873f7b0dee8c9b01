"""What an inspection of guards says, as data."""

from collections import Counter
from dataclasses import dataclass, field

from inductor_debug.stages.artifacts.guards import Break, Guard, Limit, Recompile
from inductor_debug.stages.artifacts.records import DynamicShapes

POLICIES = {"static": False, "automatic": None, "dynamic": True}
"""How torch.compile treats sizes: ``dynamic=False``, its default (static first, a size that changed symbolic from then
on), and ``dynamic=True``."""

REUSED, RECOMPILED, NEW_FRAMES, LIMIT_HIT = "reused", "recompiled", "new_frames", "limit_hit"
REFUSED_BY_COMPILER, REFUSED_BY_MODEL, NOT_ESTABLISHED = "refused_by_compiler", "refused_by_model", "not_established"
"""Outcomes of a call, in order. The compiled code served. A guard failed and a frame was compiled again. Frames that
had not run before were compiled. A limit was reached and a frame is left to Python. Only the compiled model raises.
Eager raises as well. The call could not be made."""


@dataclass
class CompiledFrame:
    """One compilation.

    Attributes:
        compile_id: "0/1", the second compilation of the first frame, as torch's logs write it.
        graph: id of its graph, ``g0.dynamo``, or None where none came of it.
        function, file, line: the code that was compiled; after a graph break, the line at which it goes on.
        guards: in torch's order.
        not_established: why the guards could not be compared with those of ``dynamic=True``; empty where they were.
        added: conditions that ``dynamic=True`` adds.
    """

    compile_id: str
    graph: str | None
    code: str
    function: str
    file: str
    line: int
    guards: list[Guard] = field(default_factory=list)
    not_established: str = ""
    added: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int, str]:
        """What is equal for all compilations of one code."""
        return self.file, self.line, self.code

    def changes(self) -> dict[str, int]:
        """How many guards dynamic shapes keep, relax and remove; empty where that was not established."""
        return {} if self.not_established else dict(Counter(guard.dynamic for guard in self.guards))


@dataclass
class Call:
    """One call of the compiled case.

    Attributes:
        outcome: what became of it, one of the names above.
        message: what the compiled model raised; empty where it did not.
        frames: what was compiled in it.
    """

    outcome: str
    message: str = ""
    frames: list[CompiledFrame] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)


@dataclass
class Variation:
    """Inputs that differ from the case's in one way.

    Attributes:
        kind: one of ``vary``, or "repeat": the same inputs again.
        step: 1, 2, …: variations of one kind are called one after the other on one cache.
        change: in words.
        established_by: what told how to vary.
        eager: "accepted", "refused" (the model raises without a compiler too) or "not_called".
        message: why it was not made, or what the model raised.
        calls: policy → the call; empty where the variation was not made or the model refuses it.
    """

    kind: str
    step: int
    change: str
    established_by: str = ""
    eager: str = "not_called"
    message: str = ""
    calls: dict[str, Call] = field(default_factory=dict)

    def outcome(self, policy: str) -> str:
        """What became of it under a policy."""
        if policy in self.calls:
            return self.calls[policy].outcome
        return REFUSED_BY_MODEL if self.eager == "refused" else NOT_ESTABLISHED


@dataclass
class GuardReport:
    """What :func:`~stages.guards.inspect_guards` found.

    Attributes:
        bases: policy → the first call, with the case's own inputs.
        variations: in the order in which they were called.
    """

    bases: dict[str, Call] = field(default_factory=dict)
    variations: list[Variation] = field(default_factory=list)

    @property
    def frames(self) -> list[CompiledFrame]:
        """The frames that torch compiles by default for the case's own inputs, with their guards."""
        return self.bases["automatic"].frames

    @property
    def graphs(self) -> list[CompiledFrame]:
        """Those of :attr:`frames` that a graph came of."""
        return [frame for frame in self.frames if frame.graph is not None]

    def every_call(self) -> list[tuple[str, Variation | None, Call]]:
        """(policy, variation or None for the first call, call), by policy."""
        found: list[tuple[str, Variation | None, Call]] = []
        for policy, base in self.bases.items():
            found.append((policy, None, base))
            found += [(policy, item, item.calls[policy]) for item in self.variations if policy in item.calls]
        return found

    def recompiling(self) -> dict[str, list[str]]:
        """Kind of variation → the policies under which it compiles again, or would but for a limit."""
        found: dict[str, list[str]] = {}
        for item in self.variations:
            policies = found.setdefault(item.kind, [])
            policies += [name for name, call in item.calls.items()
                         if call.outcome in (RECOMPILED, LIMIT_HIT) and name not in policies]  # fmt: skip
        return found

    def refusals(self) -> list[tuple[str, Variation | None, Call]]:
        """Calls that only the compiled model refuses."""
        return [entry for entry in self.every_call() if entry[2].outcome == REFUSED_BY_COMPILER]

    def changes(self) -> DynamicShapes:
        """How many guards of :attr:`graphs` dynamic shapes keep, relax and remove; None where not established."""
        if not self.graphs or any(frame.not_established for frame in self.graphs):
            return DynamicShapes()
        total: Counter[str] = Counter(guard.dynamic for frame in self.graphs for guard in frame.guards)
        return DynamicShapes(total["kept"], total["relaxed"], total["gone"])
