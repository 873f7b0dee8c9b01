"""What localization stores: a row an operation, and who is at fault."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import Number


@dataclass(frozen=True)
class NodeRow:
    """kerneldiff/nodes.csv: one value that was seen, against float64 of what its operations received.

    Attributes:
        graph, call: graph id, and the how many-th run of that graph.
        node: whose value it is; of the graph that was compiled.
        target: its operator.
        operations: nodes that computed it since the values that other kernels left, by spaces, ``node`` last.
        original: the aten operator before decomposition, where torch tells it.
        module, source: of ``node``: path of the module, and file:line.
        kernel: ``kernel:handle`` that made it; "" where that is not known.
        elements, dtype: of the value.
        state: ``right``, ``wrong``, ``slope`` (within the floor, and always in one direction) or ``not_checked``.
        ratio, bound: error over its own floor, and which bound that is.
        error_rms, floor_rms: of the value against float64.
        slope, slope_noise: ⟨error, exact⟩ / ⟨exact, exact⟩, and how large that is in right computations.
        message: why it was not checked.
    """

    graph: str
    call: int
    node: str
    target: str
    operations: str
    original: str
    module: str
    source: str
    kernel: str
    elements: int | None
    dtype: str
    state: str
    ratio: float | None = None
    bound: str = ""
    error_rms: float | None = None
    floor_rms: float | None = None
    slope: float | None = None
    slope_noise: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Place:
    """An operation, or several that only together are wrong.

    Attributes:
        graph, node, target: of the operation; of several the last.
        operations: names of the nodes; one where a single operation is at fault.
        original, module, source, kernel: as of :class:`NodeRow`.
    """

    graph: str
    node: str
    target: str
    operations: list[str]
    original: str = ""
    module: str = ""
    source: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class Culprit:
    """What is wrong by itself, given what it received.

    Attributes:
        place: where.
        kind: ``operation``, ``region`` (wrong only when fused) or ``slope``.
        ratio: error over its own floor.
        slope: as of :class:`NodeRow`.
        call: how many-th run of the graph.
        index, got, expected: the worst element, what it holds, and what a right computation holds there.
        shows: how it was seen: ``in the kernel that ran``, ``alone``, ….
        others: further values in which the same operation is wrong, as ``graph node``.
    """

    place: Place
    kind: str
    ratio: Number | None
    slope: Number | None
    call: int
    index: list[int] | None = None
    got: Any = None
    expected: Any = None
    shows: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Localization:
    """Part of kerneldiff/diagnosis.json.

    Attributes:
        kind: ``operation``, ``region``, ``systematic``, ``accumulation``, ``probe_effect`` or ``none``.
        method: ``observed`` (buffers of the kernels that ran) or ``pieces`` (parts of the graph, compiled alone).
        message: a paragraph for a person.
        culprits: in the order of dataflow.
        wrong: how many of the values that were seen are wrong for what they received.
        operations, checked: how many the graphs have, and of how many something was checked.
        regions, largest: how many values were compared, and how many operations the largest of their regions has.
        unchecked: operator → how many of it were not checked, and why, in words.
        same_bits: whether this run gave the bits of the one without probes; None where that was not looked at.
        missing: what was not looked at, in words.
        seconds: wall time.
    """

    kind: str
    method: str
    message: str
    culprits: list[Culprit] = field(default_factory=list)
    wrong: int = 0
    operations: int = 0
    checked: int = 0
    regions: int = 0
    largest: int = 0
    unchecked: dict[str, str] = field(default_factory=dict)
    same_bits: bool | None = None
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0
