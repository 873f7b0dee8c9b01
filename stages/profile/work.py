"""What a range covers: the operations, modules and source lines of a launch, its bytes and its FLOPs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inductor_debug.stages.artifacts.lowering import BufferRecord, CapturedNode, LaunchRecord
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.attribution import Part, Parts
from inductor_debug.stages.lower.kernel_records import describe_kernels
from inductor_debug.stages.lower.provenance import map_nodes
from inductor_debug.stages.lower.stage import kernels_of
from inductor_debug.stages.torch_internals.generated_ranges import range_name

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph

FLOATING = ("float64", "float32", "float16", "bfloat16")
"""Dtypes whose matrix products can be measured."""
PREPARES = "no operation of its own: it prepares what others read, or copies what they made"


@dataclass
class Work:
    """What one range covers.

    Attributes:
        graph, kernel, handle: of the launch; of a graph that torch executes, ``kernel`` is the operation and there is
            no handle.
        kind: cpp, triton, extern, …; ``operation`` where torch executes the graph.
        range: the range's name.
        parts: see :class:`Part`.
        bytes_read, bytes_written: None where a size is not known.
        flops: a multiply-add being two; None where no formula is known.
        dtype: of the operands, where there are FLOPs; "" otherwise.
        notes: what a reader must know of its row.
    """

    graph: str
    kernel: str
    handle: int | None
    kind: str
    range: str
    parts: list[Part] = field(default_factory=list)
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    dtype: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int | None:
        """Read and written."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def name(self) -> str:
        """As in ``provenance.json``: ``kernel:handle``."""
        return self.kernel if self.handle is None else f"{self.kernel}:{self.handle}"

    def distinct(self, attribute: str) -> list[str]:
        """Operations, modules or sources, each once, empty ones left out."""
        return list(dict.fromkeys(value for part in self.parts if (value := getattr(part, attribute))))


def lowered_work(lowered: "LoweredGraph", captured: Sequence[GraphRecord], finder: SourceFinder) -> list[Work]:
    """The launches of a graph that TorchInductor compiled, in order.

    A fused kernel's time is put down to the operations that it computes (post-grad nodes, views left out) and to those
    for which it copies tensors: see :class:`stages.lower.attribution.Parts`.

    Args:
        captured: as for :func:`stages.lower.provenance.map_nodes`.
    """
    nodes = map_nodes(lowered.nodes, captured, finder)
    records = describe_kernels(lowered, kernels_of(lowered)[0], nodes, finder)
    records = [record for record in records if record.handle is not None]
    flops, parts = _Flops(lowered, records, captured), Parts(lowered, nodes, records, finder)
    found = []
    for record in records:
        counted = flops.of(record)
        found.append(
            Work(
                graph=lowered.id,
                kernel=record.name,
                handle=record.handle,
                kind=record.kind,
                range=range_name(lowered.id, record.launch),
                parts=parts.of(record),
                bytes_read=_accessed(record.reads) if record.bytes_read is not None else None,
                bytes_written=_accessed(record.writes) if record.bytes_written is not None else None,
                flops=counted,
                dtype="" if counted is None else _dtype(record.reads),
                notes=[PREPARES] if record.prepares else [],
            )
        )
    return found


def _accessed(buffers: Iterable[BufferRecord]) -> int:
    return sum(buffer.accessed_bytes or 0 for buffer in buffers)


def _dtype(buffers: Iterable[BufferRecord]) -> str:
    """The floating dtype in which most of what a launch reads is."""
    sizes: Counter[str] = Counter()
    for buffer in buffers:
        if buffer.dtype in FLOATING:
            sizes[buffer.dtype] += buffer.bytes or 0
    return max(sizes, key=lambda dtype: sizes[dtype], default="")


class _Flops:
    """FLOPs by launch: of the operations that it alone computes.

    Post-grad nodes tell where a formula knows them. One that TorchInductor's passes made (a product with its
    activation) has none; the captured node that it came from then tells, where it came to this launch alone.
    """

    def __init__(
        self, lowered: "LoweredGraph", records: Sequence[LaunchRecord], captured: Sequence[GraphRecord]
    ) -> None:
        self._nodes = {node.name: node.flops for node in lowered.nodes}
        self._captured = {CapturedNode(graph.id, node.name): node.flops for graph in captured for node in graph.nodes}
        self._launches = Counter(name for record in records for name in record.nodes)
        self._owners = Counter(item for record in records for item in record.captured)

    def of(self, record: LaunchRecord) -> int | None:
        names = [name for name in record.nodes if self._launches[name] == 1]
        known = [flops for name in names if (flops := self._nodes.get(name)) is not None]
        if known:
            return sum(known)
        if len(record.captured) != 1 or self._owners[record.captured[0]] != 1:
            return None
        return self._captured.get(record.captured[0])
