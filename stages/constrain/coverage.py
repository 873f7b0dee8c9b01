"""What a chip must support to run a set of models: operations, dtypes and shapes. Free of torch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stages.constrain.engine import check
from stages.constrain.profile import Profile
from stages.constrain.subjects import CALLS
from stages.graphs import GETITEM, GraphRecord, NodeRecord

if TYPE_CHECKING:
    import pandas

COLUMNS = [
    "operation", "dtype", "models", "calls", "calls_share", "flops_share", "least_rank", "largest_rank",
    "largest_size", "largest_bytes", "example_shape", "refused", "names",
]  # fmt: skip
REFUSING = ("reject", "fallback")


@dataclass
class _Use:
    models: set[str] = field(default_factory=set)
    nodes: list[NodeRecord] = field(default_factory=list)
    refused: int = 0


def coverage(models: Mapping[str, Sequence[GraphRecord]], profile: Profile) -> "pandas.DataFrame":
    """One row for each operation and dtype that any model uses, the most models and then calls first.

    Args:
        models: a model's name → its graphs; AOTAutograd's forward and backward graphs count, Dynamo's where there are
            none.
        profile: what may refuse them; one without rules refuses nothing.

    Columns: ``models`` and ``names`` that use it, ``calls`` and their share, share of the known FLOPs; ranks and sizes
    of what it makes, the bytes of the largest tensor and that one's shape; ``refused`` calls, for which the profile has
    a finding whose effect is reject or fallback.
    """
    import pandas

    uses: dict[tuple[str, str], _Use] = defaultdict(_Use)
    for model, graphs in models.items():
        counting = [graph for graph in graphs if graph.kind in ("forward", "backward")] or list(graphs)
        found = check(counting, profile)
        refused = {(row.graph, row.node) for row in found if row.effect in REFUSING and row.severity != "waived"}
        for graph in counting:
            for node in graph.nodes:
                if node.op in CALLS and node.target != GETITEM:
                    use = uses[node.target, node.outputs[0].dtype if node.outputs else ""]
                    use.models.add(model)
                    use.nodes.append(node)
                    use.refused += (graph.id, node.name) in refused
    calls = sum(len(use.nodes) for use in uses.values())
    flops = sum(node.flops or 0 for use in uses.values() for node in use.nodes)
    rows = [_row(operation, dtype, use, calls, flops) for (operation, dtype), use in uses.items()]
    rows.sort(key=lambda row: (-row["models"], -row["calls"], row["operation"], row["dtype"]))
    return pandas.DataFrame(rows, columns=COLUMNS)


def _row(operation: str, dtype: str, use: _Use, calls: int, flops: int) -> dict[str, Any]:
    tensors = [tensor for node in use.nodes for tensor in node.outputs]
    ranks = [len(tensor.shape) for tensor in tensors]
    sizes = [size for tensor in tensors for size in tensor.concrete_shape or ()]
    largest = max(tensors, key=lambda tensor: tensor.nbytes or 0, default=None)
    own = sum(node.flops or 0 for node in use.nodes)
    return {
        "operation": operation,
        "dtype": dtype,
        "models": len(use.models),
        "calls": len(use.nodes),
        "calls_share": len(use.nodes) / calls,
        "flops_share": own / flops if flops else None,
        "least_rank": min(ranks, default=None),
        "largest_rank": max(ranks, default=None),
        "largest_size": max(sizes, default=None),
        "largest_bytes": largest.nbytes if largest else None,
        "example_shape": "x".join(map(str, largest.shape)) if largest else "",
        "refused": use.refused,
        "names": " ".join(sorted(use.models)),
    }
