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
        state: ``right``, ``wrong``, ``slope`` (within the floor, and always in one direction), ``not_checked``, or
            ``not_compared``: within a region, and told of for its share alone.
        ratio, bound: error over its own floor, and which bound that is.
        error_rms, floor_rms: of the value against float64.
        slope, slope_noise: ⟨error, exact⟩ / ⟨exact, exact⟩, and how large that is in right computations; None where the
            value is right by the least floor that a draw of these can have, which is then ``floor_rms``.
        message: why it was not checked.
        share: of the final error, what the value's own error makes to first order.
        decisions: what its being another mask or index than gold's makes.
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
    share: float | None = None
    decisions: float | None = None


@dataclass(frozen=True)
class Place:
    """An operation, or several that only together are wrong.

    Attributes:
        graph, node, target: of the operation; of several the last. ``placeholder`` is an input of the graph.
        operations: names of the nodes; one where a single operation is at fault.
        original, module, source, kernel: as of :class:`NodeRow`.
        sources: file:line of each of ``operations``.
    """

    graph: str
    node: str
    target: str
    operations: list[str]
    original: str = ""
    module: str = ""
    source: str = ""
    kernel: str = ""
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Neighbour:
    """An operation at fault, on what it received in another shape.

    Attributes:
        size, other: every dimension of ``size`` elements had ``other``; None where inputs were made contiguous.
        state: ``wrong``, ``right``, or why that is not known.
    """

    size: int | None
    other: int | None
    state: str


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
        shows: how it was seen: ``in the kernel that ran``, ``when it is compiled alone``, ….
        others: further values in which the same operation is wrong, as ``graph node``.
        remains: of the final error, what remains where the values that it makes wrong are right for what they received;
            None where that is not known.
        neighbours: how it does at other shapes; empty where it is not wrong by itself.
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
    remains: Number | None = None
    neighbours: list[Neighbour] = field(default_factory=list)


@dataclass(frozen=True)
class Share:
    """A value's share of the final error.

    Attributes:
        graph, node: whose value.
        target, module, source: of the node, as of :class:`NodeRow`.
        share: of its own error, and of its being another mask or index than gold's.
    """

    graph: str
    node: str
    target: str
    module: str
    source: str
    share: Number


@dataclass(frozen=True)
class MendedRun:
    """A run of the case in which some operations were computed in float64, and the others by the backend.

    Attributes:
        operations: those, as ``graph node``; inputs were given contiguous.
        verdict: of the comparison of that run; ``not established: `` and why where there was none.
        ratio: error over floor of what is worst in it.
    """

    operations: list[str]
    verdict: str
    ratio: Number | None


@dataclass(frozen=True)
class Localization:
    """Part of kerneldiff/diagnosis.json.

    Attributes:
        kind: ``operation``, ``region``, ``systematic``, ``accumulation``, ``graph`` (see ``altered``),
            ``probe_effect`` or ``none``.
        method: ``observed`` (buffers of the kernels that ran) or ``pieces`` (parts of the graph, compiled alone).
        message: for a person, a line each: what was found, how much was looked at, what the final error comes from.
        culprits: in the order of dataflow.
        wrong: how many of the values that were seen are wrong for what they received.
        operations, checked: how many the graphs have, and of how many something was checked.
        regions, largest: how many values were compared, and how many operations the largest of their regions has.
        unchecked: operator → how many of it were not checked, and why, in words.
        same_bits: whether this run gave the bits of the one without probes; None where that was not looked at.
        missing: what was not looked at, in words.
        seconds: wall time.
        closure: sum of the shares of the final error, 1 where they account for all of it; None where there are none.
        shares: the largest, largest first; where ``closure`` is off by more than a tenth, by how much of it the final
            error is smaller with that value alone right for what it received.
        few: the fewest values that, right for what they received, bring the verdict back, as ``graph node``; told of
            ``accumulation`` alone.
        altered: of kind ``graph``: output or gradient → how far float64 of the graphs that ran is from float64 of the
            model, over the size of that.
        unaccounted: what the shares leave out, in words.
        mended: after a comparison that failed, runs in which all culprits (or the ``few``) are mended, and of several
            culprits the first ones each alone.
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
    closure: Number | None = None
    shares: list[Share] = field(default_factory=list)
    few: list[str] = field(default_factory=list)
    altered: dict[str, Number] = field(default_factory=dict)
    unaccounted: list[str] = field(default_factory=list)
    mended: list[MendedRun] = field(default_factory=list)
