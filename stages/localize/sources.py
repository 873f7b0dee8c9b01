"""Where a node of a compiled graph came from: operator, module and the model's line."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.localization import Place
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.torch_internals.inductor import LoweredGraph


@dataclass(frozen=True)
class Origin:
    """Of one node: the aten operator before decomposition, the module's path, and file:line; "" where not known."""

    original: str = ""
    module: str = ""
    source: str = ""


def origins_of_lowered(lowered: LoweredGraph, case: Case) -> dict[str, Origin]:
    """Origins of the nodes that TorchInductor compiled, by name."""
    finder = SourceFinder(case.module)
    found = {}
    for node in lowered.nodes:
        line = finder.find(node.stack_trace, node.module)
        found[node.name] = Origin(node.original, node.module, str(line or ""))
    return found


def origins_of_record(record: GraphRecord) -> dict[str, Origin]:
    """Origins of the nodes of an AOT graph, by name."""
    return {node.name: Origin(node.target, node.module or "", str(node.source or "")) for node in record.nodes}


def place_of(graph: str, nodes: list[fx.Node], origins: Mapping[str, Origin], kernel: str = "") -> Place:
    """The place of some nodes.

    Args:
        graph: its id.
        nodes: in the graph's order; told of is the last.
        origins: of the graph's nodes, by name.
        kernel: ``kernel:handle`` that made the last one's value, or the one that was seen after it, or "".
    """
    last, each = nodes[-1], [origins.get(node.name, Origin()) for node in nodes]
    names, sources, origin = [node.name for node in nodes], [item.source for item in each], each[-1]
    target = str(last.target if last.op == "call_function" else last.op)
    return Place(graph, last.name, target, names, origin.original, origin.module, origin.source, kernel, sources)
