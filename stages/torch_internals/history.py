"""Where the nodes of AOTAutograd's graphs came from.

Relies on the node metadata ``seq_nr``, ``stack_trace`` and ``from_node``, a chain of ``NodeSource`` with ``name`` and
``from_node``, and on what torch.fx.traceback's ``GRADIENT_ACC_SPECIAL_STACK`` says.
"""

from collections.abc import Iterator
from typing import Any

from torch import fx

GRADIENTS_SUM = "Gradient addition node due to multiple use of tensor"
"""In the stack of a node that sums the gradients of a tensor's several readers."""


def roots(sources: list[Any]) -> Iterator[str]:
    """The names at the ends of a node's history: where nothing was lost, those of the Dynamo graph."""
    for source in sources:
        if source.from_node:
            yield from roots(source.from_node)
        else:
            yield source.name


def origins_of(node: fx.Node, by_sequence: dict[int, list[str]]) -> list[str]:
    """The calls of the Dynamo graph that an AOT graph's node came from; of a backward node those of its forward node.

    The sum of a tensor's gradients has the sequence number of any other node, and is nobody's.

    Args:
        by_sequence: autograd's sequence numbers → calls; a forward node's are added.
    """
    sequence = node.meta.get("seq_nr", -1)
    found = list(dict.fromkeys(roots(node.meta.get("from_node") or [])))
    if found:
        by_sequence.setdefault(sequence, found)
        return found
    nobodys = sequence < 0 or GRADIENTS_SUM in (node.meta.get("stack_trace") or "")
    return [] if nobodys else by_sequence.get(sequence, [])
