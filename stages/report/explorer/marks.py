"""What is known of single nodes: findings of the profile, errors, FLOPs, times."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowering import NotCompiled
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.graphs.records import number_of
from inductor_debug.stages.report.explorer.layers import AOT, DYNAMO, Layer

Place = tuple[str, str]
"""A layer's id and a node's name."""


@dataclass(frozen=True)
class Finding:
    """A finding of the profile's at an operation, or at what it reads."""

    rule: str
    effect: str
    message: str


@dataclass
class Error:
    """How a value that was compared differs.

    Attributes:
        state: as of ``kerneldiff/nodes.csv``: ``right``, ``wrong``, …; ``not compiled`` where the compiler stopped.
        ratio: its error over its own noise floor, or None.
        culprit: whether it is wrong by itself.
    """

    state: str
    ratio: float | None
    culprit: bool = False


@dataclass
class Marks:
    """By layer and node. Each is known at one level; what came of a node, or what it came of, has it through that.

    Attributes:
        findings: of captured operations.
        errors: of values that were compared.
        flops: of captured operations: of AOTAutograd's where there are any, else of Dynamo's.
        times: of launches, or of operations where the backend has no kernels: microseconds and share of a step.
    """

    findings: dict[Place, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[Place, Error] = field(default_factory=dict)
    flops: dict[Place, int] = field(default_factory=dict)
    times: dict[Place, tuple[float, float | None]] = field(default_factory=dict)


def marks(shown: Sequence[Layer], artifacts: Artifacts) -> Marks:
    """What the run's stages found out about the nodes of these layers."""
    found = Marks()
    by_id = {layer.id: layer for layer in shown}
    _add_findings(found, by_id, artifacts)
    _add_errors(found, by_id, artifacts)
    _add_flops(found, shown)
    _add_times(found, by_id, artifacts)
    return found


def _add_findings(found: Marks, by_id: dict[str, Layer], artifacts: Artifacts) -> None:
    readers: dict[Place, list[str]] = defaultdict(list)
    for layer in by_id.values():
        if layer.level in (DYNAMO, AOT):
            for node in layer.record.nodes:
                for name in node.inputs if node.is_call else ():
                    readers[layer.id, name].append(node.name)
    for row in files.VIOLATIONS.records(artifacts) or []:
        if row.severity == "waived" or row.graph not in by_id:
            continue
        record = by_id[row.graph].record.by_name.get(row.node)
        if record is None:
            continue
        for name in [record.name] if record.is_call else readers[row.graph, record.name]:
            found.findings[row.graph, name].append(Finding(row.rule, row.effect, row.message))


def _add_errors(found: Marks, by_id: dict[str, Layer], artifacts: Artifacts) -> None:
    for row in files.NODES.read(artifacts) or []:
        place = _compared(by_id, str(row["graph"]), [str(row["node"]), *str(row["operations"] or "").split()[::-1]])
        if place is None:
            continue
        error = Error(str(row["state"]), _number(row["ratio"]))
        before = found.errors.get(place)
        if before is None or (error.ratio or 0.0) > (before.ratio or 0.0):
            found.errors[place] = error
    stopped = files.NOT_COMPILED.read(artifacts) or NotCompiled(graph="")
    for name in stopped.nodes:
        place = _compared(by_id, stopped.graph, [name])
        if place is not None:
            found.errors[place] = Error("not compiled", None)
    diagnosis = files.DIAGNOSIS.read(artifacts)
    culprits = [] if diagnosis is None or diagnosis.localized is None else diagnosis.localized.culprits
    for item in culprits:
        for name in item.place.operations:
            place = _compared(by_id, str(item.place.graph), [name])
            if place is not None:
                known = found.errors.get(place)
                ratio = _number(item.ratio)
                if ratio is None and known is not None:
                    ratio = known.ratio
                found.errors[place] = Error("wrong", ratio, culprit=True)


def _compared(by_id: dict[str, Layer], graph: str, names: Sequence[str]) -> Place | None:
    """Where a compared value is shown: the first of ``names`` that a layer of its graph knows."""
    for name in names:
        for id in (f"{graph} post-grad", graph):
            if id in by_id and name in by_id[id].record.by_name:
                return id, name
    return None


def _add_flops(found: Marks, shown: Sequence[Layer]) -> None:
    with_aot = {number_of(layer.graph) for layer in shown if layer.level == AOT}
    for layer in shown:
        if layer.level == AOT or (layer.level == DYNAMO and number_of(layer.graph) not in with_aot):
            known = {node.name: node.flops for node in layer.record.nodes if node.flops}
            found.flops |= {(layer.id, name): flops for name, flops in known.items()}


def _add_times(found: Marks, by_id: dict[str, Layer], artifacts: Artifacts) -> None:
    for row in files.PROFILE_TABLES["kernels"].read(artifacts) or []:
        graph, kernel, time = str(row["graph"]), str(row["kernel"]), _number(row["time_us"])
        handle = _number(row["handle"])
        launch = kernel if handle is None else f"{kernel}:{int(handle)}"
        operation = kernel.rpartition(" ")[2]  # of a backend without kernels a row is "target name"
        places = [(f"{graph} kernels", launch), (f"{graph} post-grad", operation), (graph, operation)]
        known = [(id, name) for id, name in places if id in by_id and name in by_id[id].record.by_name]
        if known and time is not None:
            found.times[known[0]] = time, _number(row["share"])


def _number(value: Any) -> float | None:
    """A figure of a table, where an infinite one is text; None where the cell has none."""
    number = math.nan if value is None or value == "" else float(value)
    return None if math.isnan(number) else number
