"""The picture of the graph that TorchInductor compiled, with the kernel that each operation went into."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inductor_debug.stages.backends.lowering import ToldGraph
from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graphs.sources import SourceFinder

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph

WHAT = {
    "forward": "what TorchInductor compiled of the forward",
    "backward": "what TorchInductor compiled of the backward",
}
FILES = ("post_grad.py", "nodes.json", "provenance.json")


def draw_post_grad(
    lowered: "LoweredGraph", kernels: Mapping[str, Sequence[str]], finder: SourceFinder
) -> dict[str, str]:
    """``post_grad.svg``, folded by module; nothing where no graph was compiled. A subgraph is one operation.

    Args:
        kernels: post-grad node → kernels, each as ``name:handle``; tooltips name them.
    """
    record = lowered.record
    if record is None:
        return {}
    what = WHAT.get(record.kind, "")
    if isinstance(lowered, ToldGraph):
        what = f"the {record.kind} graph that {lowered.backend} compiled"
    lines = {node.name: finder.find(node.stack_trace, node.module) for node in lowered.nodes}
    drawn = replace(record, nodes=[replace(node, source=lines.get(node.name)) for node in record.nodes])
    notes = {node: f"→ {', '.join(names)}" for node, names in kernels.items()}
    return {"post_grad.svg": draw_graph(drawn, what=what, files=FILES, notes=notes)}
