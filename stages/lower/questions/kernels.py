"""Kernels of a stored run: each launch with its files, its nodes and the lines of the model that it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.models.errors import UserError, closest_first
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowering import BufferRecord, LaunchRecord, LineRecord, LoweredFacts
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.lower.questions.graphs import NEAREST, not_found, wanted_graphs
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Table, Wanted
from inductor_debug.stages.torch_internals.generated_launches import mentioned_launches

GRAPH_COLUMNS = ("graph", "kernels", "launches", "extern_launches", "kernels_mapped_share", "seconds")
COLUMNS = (
    "graph",
    "kernel",
    "kind",
    "source",
    "lines",
    "code",
    "file",
    "called_at",
    "bytes_read",
    "bytes_written",
    "nodes",
)
BUFFER_COLUMNS = ("kernel", "access", "buffer", "role", "shape", "dtype", "bytes")


def kernels(run: StoredRun, wanted: Wanted) -> Analysis:
    """One row a launch; those of a line, of a kernel, of a node, where asked for. ``lines`` then has all their lines.

    A row's ``source`` is the line whose operations handle the most elements, beside how many ``lines`` it has.
    ``file`` is the kernel's own (a library's function has none), ``called_at`` the line of the generated code that
    launches it; both relative to the run.
    """
    graphs = wanted_graphs(run, wanted)
    launches = [launch for graph in graphs for launch in launches_of(run, graph)]
    if not launches:
        raise UserError(
            "holds no kernels: its graphs hold no operation that needs a kernel",
            key=str(run.folder),
            hint=f"inductor-debug analyze {run.folder}",
        )
    chosen = [launch for launch in launches if matches(launch, wanted)]
    if not chosen:
        raise _nothing_found(launches, wanted)
    rows = [_row(launch, wanted) for launch in chosen]
    if not (wanted.lines or wanted.kernels or wanted.nodes):
        facts = run.json(files.LOWERING).graphs if run.has(files.LOWERING) else {}
        about = [vars(facts.get(graph, LoweredFacts())) | {"graph": graph} for graph in graphs]
        return Analysis([], [Table("graphs", GRAPH_COLUMNS, about), Table("kernels", COLUMNS, rows)])
    lines = {str(line): line.code for launch in chosen for line in launch.sources if line.own}
    buffers = [_buffer(launch, access, buffer) for launch in chosen
               for access, held in (("reads", launch.reads), ("writes", launch.writes)) for buffer in held]  # fmt: skip
    told = [f"{counted(len(chosen), 'launch', 'launches')} of {len(launches)}; {counted(len(lines), 'line')} in them"]
    return Analysis(told, [
        Table("kernels", COLUMNS, rows),
        Table("lines", ("source", "code"), [{"source": source, "code": code} for source, code in lines.items()]),
        Table("buffers", BUFFER_COLUMNS, buffers),
    ])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StoredLaunch(LaunchRecord):
    """A launch of a run; ``file`` is relative to the run, and so is ``called_at``: the line of the generated code."""

    graph: str
    called_at: str | None


def launches_of(run: StoredRun, graph: str) -> list[StoredLaunch]:
    """Those of ``provenance.json``."""
    code = next((name for name in files.OUTPUT_CODE.stored(run.artifacts) if name.split("/")[1] == graph), "")
    called = mentioned_launches(run.text(code)) if code else {}
    found = []
    for record in run.json(files.PROVENANCE, graph).kernels:
        at = f"{code}:{called[record.launch]}" if record.launch in called else None
        file = record.file and files.LOWERED.at(graph, record.file)
        found.append(StoredLaunch(**vars(record) | {"graph": graph, "called_at": at, "file": file}))
    return found


def matches(launch: LaunchRecord, wanted: Wanted) -> bool:
    """Whether a launch has every line, kernel and node that is asked for."""
    return (
        all(any(is_line(source, text) for source in launch.sources) for text in wanted.lines)
        and all(is_kernel(launch, name) for name in wanted.kernels)
        and all(name in launch.nodes for name in wanted.nodes)
    )


def is_kernel(launch: LaunchRecord, name: str) -> bool:
    """Whether a name, a part of it, or the end of ``NAME:HANDLE`` means this launch."""
    return name in launch.name or (":" in name and launch.launch.endswith(name))


def is_line(source: LineRecord, text: str) -> bool:
    """Whether ``FILE:LINE``, ``FILE`` or a part of the code means this line."""
    file, _, line = text.rpartition(":")
    if file and line.isdecimal():
        return int(line) == source.line and _ends_with(source.file, file)
    return _ends_with(source.file, text) or text in source.code


def _ends_with(path: str, tail: str) -> bool:
    parts, wanted = Path(path).parts, Path(tail).parts
    return bool(wanted) and parts[-len(wanted) :] == wanted


def _row(launch: StoredLaunch, wanted: Wanted) -> Row:
    """The line that is asked for stands for those of the launch; else its first."""
    sources = [line for line in launch.sources if any(is_line(line, text) for text in wanted.lines)]
    first = next(iter(sources or launch.sources), None)
    told = {
        "kernel": launch.launch,
        "source": first and str(first),
        "lines": len(launch.sources),
        "code": first and first.code,
        "nodes": " ".join(launch.nodes),
    }
    return {key: told[key] if key in told else getattr(launch, key) for key in COLUMNS}


def _buffer(launch: LaunchRecord, access: str, buffer: BufferRecord) -> Row:
    told = {"kernel": launch.launch, "access": access, "buffer": buffer.name, "shape": "×".join(map(str, buffer.shape))}
    return told | {"role": buffer.role, "dtype": buffer.dtype, "bytes": buffer.bytes}


def _nothing_found(launches: Sequence[LaunchRecord], wanted: Wanted) -> UserError:
    """No launch has all that is asked for: the nearest of what there is."""
    if wanted.lines and not any(matches(launch, Wanted(lines=wanted.lines[:1])) for launch in launches):
        code = {str(line): line.code for launch in launches for line in launch.sources if line.own}
        near = closest_first(wanted.lines[0], code)[:NEAREST]
        shown = ", ".join(f"{Path(item).name} ({code[item]})" for item in near)
        return UserError(
            f"got {wanted.lines[0]!r}, from which no kernel came",
            key="--line",
            valid=f"FILE:LINE, FILE or a part of a line's code, such as {shown or 'none'}",
            hint=f"--line {Path(near[0]).name if near else 'FILE'}",
        )
    names = dict.fromkeys(launch.name for launch in launches)
    nodes = dict.fromkeys(node for launch in launches for node in launch.nodes)
    for option, given, known in (("--kernel", wanted.kernels, names), ("--node", wanted.nodes, nodes)):
        for name in given:
            if not any(is_kernel(launch, name) or name in launch.nodes for launch in launches):
                return not_found(option, name, known)
    asked = [*wanted.lines, *wanted.kernels, *wanted.nodes]
    return UserError(
        f"no one kernel has {' and '.join(map(repr, asked))}; each is in other kernels",
        key="--line, --kernel, --node",
        hint="one of them alone, or --type fusion with both",
    )
