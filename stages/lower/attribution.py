"""Whom a launch's work is put down to: the operations that it computes, and those for which it copies tensors."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inductor_debug.stages.artifacts.lowering import LaunchRecord, MappedNode
from inductor_debug.stages.graphs.sources import SourceFinder

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph


@dataclass(frozen=True)
class Part:
    """One operation's part of a launch.

    Attributes:
        operation: before decomposition, e.g. ``aten.gelu.default``; "" where torch lost it.
        module: path of its module, or "".
        source: ``file:line`` of the model's own code where that is known, else of any; "" where none is.
        code: that line.
        weight: share of the launch that is put down to it; the parts' weights add up to 1.
    """

    operation: str
    module: str
    source: str
    code: str
    weight: float


def weights(sizes: Sequence[float | None]) -> list[float]:
    """In proportion to the sizes, equal where one of them is not known, or all are 0; they add up to 1."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not sum(known):
        return [1 / len(sizes) for _ in sizes]
    return [size / sum(known) for size in known]


class Parts:
    """The parts of the launches of a graph.

    A copy has the share of the launch's bytes that it writes, and reads from other launches. What the launch computes
    has the rest: each operation in proportion to the elements of the largest tensor that it reads or makes. What one
    operation takes inside a fused loop can't be observed.
    """

    def __init__(
        self,
        lowered: "LoweredGraph",
        nodes: Sequence[MappedNode],
        records: Sequence[LaunchRecord],
        finder: SourceFinder,
    ) -> None:
        """See the class.

        Args:
            lowered: the graph.
            nodes: from :func:`stages.lower.provenance.map_nodes`.
            finder: tells the model's own lines from libraries'.
            records: of the graph's launches, see :func:`stages.lower.kernel_records.describe_kernels`.
        """
        self._told = {node.node: node for node in nodes}
        self._views = {node.name for node in lowered.nodes if node.view}
        self._elements = {node.name: node.elements for node in lowered.nodes}
        self._launches = {record.launch: record for record in records}
        self._origins = {node.name: finder.find(node.stack_trace, node.module) for node in lowered.pre_grad_nodes}

    def of(self, record: LaunchRecord) -> list[Part]:
        """The heaviest first."""
        nodes = [node for node in record.nodes if node in self._told and node not in self._views]
        computing = [] if record.prepares else nodes
        users: dict[str, list[str | None]] = {}
        for item in record.copies:
            users.setdefault(item.buffer, []).append(item.for_)
        rest, copied = _split(record)
        inside = weights([self._elements[node] for node in computing])
        shares = weights([*(None if rest is None else rest * weight for weight in inside), *copied.values()])
        found: list[Part] = []
        for node, share in zip(computing, shares, strict=False):
            found += self._computed(record, self._told[node], share)
        for name, share in zip(copied, shares[len(computing) :], strict=True):
            found += [self._copy(user, share / len(users[name])) for user in users[name]]
        return sorted(found or _of_lines(record), key=lambda part: -part.weight)

    def _computed(self, record: LaunchRecord, node: MappedNode, share: float) -> list[Part]:
        """A node on its line; where that is not the model's own, on those of the Dynamo nodes that it came from."""
        codes = {str(line): line.code for line in record.sources}
        own = _own_lines(record)
        source = node.source or ""
        origins = dict.fromkeys(str(self._origins[name]) for name in node.pre_grad if name in self._origins)
        lines = [source] if source in own else [line for line in origins if line in own] or [source]
        operation = node.original or node.target
        return [Part(operation, node.module, line, codes.get(line, ""), share / len(lines)) for line in lines]

    def _copy(self, user: str | None, share: float) -> Part:
        """What a copy is for; nothing where no launch with a line reads it."""
        if user is None:
            return Part("", "", "", "", share)
        record = self._launches[user]
        line = record.sources[0]
        nodes = (self._told[name] for name in record.nodes if name in self._told)
        node = next(nodes, MappedNode(record.name, record.name, source=None))
        return Part(node.original or node.target, node.module, str(line), line.code, share)


def _split(record: LaunchRecord) -> tuple[float | None, dict[str, float | None]]:
    """Bytes that a launch moves for what it computes, and for each buffer that it copies into; None if not known.

    A copy is given what it writes, and what it reads of another launch's: in equal parts where it is copied twice.
    """
    sources = {item.buffer: item.of for item in record.copies}
    if any(buffer.accessed_bytes is None for buffer in (*record.reads, *record.writes)):
        return None, dict.fromkeys(sources)
    read = {buffer.name: buffer.accessed_bytes or 0 for buffer in record.reads}
    written = {buffer.name: buffer.accessed_bytes or 0 for buffer in record.writes}
    times = Counter(sources.values())
    copied = {name: written[name] + read.get(source, 0) / times[source] for name, source in sources.items()}
    return sum(read.values()) + sum(written.values()) - sum(copied.values()), {**copied}


def _of_lines(record: LaunchRecord) -> list[Part]:
    """A launch that computes nothing, or of which no operation is known: by its lines alone."""
    codes = {str(line): line.code for line in record.sources}
    lines = _own_lines(record) or list(codes) or [""]
    return [Part("", "", line, codes.get(line, ""), 1 / len(lines)) for line in lines]


def _own_lines(record: LaunchRecord) -> list[str]:
    return [str(line) for line in record.sources if line.own]
