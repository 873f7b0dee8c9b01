"""The kernels of one graph: what each computes, reads and writes, and the lines of the model that it came from."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inductor_debug.stages.graphs.records import ITEM_BYTES, SourceLine, known_total
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.attribution import Part, Parts
from inductor_debug.stages.torch_internals.generated_kernels import Kernel
from inductor_debug.stages.torch_internals.generated_launches import Launch, find_launches

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph
    from inductor_debug.stages.torch_internals.inductor_nodes import PostGradNode
    from inductor_debug.stages.torch_internals.inductor_scheduler import BufferInfo

Record = dict[str, Any]


def describe_kernels(
    lowered: "LoweredGraph", kernels: Sequence[Kernel], nodes: Sequence[Record], finder: SourceFinder
) -> list[Record]:
    """The ``kernels`` of ``provenance.json``: one record a launch, then kernels that no launch was recorded for.

    Args:
        lowered: the graph.
        kernels: what the generated module defines.
        nodes: from :func:`stages.lower.provenance.map_nodes`.
        finder: tells the model's own lines from libraries'.

    Returns:
        dicts with ``name``, ``handle`` (also in output_code.py as a comment), ``kind`` (``extern``: a library's or
        ATen's function), ``file`` (None for an extern kernel), ``nodes`` (post-grad), ``pre_grad``, ``modules`` (of
        what it computes: views, which compute nothing, left out), ``captured`` ([{graph, node}]), ``sources`` ([{file,
        line, code, own}], the model's own first, of these the one whose operations handle the most elements), ``own``
        (whether a line of the model's own is among them), ``prepares`` (of a kernel that came from no operation: the
        ``name:handle`` of those that lend it their lines), ``copies`` (the buffers that it only copies beside what it
        computes, as into another layout, and all that one writes that came from no operation: each with the buffer
        ``of`` which it is a copy, or "", and the ``name:handle`` ``for`` which, None where no launch with a line reads
        it), ``main`` (the line that most of it came from, as of ``sources`` or of what it prepares, with its ``share``
        as of :class:`stages.lower.attribution.Parts`), ``reads`` and ``writes`` ([{name, role, shape, dtype, bytes,
        accessed_bytes}]) and their ``bytes_read`` and ``bytes_written``,
        None where a size is not known. ``accessed_bytes`` are those of the ``bytes`` that the kernel's loops come to at
        most: few rows of a table in which it looks something up. Of a library's function they are all.
    """
    defined = {kernel.name: kernel for kernel in kernels}
    launches = find_launches(lowered, set(defined))
    known = {str(record["node"]): record for record in nodes}
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
        origins = list(dict.fromkeys(item for member in members for item in member["pre_grad"]))
        lines: Counter[SourceLine | None] = Counter()
        for trace, module, elements in traces:
            lines[finder.find(trace, module)] += elements
        if not any(line is not None and finder.is_own(line) for line in lines):
            found = (pre_grad[item] for item in origins if item in pre_grad)
            lines.update(dict.fromkeys((finder.find(node.stack_trace, node.module) for node in found), 0))
        record = _record(launch.kernel, launch.handle, defined.get(launch.kernel), lines, finder)
        record |= {
            "nodes": launch.nodes,
            "pre_grad": origins,
            "modules": sorted({known[name]["module"] for name in computing if name in known} - {""}),
            "captured": _captured(members),
        }
        records.append(record | _traffic(lowered, launch))
    for record in records:
        if not record["sources"]:
            _lend_of_calls(record, lowered, finder)
    _lend_lines(records, [launch.copied for launch in launches], lowered)
    parts, by_key = Parts(lowered, nodes, records, finder), {_key(record): record for record in records}
    for record in records:
        record["main"] = _main(record, parts.of(record), by_key)
    launched = {record["name"] for record in records}
    return records + [
        _record(name, "", kernel, {}, finder) | _traffic(lowered, None)
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


def _lend_lines(records: Sequence[Record], copied: Sequence[Mapping[str, str]], lowered: "LoweredGraph") -> None:
    """Tell for whom a kernel copies, and give those that came from no operation (a weight's copy) these lines.

    A buffer that holds a call's result is for that call. Another is for the launches that read it, or, as an output of
    the graph, for the one that made what it is a copy of.
    """
    readers: dict[str, list[Record]] = defaultdict(list)
    makers: dict[str, list[Record]] = defaultdict(list)
    calls = {name: record for record in records if record["kind"] == "extern" for name in record["nodes"]}
    for record in records:
        for buffer in record["reads"]:
            readers[buffer["name"]].append(record)
        for buffer in record["writes"]:
            makers[buffer["name"]].append(record)
    origins = {name: info.origin for name, info in lowered.schedule.buffers.items()}
    for record, held in zip(reversed(records), reversed(copied), strict=True):
        of = held if record["own"] else {buffer["name"]: held.get(buffer["name"], "") for buffer in record["writes"]}
        for name, source in of.items():
            call = calls.get(origins.get(name, ""))
            users = [call] if call is not None and name in held else readers[name] or makers[source]
            keys: list[str | None] = [_key(user) for user in users if user["own"] and user is not record]
            record["copies"] += [{"buffer": name, "of": source, "for": key} for key in keys or [None]]
        if not record["own"]:
            _borrow(record, {_key(other): other for other in records})


def _borrow(record: Record, launches: Mapping[str, Record]) -> None:
    """Give a kernel that came from no operation the lines of those that it prepares tensors for."""
    record["prepares"] = list(dict.fromkeys(item["for"] for item in record["copies"] if item["for"] is not None))
    if not record["prepares"]:
        record["copies"] = []
    lines = {_place(line): line for key in record["prepares"] for line in launches[key]["sources"] if line["own"]}
    sizes = {buffer["name"]: buffer["bytes"] or 0 for buffer in record["writes"]}
    users = Counter(item["buffer"] for item in record["copies"])
    prepared: Counter[tuple[str, int]] = Counter()
    for item in record["copies"]:
        if item["for"] is not None:
            prepared[_place(launches[item["for"]]["sources"][0])] += sizes[item["buffer"]] // users[item["buffer"]]
    record["sources"] = [*sorted(lines.values(), key=lambda line: -prepared[_place(line)]), *record["sources"]]
    record["own"] = bool(lines)


def _main(record: Record, parts: Sequence[Part], launches: Mapping[str, Record]) -> Record | None:
    """The line of which most of a launch came, of the model's own if there is one, with its share."""
    users = [launches[item["for"]]["sources"][0] for item in record["copies"] if item["for"] is not None]
    lines = {f"{line['file']}:{line['line']}": line for line in [*record["sources"], *users]}
    shares: dict[str, float] = defaultdict(float)
    for part in parts:
        shares[part.source] += part.weight
    best = max(lines, key=lambda place: (lines[place]["own"], shares[place]), default=None)
    return None if best is None else lines[best] | {"share": shares[best]}


def _place(line: Record) -> tuple[str, int]:
    return line["file"], line["line"]


def _lend_of_calls(record: Record, lowered: "LoweredGraph", finder: SourceFinder) -> None:
    """The lines of the calls that overwrite what a kernel makes: torch gives a call in place no handle."""
    made = {buffer["name"] for buffer in record["writes"]}
    found = set()
    for user in lowered.schedule.nodes:
        if user.kind == "extern" and not made.isdisjoint(user.mutates):
            called = [node for node in lowered.nodes if node.name in user.origins][-1:]  # the others led to it
            found |= {finder.find(node.stack_trace, node.module) for node in called}
    lent = _sources(dict.fromkeys(found, 0), finder)
    record |= {"sources": lent, "own": any(line["own"] for line in lent)}


def _key(record: Record) -> str:
    return f"{record['name']}:{record['handle']}"


def _captured(members: Sequence[Record]) -> list[Record]:
    """The captured nodes behind post-grad nodes; of one that stands for several only where no other tells."""
    told = [member["captured"] for member in members if len(member["captured"]) == 1]
    found = told or [member["captured"] for member in members]
    pairs = {(item["graph"], item["node"]) for items in found for item in items}
    return [{"graph": graph, "node": node} for graph, node in sorted(pairs)]


def _record(
    name: str, handle: str, kernel: Kernel | None, lines: Mapping[SourceLine | None, int], finder: SourceFinder
) -> Record:
    sources = _sources(lines, finder)
    return {
        "name": name,
        "handle": int(handle) if handle else None,
        "kind": "extern" if kernel is None else kernel.kind,
        "file": None if kernel is None else f"kernels/{kernel.file}",
        "nodes": [],
        "pre_grad": [],
        "modules": [],
        "captured": [],
        "sources": sources,
        "own": any(source["own"] for source in sources),
        "prepares": [],
        "copies": [],
        "main": None,
    }


def _sources(lines: Mapping[SourceLine | None, int], finder: SourceFinder) -> list[Record]:
    """Each once, the model's own first, of these the one that handles the most elements."""
    unique = {(line.file, line.line): line for line in lines if line is not None}
    elements: Counter[tuple[str, int]] = Counter()
    for line, count in lines.items():
        if line is not None:
            elements[line.file, line.line] += count
    ordered = sorted(unique.values(), key=lambda line: (not finder.is_own(line), -elements[line.file, line.line],
                                                        line.file, line.line))  # fmt: skip
    return [{"file": line.file, "line": line.line, "code": line.code, "own": finder.is_own(line)} for line in ordered]


def _traffic(lowered: "LoweredGraph", launch: Launch | None) -> Record:
    """What a launch reads and writes; unknown where its statement, or what the scheduler had for it, was not found."""
    if launch is None or not launch.scheduled:
        return {"reads": [], "writes": [], "bytes_read": None, "bytes_written": None}
    buffers = lowered.schedule.buffers
    reads = [name for name in launch.reads if name in buffers]
    writes = [name for name in launch.writes if name in buffers]
    return {
        "reads": [_buffer(buffers[name], launch) for name in reads],
        "writes": [_buffer(buffers[name], launch) for name in writes],
        "bytes_read": known_total(buffers[name].bytes for name in reads),
        "bytes_written": known_total(buffers[name].bytes for name in writes),
    }


def _buffer(info: "BufferInfo", launch: Launch) -> Record:
    return {
        "name": info.name,
        "role": info.role,
        "shape": info.shape,
        "dtype": info.dtype,
        "bytes": info.bytes,
        "accessed_bytes": _accessed_bytes(info, launch),
    }


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


def backwards(kernels: Sequence[Record], lowered: "LoweredGraph", finder: SourceFinder) -> Record:
    """The same mapping from the other end: what became of each node and line.

    Returns:
        ``pre_grad_nodes`` ([{node, target, module, source, post_grad, kernels}]) of the Dynamo graph,
        ``post_grad_nodes`` (name → kernels), ``modules`` (path → the kernels that compute something of it) and
        ``lines`` (the model's own, ``file:line`` → kernels). A kernel is written ``name:handle``.
    """
    post_grad: Mapping[str, list[str]] = defaultdict(list)
    modules: Mapping[str, list[str]] = defaultdict(list)
    lines: Mapping[str, list[str]] = defaultdict(list)
    by_origin: Mapping[str, list[str]] = defaultdict(list)
    for kernel in kernels:
        launch = f"{kernel['name']}:{kernel['handle']}" if kernel["handle"] is not None else kernel["name"]
        for node in kernel["nodes"]:
            post_grad[node].append(launch)
        for node in kernel["pre_grad"]:
            by_origin[node].append(launch)
        for path in kernel["modules"]:
            modules[path].append(launch)
        for source in kernel["sources"]:
            if source["own"]:
                lines[f"{source['file']}:{source['line']}"].append(launch)
    made: Mapping[str, list[str]] = defaultdict(list)
    for node in lowered.nodes:
        for origin in node.pre_grad:
            made[origin].append(node.name)
    pre_grad = []
    for item in lowered.pre_grad_nodes:
        line = finder.find(item.stack_trace, item.module)
        pre_grad.append(
            {
                "node": item.name,
                "target": item.target,
                "module": item.module,
                "source": None if line is None else str(line),
                "post_grad": made[item.name],
                "kernels": list(dict.fromkeys(by_origin[item.name])),
            }
        )
    return {
        "pre_grad_nodes": pre_grad,
        "post_grad_nodes": dict(post_grad),
        "modules": dict(sorted(modules.items())),
        "lines": dict(sorted(lines.items())),
    }
