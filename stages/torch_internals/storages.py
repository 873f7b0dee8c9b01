"""Whose memory a tensor of a graph is in: storages, aliases, and placeholders that share one.

Relies on ``StorageImpl``'s address (``_cdata``) and on symbolic shapes' internals.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.torch_internals.fx_values import hint_of, node_value, size_of, tensors_in


def with_storage(record: TensorRecord, tensor: torch.Tensor) -> TensorRecord:
    """``record`` with the bytes of the tensor's storage, where they are known and not the dense ones. Adds no guard."""
    storage = storage_of(tensor)
    if storage is None:
        return record
    stored, dense = storage.nbytes(), tensor.element_size()
    for size in tensor.shape:
        dense = dense * _expression(size)
    surplus = _expression(stored) - dense
    if surplus == 0 or (not isinstance(surplus, int) and surplus.expand() == 0):
        return record
    symbolic = isinstance(size_of(stored), str)
    return replace(record, storage_bytes=size_of(stored), storage_hint=hint_of(stored) if symbolic else None)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def storage_of(tensor: torch.Tensor) -> Any:
    """Of a strided tensor; None for those that ``vmap`` batches inside a Dynamo graph, which show none."""
    try:
        return tensor.untyped_storage() if tensor.layout == torch.strided and not tensor.is_nested else None
    except NotImplementedError:  # no storage that could be shared is seen, and none is claimed
        return None


def storages_of(value: Any) -> set[int]:
    """Identities of the storages that a (nested) value's tensors are in."""
    found = map(storage_of, tensors_in(value))
    return {storage._cdata for storage in found if storage is not None}


def is_alias(node: fx.Node, storages: dict[fx.Node, set[int]]) -> bool:
    """Whether all that a node makes is in the storages of what it reads."""
    mine = storages[node]
    return bool(mine) and mine <= set().union(*(storages[source] for source in node.all_input_nodes))


def with_shared(
    graph: GraphRecord, storages: dict[fx.Node, set[int]], inputs: dict[int, tuple[str, Any]]
) -> list[NodeRecord]:
    """The nodes, placeholders whose memory another has telling so.

    Args:
        graph: the records of the nodes of ``storages``.
        storages: node → identities of its storages, in the graph's order.
        inputs: see ``RecordContext.inputs``; filled by a joint or forward graph.
    """
    first = {identity: name for identity, (name, _) in inputs.items()} if graph.kind == "backward" else {}
    found = []
    for node, record in zip(storages, graph.nodes, strict=True):
        alone = node.op == "placeholder" and record.role != "tangent" and len(record.outputs) == 1
        if alone and len(storages[node]) == 1:
            (identity,) = storages[node]
            name = first.setdefault(identity, record.name)
            record = record if name == record.name else replace(record, shares=name)
            if graph.kind in ("joint", "forward"):
                inputs.setdefault(identity, (name, storage_of(next(tensors_in(node_value(node))))))
        found.append(record)
    return found
