"""The graphs that a run stored, level under level: Dynamo's, AOTAutograd's, what was compiled of them, its kernels."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from inductor_debug.models.errors import DamagedError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowering import BufferRecord, LaunchRecord, MappedNode, Provenance
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.graph_pictures.flow import common, parts
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord, kind_of, number_of

DYNAMO, AOT, POST_GRAD, KERNELS = range(4)
"""Levels of a layer; what is of a higher number was made of what is of a lower one."""
KINDS = ("dynamo", "forward", "backward")
"""Captured graphs that are shown; the joint graph shows forward and backward again."""
_TITLES = {"dynamo": "Dynamo", "forward": "AOT forward", "backward": "AOT backward"}


@dataclass(frozen=True)
class Layer:
    """One graph of the page.

    Attributes:
        id: ``g0.forward``; of what was compiled of it ``g0.forward post-grad`` and ``g0.forward kernels``.
        title: for the reader.
        level: :data:`DYNAMO`, :data:`AOT`, :data:`POST_GRAD` or :data:`KERNELS`.
        graph: id of the captured or lowered graph.
        record: its operations. Of kernels each launch is one, called ``name:handle``.
        lines: node → the user's line, ``file:line``.
        up: node → the nodes of other layers that it came from, as (layer's id, name).
    """

    id: str
    title: str
    level: int
    graph: str
    record: GraphRecord
    lines: dict[str, str] = field(default_factory=dict)
    up: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


def layers(artifacts: Artifacts) -> tuple[list[Layer], list[str]]:
    """The layers by Dynamo graph and level, and the ids of graphs that can't be read."""
    found: list[Layer] = []
    damaged: list[str] = []
    for path in files.GRAPH.stored(artifacts):
        graph = path.removeprefix(files.GRAPH.folder).removesuffix(".json")
        if kind_of(graph) not in KINDS:
            continue
        try:
            record = files.GRAPH.read(artifacts, graph)
        except DamagedError:
            damaged.append(graph)
            continue
        assert record is not None, "its path is stored"
        found.append(_captured(record))
    kernels = {path.split("/")[1]: read for path, read in files.PROVENANCE.read_all(artifacts).items()}
    for path, mapped in files.POST_GRAD_NODES.read_all(artifacts).items():
        graph = path.split("/")[1]
        found.append(_post_grad(graph, mapped.nodes))
        if graph in kernels and kernels[graph].kernels:
            found.append(_kernels(graph, kernels[graph], mapped.nodes))
    return sorted(found, key=_order), damaged


def _order(layer: Layer) -> tuple[int, str, int, int]:
    number = number_of(layer.graph)
    return len(number), number, KINDS.index(kind_of(layer.graph)), layer.level


def _captured(record: GraphRecord) -> Layer:
    number = number_of(record.id)
    calls = [node for node in record.nodes if node.is_call]
    level = DYNAMO if record.kind == "dynamo" else AOT
    return Layer(
        record.id,
        f"{number} {_TITLES[record.kind]}",
        level,
        record.id,
        record,
        {node.name: str(node.source) for node in calls if node.source},
        {node.name: [(f"{number}.dynamo", name) for name in node.origins] for node in calls} if level == AOT else {},
    )


def _post_grad(graph: str, nodes: Iterable[MappedNode]) -> Layer:
    records, lines, up = [], {}, {}
    for node in nodes:
        records.append(
            NodeRecord(
                node.node, "call_function", node.target, inputs=node.inputs, outputs=node.outputs, module=node.module
            )
        )
        if node.source:
            lines[node.node] = node.source
        before = [(f"{number_of(graph)}.dynamo", name) for name in node.pre_grad]
        up[node.node] = [(item.graph, item.node) for item in node.captured] or before
    record = GraphRecord(graph, kind_of(graph), records)
    return Layer(f"{graph} post-grad", _compiled(graph, "post-grad"), POST_GRAD, graph, record, lines, up)


def _kernels(graph: str, provenance: Provenance, nodes: Iterable[MappedNode]) -> Layer:
    """The launches. A constant that a kernel reads and that was made for another operation links it to none."""
    known = {node.node: {(item.graph, item.node) for item in node.captured} for node in nodes}
    launches = {kernel.launch: kernel for kernel in provenance.kernels}
    records, lines, up = [], {}, {}
    wrote: dict[str, str] = {}
    for name, kernel in launches.items():
        read = [wrote[buffer.name] for buffer in kernel.reads if buffer.name in wrote]
        records.append(
            NodeRecord(
                name,
                "call_function",
                kernel.name,
                inputs=list(dict.fromkeys(source for source in read if source != name)),
                outputs=[_tensor(buffer) for buffer in kernel.writes],
                module=_module(kernel),
            )
        )
        wrote |= {buffer.name: name for buffer in kernel.writes}
        if kernel.main is not None:
            lines[name] = f"{kernel.main.file}:{kernel.main.line}"
        captured = [(item.graph, item.node) for item in kernel.captured]
        own = [node for node in kernel.nodes if not known.get(node) or not captured or known[node] & set(captured)]
        up[name] = [(f"{graph} post-grad", node) for node in own] or captured
    record = GraphRecord(graph, kind_of(graph), records)
    return Layer(f"{graph} kernels", _compiled(graph, "kernels"), KERNELS, graph, record, lines, up)


def _compiled(graph: str, what: str) -> str:
    return f"{number_of(graph)} {kind_of(graph)}, {what}"


def _tensor(buffer: BufferRecord) -> TensorRecord:
    return TensorRecord(buffer.shape, buffer.dtype, [], "")


def _module(kernel: LaunchRecord) -> str:
    """The innermost module that all that a launch computes is in."""
    return ".".join(common([parts(path) for path in kernel.modules])) if kernel.modules else ""
