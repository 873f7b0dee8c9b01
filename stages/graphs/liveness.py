"""Memory that is alive at once while a graph runs, by liveness."""

from collections import defaultdict
from collections.abc import Callable

from inductor_debug.stages.graphs.records import GETITEM, GraphRecord, TensorRecord

Storage = tuple[str, int]
"""A node and which of its outputs: what owns a piece of memory. The node need not be of the graph: see ``shares``."""


def _owners(graph: GraphRecord) -> dict[str, list[Storage]]:
    """For every node the memory its outputs are in: its own, or for a view that of what it looks at."""
    owners: dict[str, list[Storage]] = {}
    for node in graph.nodes:
        read = next((owners[name] for name in node.inputs if owners.get(name)), [])
        if node.shares and node.outputs:
            owners[node.name] = owners.get(node.shares) or [(node.shares, 0)]
        elif not node.aliases or not read:
            owners[node.name] = [(node.name, index) for index in range(len(node.outputs))]
        elif node.target == GETITEM and len(read) > 1 and isinstance(node.args[1], int) and len(node.outputs) == 1:
            index = node.args[1]
            owners[node.name] = [read[index]] if -len(read) <= index < len(read) else read
        else:
            owners[node.name] = list(dict.fromkeys(read))
    return owners


def peak_live(
    graph: GraphRecord, nbytes: Callable[[TensorRecord], int | None] = lambda tensor: tensor.storage_nbytes
) -> tuple[int | None, str]:
    """Peak of the bytes alive at once when nodes run in order, and the node at which it is reached.

    Parameters, buffers, constants and inputs are the caller's and live throughout. Saved activations and tangents are
    freed after their last use, as AOTAutograd's boxed calls do, unless they are views of the caller's. Everything else
    lives from the node that makes it to the last that reads it or a view of it. The graph's outputs live to the end. A
    node's inputs and outputs are alive together. A storage counts once and whole, whichever part of it keeps it alive.
    Scratch memory inside kernels is not known here.

    Args:
        graph: the graph.
        nbytes: of the storage that a tensor is in; by default those that it has in this case.

    Returns:
        Bytes (None where those of a tensor are) and the node's name ("" for a graph without nodes).
    """
    owners = _owners(graph)
    last_read = {name: position for position, node in enumerate(graph.nodes) for name in (node.name, *node.inputs)}
    last_use: dict[Storage, int] = {}
    for name, position in last_read.items():
        for storage in owners[name]:
            last_use[storage] = max(position, last_use.get(storage, 0))
    names = {node.name for node in graph.nodes}
    size: dict[Storage, int] = {}
    kept: set[Storage] = set()
    live = 0
    for node in graph.nodes:
        held = set(owners[node.name])
        owned = node.op == "get_attr" or (node.op == "placeholder" and node.role not in ("saved", "tangent"))
        for index, tensor in enumerate(node.outputs):
            storage = owners[node.name][0] if node.shares else (node.name, index)
            if storage not in held:
                continue
            if owned or storage[0] not in names:
                kept.add(storage)
            if storage in size:
                continue
            size_here = nbytes(tensor)
            if size_here is None:
                return None, node.name
            size[storage] = size_here
            if node.op == "placeholder":
                live += size_here
    ends: dict[int, list[Storage]] = defaultdict(list)
    for storage in size.keys() - kept:
        ends[last_use[storage]].append(storage)
    peak, peak_name = live, graph.nodes[0].name if graph.nodes else ""
    for position, node in enumerate(graph.nodes):
        if node.op != "placeholder":
            live += sum(size[storage] for storage in owners[node.name] if storage[0] == node.name)
        if live > peak:
            peak, peak_name = live, node.name
        live -= sum(size[storage] for storage in ends[position])
    return peak, peak_name
