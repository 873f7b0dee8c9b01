"""CUDA graphs that TorchInductor recorded, where ``triton.cudagraphs`` asked for them.

Relies on ``torch._inductor.cudagraph_trees.get_manager``, whose manager has ``roots`` (the first graphs, by function),
and on the nodes' ``children`` (those that follow one, likewise). And on its ``cuda_graphs_thread_pool``, the pool of
memory that they share, whose parts ``get_cudagraph_segments`` gives.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

TREES = "torch._inductor.cudagraph_trees"
K = TypeVar("K")


def recorded_graphs(device: int) -> int:
    """CUDA graphs of this process on a device, by its index; 0 where torch skipped them, as it does in silence."""
    manager = _manager(device)
    return 0 if manager is None else _count(manager.roots)


def in_graph_memory(tensors: Mapping[K, "torch.Tensor"]) -> set[K]:
    """Keys of the tensors that lie in the memory of TorchInductor's CUDA graphs, which the next replay writes again.

    Torch refuses to read such a tensor only where the graph was recorded or warmed up in between: what one replay left
    holds what the next writes, without a word.

    Raises:
        RuntimeError: where torch refuses one.
    """
    on_device = {key: tensor for key, tensor in tensors.items() if tensor.is_cuda}
    memory = {device: _memory(device) for device in {tensor.get_device() for tensor in on_device.values()}}
    return {
        key
        for key, tensor in on_device.items()
        if memory[tensor.get_device()] and any(tensor.data_ptr() in part for part in memory[tensor.get_device()])
    }


def _memory(device: int) -> list[range]:
    """Addresses of the memory that a device's graphs share."""
    manager = _manager(device)
    pool = [] if manager is None else sys.modules[TREES].get_cudagraph_segments(manager.cuda_graphs_thread_pool)
    return [range(segment["address"], segment["address"] + segment["total_size"]) for segment in pool]


def _manager(device: int) -> Any:
    trees: Any = sys.modules.get(TREES)
    return None if trees is None else trees.get_manager(device, create_if_none_exists=False)


def _count(nodes: Any) -> int:
    return sum(1 + _count(node.children) for several in nodes.values() for node in several)
