"""The kernels of one graph: what each computes, reads and writes, and the lines of the model that it came from."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inductor_debug.stages.artifacts.lowering import (
    BufferRecord,
    CapturedNode,
    CopyRecord,
    LaunchRecord,
    LineRecord,
    MainLine,
    MappedNode,
    PreGradNode,
    Provenance,
)
from inductor_debug.stages.graphs.known import known_total
from inductor_debug.stages.graphs.records import ITEM_BYTES, SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.attribution import Part, Parts
from inductor_debug.stages.torch_internals.generated_kernels import Kernel
from inductor_debug.stages.torch_internals.generated_launches import Launch, find_launches

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph
    from inductor_debug.stages.torch_internals.inductor_nodes import PostGradNode
    from inductor_debug.stages.torch_internals.inductor_scheduler import BufferInfo


def describe_kernels(
    lowered: "LoweredGraph", kernels: Sequence[Kernel], nodes: Sequence[MappedNode], finder: SourceFinder
) -> list[LaunchRecord]:
    """The ``kernels`` of ``provenance.json``: one record a launch, then kernels that no launch was recorded for.

    Args:
        lowered: the graph.
        kernels: what the generated module defines.
        nodes: from :func:`stages.lower.provenance.map_nodes`.
        finder: tells the model's own lines from libraries'.
    """
    defined = {kernel.name: kernel for kernel in kernels}
    launches = find_launches(lowered, set(defined))
    known = {record.node: record for record in nodes}
    traced = {node.name: node for node in lowered.nodes}
    pre_grad = {node.name: node for node in lowered.pre_grad_nodes}
    constants = _constants(traced)
    records = []
    for launch in launches:
        mine = [name for name in launch.nodes if not _borrowed(name, launch.nodes, constants)]
        members = [known[name] for name in mine if name in known]
        computing = [name for name in mine if not traced[name].view] or mine
        traces = [(traced[name].stack_trace, traced[name].module, traced[name].elements or 0) for name in computing]
        if not launch.nodes and launch.kernel not in defined:
            traces = [(trace, "", 0) for trace in lowered.kernel_stacks.get(launch.key, [])]
        origins = list(dict.fromkeys(item for member in members for item in member.pre_grad))
        lines: Counter[SourceLine | None] = Counter()
        for trace, module, elements in traces:
            lines[finder.find(trace, module)] += elements
        if not any(line is not None and finder.is_own(line) for line in lines):
            found = (pre_grad[item] for item in origins if item in pre_grad)
            lines.update(dict.fromkeys((finder.find(node.stack_trace, node.module) for node in found), 0))
        sources = _sources(lines, finder)
        record = replace(
            _record(lowered, launch, defined.get(launch.kernel)),
            pre_grad=origins,
            modules=sorted({known[name].module for name in computing if name in known} - {""}),
            captured=_captured(members),
            sources=sources,
            own=any(line.own for line in sources),
        )
        records.append(record if sources else _lent_of_calls(record, lowered, finder))
    records = _lent_lines(records, [launch.copied for launch in launches], lowered)
    parts, by_key = Parts(lowered, nodes, records, finder), {record.launch: record for record in records}
    launched = {record.name for record in records}
    return [replace(record, main=_main(record, parts.of(record), by_key)) for record in records] + [
        _record(lowered, Launch(name, "", [], generated=True), kernel)
        for name, kernel in defined.items()
        if name not in launched
    ]


def _constants(traced: "Mapping[str, PostGradNode]") -> dict[str, dict[str, bool]]:
    """Nodes that read nothing → the nodes that read them → whether they were made for that one.

    Equal constants of a graph are one node, which has the line of the first operation that wanted it.
    """
    found: dict[str, dict[str, bool]] = {name: {} for name, node in traced.items() if not node.inputs}
    for name, node in traced.items():
        for constant in found.keys() & set(node.inputs):
            made = traced[constant]
            found[constant][name] = (node.pre_grad, node.stack_trace) == (made.pre_grad, made.stack_trace)
    return found


def _borrowed(name: str, nodes: Collection[str], constants: Mapping[str, Mapping[str, bool]]) -> bool:
    """Whether one of a launch's nodes is a constant that the others read, but that was made for one elsewhere.

    A kernel that reads the 0 of another layer's activation does not come from that layer.
    """
    readers = constants.get(name, {})
    here = [made_for for reader, made_for in readers.items() if reader in nodes]
    return bool(here) and not any(here) and any(readers.values())


def _lent_lines(
    given: Sequence[LaunchRecord], copied: Sequence[Mapping[str, str]], lowered: "LoweredGraph"
) -> list[LaunchRecord]:
    """Tell for whom a kernel copies, and give those that came from no operation (a weight's copy) these lines.

    A buffer that holds a call's result is for that call. Another is for the launches that read it, or, as an output of
    the graph, for the one that made what it is a copy of.
    """
    records = list(given)
    readers: dict[str, list[int]] = defaultdict(list)
    makers: dict[str, list[int]] = defaultdict(list)
    calls = {name: place for place, record in enumerate(records) if record.kind == "extern" for name in record.nodes}
    for place, record in enumerate(records):
        for buffer in record.reads:
            readers[buffer.name].append(place)
        for buffer in record.writes:
            makers[buffer.name].append(place)
    origins = {name: info.origin for name, info in lowered.schedule.buffers.items()}
    for place in reversed(range(len(records))):  # the last first: a kernel's readers have their lines by then
        record, held = records[place], copied[place]
        of = held if record.own else {buffer.name: held.get(buffer.name, "") for buffer in record.writes}
        copies = []
        for name, source in of.items():
            call = calls.get(origins.get(name, ""))
            users = [call] if call is not None and name in held else readers[name] or makers[source]
            keys: list[str | None] = [records[user].launch for user in users if records[user].own and user != place]
            copies += [CopyRecord(name, source, key) for key in keys or [None]]
        record = replace(record, copies=copies)
        records[place] = record if record.own else _borrowing(record, {other.launch: other for other in records})
    return records


def _borrowing(record: LaunchRecord, launches: Mapping[str, LaunchRecord]) -> LaunchRecord:
    """A kernel that came from no operation, with the lines of those that it prepares tensors for."""
    prepares = list(dict.fromkeys(item.for_ for item in record.copies if item.for_ is not None))
    if not prepares:
        return replace(record, copies=[])
    lines = {(line.file, line.line): line for key in prepares for line in launches[key].sources if line.own}
    sizes = {buffer.name: buffer.bytes or 0 for buffer in record.writes}
    users = Counter(item.buffer for item in record.copies)
    prepared: Counter[tuple[str, int]] = Counter()
    for item in record.copies:
        if item.for_ is not None:
            line = launches[item.for_].sources[0]
            prepared[line.file, line.line] += sizes[item.buffer] // users[item.buffer]
    lent = sorted(lines.values(), key=lambda line: -prepared[line.file, line.line])
    return replace(record, prepares=prepares, sources=[*lent, *record.sources], own=bool(lines))


def _main(record: LaunchRecord, parts: Sequence[Part], launches: Mapping[str, LaunchRecord]) -> MainLine | None:
    """The line of which most of a launch came, of the model's own if there is one, with its share."""
    users = [launches[item.for_].sources[0] for item in record.copies if item.for_ is not None]
    lines = {str(line): line for line in [*record.sources, *users]}
    shares: dict[str, float] = defaultdict(float)
    for part in parts:
        shares[part.source] += part.weight
    best = max(lines, key=lambda place: (lines[place].own, shares[place]), default=None)
    return None if best is None else MainLine(**vars(lines[best]), share=shares[best])


def _lent_of_calls(record: LaunchRecord, lowered: "LoweredGraph", finder: SourceFinder) -> LaunchRecord:
    """With the lines of the calls that overwrite what a kernel makes: torch gives a call in place no handle."""
    made = {buffer.name for buffer in record.writes}
    found = set()
    for user in lowered.schedule.nodes:
        if user.kind == "extern" and not made.isdisjoint(user.mutates):
            called = [node for node in lowered.nodes if node.name in user.origins][-1:]  # the others led to it
            found |= {finder.find(node.stack_trace, node.module) for node in called}
    lent = _sources(dict.fromkeys(found, 0), finder)
    return replace(record, sources=lent, own=any(line.own for line in lent))


def _captured(members: Sequence[MappedNode]) -> list[CapturedNode]:
    """The captured nodes behind post-grad nodes; of one that stands for several only where no other tells."""
    told = [member.captured for member in members if len(member.captured) == 1]
    found = told or [member.captured for member in members]
    return sorted({item for items in found for item in items}, key=lambda item: (item.graph, item.node))


def _record(lowered: "LoweredGraph", launch: Launch, kernel: Kernel | None) -> LaunchRecord:
    """A launch without lines: what it reads and writes is unknown where its statement, or what the scheduler had for
    it, was not found."""
    buffers = lowered.schedule.buffers
    reads = [name for name in launch.reads if name in buffers] if launch.scheduled else []
    writes = [name for name in launch.writes if name in buffers] if launch.scheduled else []
    return LaunchRecord(
        name=launch.kernel,
        handle=int(launch.handle) if launch.handle else None,
        kind="extern" if kernel is None else kernel.kind,
        file=None if kernel is None else f"kernels/{kernel.file}",
        nodes=launch.nodes,
        sources=[],
        reads=[_buffer(buffers[name], launch) for name in reads],
        writes=[_buffer(buffers[name], launch) for name in writes],
        bytes_read=known_total(buffers[name].bytes for name in reads) if launch.scheduled else None,
        bytes_written=known_total(buffers[name].bytes for name in writes) if launch.scheduled else None,
    )


def _sources(lines: Mapping[SourceLine | None, int], finder: SourceFinder) -> list[LineRecord]:
    """Each once, the model's own first, of these the one that handles the most elements."""
    unique = {(line.file, line.line): line for line in lines if line is not None}
    elements: Counter[tuple[str, int]] = Counter()
    for line, count in lines.items():
        if line is not None:
            elements[line.file, line.line] += count
    ordered = sorted(unique.values(), key=lambda line: (not finder.is_own(line), -elements[line.file, line.line],
                                                        line.file, line.line))  # fmt: skip
    return [LineRecord(line.file, line.line, line.code, finder.is_own(line)) for line in ordered]


def _buffer(info: "BufferInfo", launch: Launch) -> BufferRecord:
    return BufferRecord(info.name, info.role, list(info.shape), info.dtype, info.bytes, _accessed_bytes(info, launch))


def _accessed_bytes(info: "BufferInfo", launch: Launch) -> int | None:
    users = [
        node
        for node in launch.scheduled
        if info.name in {launch.renamed.get(name, name) for name in (*node.reads, *node.writes, *node.mutates)}
    ]
    item = ITEM_BYTES.get(info.dtype)
    if info.bytes is None or item is None or not all(info.name in node.accessed for node in users):
        return info.bytes
    return min(info.bytes, item * sum(node.accessed[info.name] for node in users))


def share(hits: int, total: int) -> float | None:
    """``hits / total``, or None where there is nothing to map."""
    return hits / total if total else None


def provenance_of(kernels: list[LaunchRecord], lowered: "LoweredGraph", finder: SourceFinder) -> Provenance:
    """The kernels, and the same mapping from the other end: what became of each node and line."""
    post_grad: Mapping[str, list[str]] = defaultdict(list)
    modules: Mapping[str, list[str]] = defaultdict(list)
    lines: Mapping[str, list[str]] = defaultdict(list)
    by_origin: Mapping[str, list[str]] = defaultdict(list)
    for kernel in kernels:
        for node in kernel.nodes:
            post_grad[node].append(kernel.launch)
        for node in kernel.pre_grad:
            by_origin[node].append(kernel.launch)
        for path in kernel.modules:
            modules[path].append(kernel.launch)
        for source in kernel.sources:
            if source.own:
                lines[str(source)].append(kernel.launch)
    made: Mapping[str, list[str]] = defaultdict(list)
    for item in lowered.nodes:
        for origin in item.pre_grad:
            made[origin].append(item.name)
    pre_grad = []
    for before in lowered.pre_grad_nodes:
        line = finder.find(before.stack_trace, before.module)
        source_line, launches = None if line is None else str(line), list(dict.fromkeys(by_origin[before.name]))
        pre_grad.append(
            PreGradNode(before.name, before.target, before.module, source_line, made[before.name], launches)
        )
    return Provenance(
        graph=lowered.id,
        kernels=kernels,
        pre_grad_nodes=pre_grad,
        post_grad_nodes=dict(post_grad),
        modules=dict(sorted(modules.items())),
        lines=dict(sorted(lines.items())),
    )
