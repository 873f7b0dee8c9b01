"""Violations of a profile at one operation: what the profile says, the script that shows it, the test of a part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.backends.graph_records import graph_records
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import Repro, write_repros
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations

RULES = {
    "denied": "operation", "dtype": "dtype", "alignment": "alignment", "memory": "memory_tensor", "rank": "rank",
}  # fmt: skip
"""Kind of violation → the rule that is broken."""

ALIGNED = 16
"""Elements whose multiple the last dimension must be."""


def _tensor(node: fx.Node) -> torch.Tensor | None:
    value = node.meta["val"]
    value = value[0] if isinstance(value, (tuple, list)) and value else value
    return value if isinstance(value, torch.Tensor) else None


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in value.shape)


def can_have(kind: str, node: fx.Node) -> bool:
    """Whether a profile can be broken by what a node gives."""
    value = _tensor(node)
    if value is None:
        return False
    if _is_symbolic(value):
        return kind in ("denied", "rank")
    match kind:
        case "dtype":
            return value.dtype != torch.float32
        case "alignment":
            return (
                value.is_floating_point() and value.dim() > 0 and value.shape[-1] > 1 and value.shape[-1] % ALIGNED > 0
            )
        case "rank":
            return value.dim() > 2
        case "memory":
            return value.numel() > 1
    return True


def limit(kind: str, node: fx.Node) -> str:
    """What the profile allows, short of what the node gives."""
    value = _tensor(node)
    assert value is not None
    match kind:
        case "dtype":
            return str(value.dtype).removeprefix("torch.")
        case "alignment":
            return str(ALIGNED)
        case "rank":
            return str(value.dim() - 1)
        case "memory":
            return str(value.numel() * value.element_size() - 1)
    return ""


def profile(kind: str, target: str, value: str) -> AccelConfig:
    """The profile that an operation breaks.

    Args:
        kind: of :data:`RULES`.
        target: of the operation.
        value: as :func:`limit` gives it.
    """
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    fields: dict[str, Any] = {
        "denied": lambda: {"denied": [target]},
        "dtype": lambda: {"dtypes": [name for name in dtypes if name != value]},
        "alignment": lambda: {"alignment": int(value)},
        "memory": lambda: {"max_tensor_bytes": int(value)},
        "rank": lambda: {"max_rank": int(value)},
    }[kind]()
    return AccelConfig(name=kind, strict=True, **fields)


@dataclass(frozen=True)
class Broken:
    """A profile, and the operation that breaks it."""

    kind: str
    target: str
    graph: str
    value: str

    @property
    def rule(self) -> str:
        return RULES[self.kind]

    def script(self, case: Case, dynamic: bool) -> tuple[Repro, GraphRecord]:
        """The tool's script of the violation, run in a fresh process, and the graph that has it.

        Raises:
            LookupError: no operation of the graph breaks the profile.
        """
        graphs = capture(case, dynamic or None).graphs
        violations = check(graphs, profile(self.kind, self.target, self.value))
        rows = self.rows(violations, graphs)
        if not rows:
            raise LookupError(f"{self.target} of the {self.graph} breaks no rule {self.rule}")
        repros = write_repros(graphs, replace(violations, rows=tuple(rows)), limit=1, verified=1)
        if not repros.scripts:
            raise LookupError(f"the violation has no script: {repros}")
        [found] = repros.scripts
        return found, next(graph for graph in graphs if graph.id == found.rows[0].graph)

    def rows(self, violations: Violations, graphs: Sequence[GraphRecord]) -> list[Violation]:
        """Those of the rule that the operation breaks in its graph."""
        calls = {(graph.id, node.name) for graph in graphs for node in graph.nodes if node.is_call}
        return [row for row in violations if (row.rule, row.target, row.severity) == (self.rule, self.target, "error")
                and row.graph.endswith(self.graph) and (row.graph, row.node) in calls]  # fmt: skip

    def test(self) -> "Test":
        """Whether a part of the graph has the violation, as torch's minifier asks."""
        return Test(self)


class Test:
    """Checks parts of a graph. Called with one, it gives the rule that is broken; None where it is not."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._profile: Profile | None = None

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> str | None:
        records = graph_records({f"g0.{self._broken.graph}": module}, details=False)
        if self._profile is None:
            config = profile(self._broken.kind, self._broken.target, self._broken.value)
            self._profile = check(records, config).profile
        rows = self._broken.rows(check(records, self._profile), records)
        return f"violation:{self._broken.rule}" if rows else None
