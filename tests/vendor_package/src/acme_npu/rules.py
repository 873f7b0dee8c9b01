"""Rules of the chip that no profile can state: callables for ``rule: custom``. Imports no torch."""

from collections.abc import Iterator
from typing import Any

from inductor_debug import GraphRecord


def few_operands(graph: GraphRecord, most: int) -> Iterator[dict[str, Any]]:
    """An operation reads at most ``most`` tensors."""
    for node in graph.nodes:
        if node.op.startswith("call_") and len(node.inputs) > most:
            yield {"node": node.name, "message": f"reads {len(node.inputs)} tensors", "limit": most}
