"""Which integers an operation accepts as indices: half-open ranges by operand, from the shapes."""

import math
from collections.abc import Callable
from typing import Any

from inductor_debug.stages.graphs.operation_names import Operation
from inductor_debug.stages.graphs.records import NodeRecord

Shapes = Callable[[str], list[int] | None]
"""Name of a node → its tensor's shape in this case."""

Range = tuple[int, int]
ANY_INTEGER: Range = (0, 2)
"""Where nothing is known of an integer operand: 0 and 1, which nearly every operation accepts."""

ALONG = ("gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_fill")
"""``(self, dim, index, …)``, in place or not."""

PIVOTS = {"lu_solve": (2, "LU_pivots", 1), "linalg_lu_solve": (1, "pivots", 0), "lu_unpack": (1, "LU_pivots", 0)}
"""Operation → position and keyword of the pivots, position of the matrix: pivots count from 1."""


def index_ranges(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    """Name of an operand of ``node`` → the range that its integers must come from; other operands are free."""
    operation = Operation.of(node)
    for name in sorted(operation.short):
        for names, rule in _RULES:
            if name in names:
                return {key: span for key, span in rule(node, shapes).items() if key}
    return {}


def _name(value: Any) -> str:
    return str(value["node"]) if isinstance(value, dict) and set(value) == {"node"} else ""


def _size(value: Any, dimension: int, shapes: Shapes) -> int:
    shape = shapes(_name(value)) if _name(value) else None
    return shape[dimension] if shape and -len(shape) <= dimension < len(shape) else ANY_INTEGER[1]


def _below(size: int, low: int = 0) -> Range:
    return (low, max(size + low, low + 1))


def _embedding(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    first = node.target.startswith("torch.nn.functional.")  # takes the indices first, torch.embedding and aten second
    indices = node.argument(0 if first else 1, "input" if first else "indices")
    table = node.argument(1 if first else 0, "weight")
    ranges = {_name(indices): _below(_size(table, 0, shapes))}
    return ranges | {_name(node.argument(2, "offsets")): (0, 1)} if "bag" in node.target else ranges


def _embedding_backward(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    rows = node.argument(2, "num_weights")
    return {_name(node.argument(1, "indices")): _below(rows if isinstance(rows, int) else 1)}


def _along(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    dimension = node.argument(1, "dim")
    if not isinstance(dimension, int):
        return {}
    return {_name(node.argument(2, "index")): _below(_size(node.argument(0, "input"), dimension, shapes))}


def _take_along(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    dimension = node.argument(2, "dim")
    table = node.argument(0, "input")
    whole = math.prod(shapes(_name(table)) or [1])
    size = _size(table, dimension, shapes) if isinstance(dimension, int) else whole
    return {_name(node.argument(1, "indices")): _below(size)}


def _index(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    """``self[indices]``: each index by the dimension that it stands at; slices and None count as Python counts them."""
    table = node.argument(0)
    indices = node.argument(1, "indices")
    python = not node.target.startswith("aten.")
    ranges: dict[str, Range] = {}
    dimension = 0
    for index in indices if isinstance(indices, list) else [indices]:
        if index is None and python:  # a new axis
            continue
        if index == "...":
            rank = len(shapes(_name(table)) or [])
            after = indices[indices.index("...") + 1 :]
            dimension = rank - sum(item is not None for item in after)
            continue
        if _name(index):
            size = _size(table, dimension, shapes)
            known = ranges.get(_name(index))
            ranges[_name(index)] = _below(size if known is None else min(size, known[1]))
        dimension += 1
    return ranges


def _classes(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    start = 1 if "backward" in node.target else 0
    scores = node.argument(start, "input")
    rank = len(shapes(_name(scores)) or []) if _name(scores) else 0
    return {_name(node.argument(start + 1, "target")): _below(_size(scores, 1 if rank > 1 else 0, shapes))}


def _one_hot(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    classes = node.argument(1, "num_classes")
    return {_name(node.argument(0, "tensor")): _below(classes if isinstance(classes, int) and classes > 0 else 2)}


def _pivots(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    own = next(name for name in PIVOTS if name in Operation.of(node).short)
    position, keyword, matrix = PIVOTS[own]
    return {_name(node.argument(position, keyword)): _below(_size(node.argument(matrix), -1, shapes), low=1)}


def _pool_backward(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    shape = shapes(_name(node.argument(1, "self"))) or [1]
    spatial = 3 if "3d" in node.target else 2
    return {_name(node.argument(7, "indices")): _below(math.prod(shape[-spatial:]))}


def _selecting_backward(node: NodeRecord, shapes: Shapes) -> dict[str, Range]:
    dimension, sizes = node.argument(1, "dim"), node.argument(3, "sizes")
    size = sizes[dimension] if isinstance(dimension, int) and isinstance(sizes, list) else 1
    return {_name(node.argument(2, "indices")): _below(size if isinstance(size, int) else 1)}


_RULES: tuple[tuple[tuple[str, ...], Callable[[NodeRecord, Shapes], dict[str, Range]]], ...] = (
    (("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), _embedding),
    (("embedding_dense_backward", "embedding_backward"), _embedding_backward),
    ((*ALONG, *(f"{name}_" for name in ALONG)), _along),
    (("take_along_dim", "take"), _take_along),
    (("index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put", "getitem", "setitem"), _index),
    (("nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss2d_forward", "cross_entropy", "cross_entropy_loss",
      "nll_loss_backward", "nll_loss2d_backward"), _classes),
    (("one_hot",), _one_hot),
    (tuple(PIVOTS), _pivots),
    (("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), _pool_backward),
    (("value_selecting_reduction_backward",), _selecting_backward),
)  # fmt: skip
