"""What a run is checked against: the profile that ``accel`` names, or what its backend declares of itself.

=====================  ====================================================================================
``accel=none``         the adapter's ``capabilities()``, edited by whatever ``accel.FIELD`` says
``accel=NAME``         that profile, in place of the capabilities
an overridden check    asked in either case, for what it finds beyond the capabilities: what no profile can state
=====================  ====================================================================================

Imports torch only for a backend that can declare something: an adapter of a vendor's, or the mock.
"""

import datetime
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile, completed, validate_profile
from inductor_debug.stages.formatting import in_words
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.counting import count_once
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.findings import with_findings
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations, waive
from inductor_debug.stages.settings import Settings, may_declare


@dataclass(frozen=True)
class Rulebook:
    """What decides.

    Attributes:
        profile: the rules in force.
        declared_by: ``accel`` or ``backend``.
        backend: the adapter's name.
        replaced: rules that the backend declares and ``accel`` took the place of.
        edited: True where ``accel.FIELD`` changed what the backend declares.
        declared: the backend's capabilities, whose rows an own check may repeat (``super().check(graph)``).
        own_check: the adapter's ``check``, where it is not the default one.
        level: of the graphs that the adapter takes, ``aot`` or ``dynamo``.
        strict: ``accel.strict`` as given; None where nobody did.
    """

    profile: Profile
    declared_by: str = "accel"
    backend: str = ""
    replaced: int = 0
    edited: bool = False
    declared: Profile = field(default_factory=Profile)
    own_check: Callable[[GraphRecord], Violations] | None = None
    level: str = "aot"
    strict: bool | None = None

    def check(self, graphs: Sequence[GraphRecord], today: datetime.date | None = None) -> Violations:
        """Every violation in ``graphs``, those of the adapter's own check included.

        An explicit ``accel.strict`` decides over the severity of the latter; otherwise it is what the adapter says.
        """
        if self.own_check is None:
            return check(graphs, self.profile, today=today)
        found = check(graphs, replace(self.profile, waivers=()))
        rows = [*found, *itertools.chain.from_iterable(map(self._own_rows, _compiled(graphs, self.level)))]
        rows = count_once(waive(rows, self.profile.waivers, today or datetime.date.today()), graphs)
        return replace(found, rows=tuple(with_findings(rows, graphs)), profile=self.profile)

    def _own_rows(self, graph: GraphRecord) -> list[Violation]:
        """What the adapter's own check finds beyond its capabilities, which ``accel`` may have edited or replaced."""
        assert self.own_check is not None
        answer = self.own_check(graph)
        if not isinstance(answer, Violations):
            raise _wrong_type(f"check() of the adapter {self.backend}", answer, Violations)
        known = set(check(graph, self.declared))
        return [self._with_severity(row) for row in answer if row not in known]

    def _with_severity(self, row: Violation) -> Violation:
        if self.strict is None or row.severity not in ("error", "warning"):
            return row
        return replace(row, severity="error" if self.strict else "warning")

    @property
    def note(self) -> str:
        """What a reader must know about where the rules come from; empty where ``accel`` alone gave them."""
        notes: list[str] = []
        if self.declared_by == "backend" and self.profile.rules:
            edits = ", edited by accel.*" if self.edited else ""
            notes.append(f"The rules are those that the backend {self.backend} declares (accel=none{edits}).")
        if self.replaced:
            notes.append(f"{self.profile.name} took the place of the rules that the backend {self.backend} declares.")
        if self.own_check is not None:
            notes.append(f"The backend {self.backend} checked as well.")
        return in_words(*notes)


def rulebook(settings: Settings) -> Rulebook:
    """The rules in force for a run; ConfigurationError where the profile or the backend is not valid."""
    accel = settings.accel
    if not may_declare(settings.backend.adapter):
        return Rulebook(validate_profile(accel), strict=accel.strict)
    from inductor_debug.stages.backends.registry import build_adapter

    adapter = build_adapter(settings)
    declared = adapter.capabilities()
    if not isinstance(declared, Profile):
        raise _wrong_type(f"capabilities() of the adapter {adapter.name}", declared, Profile)
    declared, own = completed(declared), adapter.own_check()
    alone = accel.name == "none"
    if alone and not declared.rules and own is None:
        return Rulebook(validate_profile(accel), strict=accel.strict)
    profile = validate_profile(accel, base=declared if alone else None)
    book = Rulebook(profile, backend=adapter.name, declared=declared, own_check=own, level=adapter.level,
                    strict=accel.strict)  # fmt: skip
    if alone:
        return replace(book, declared_by="backend", edited=replace(accel, description="") != AccelConfig())
    same = declared.rules == profile.rules  # a mock enforces accel
    return replace(book, replaced=0 if same else len(declared.rules))


def _compiled(graphs: Sequence[GraphRecord], level: str) -> list[GraphRecord]:
    """Those that an adapter's ``compile`` would get; Dynamo's, of a graph without AOT graphs."""
    if level == "dynamo":
        return [graph for graph in graphs if graph.kind == "dynamo"]
    aot = [graph for graph in graphs if graph.kind in ("forward", "backward")]
    numbers = {graph.number for graph in aot}
    return aot + [graph for graph in graphs if graph.kind == "dynamo" and graph.number not in numbers]


def _wrong_type(what: str, got: Any, valid: type) -> ConfigurationError:
    example = "validate_profile(AccelConfig(alignment=16))" if valid is Profile else "check(graph, profile)"
    return ConfigurationError(
        f"backend.adapter: {what} gave {type(got).__name__}; valid: a {valid.__name__} of stages.constrain.\n"
        f"Try: return {example}"
    )
