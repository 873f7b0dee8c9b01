"""CUDA graphs that TorchInductor recorded, where ``triton.cudagraphs`` asked for them.

Relies on ``torch._inductor.cudagraph_trees.get_manager``, whose manager has ``roots`` (the first graphs, by function),
and on the nodes' ``children`` (those that follow one, likewise).
"""

import sys
from typing import Any


def recorded_graphs(device: int) -> int:
    """CUDA graphs of this process on a device, by its index; 0 where torch skipped them, as it does in silence."""
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return 0
    manager = trees.get_manager(device, create_if_none_exists=False)
    return 0 if manager is None else _count(manager.roots)


def _count(nodes: Any) -> int:
    return sum(1 + _count(node.children) for several in nodes.values() for node in several)
