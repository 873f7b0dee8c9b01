"""What tracing stored with a node: fake values, their sizes and tensors. Relies on symbolic shapes' internals."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.graphs.records import JAGGED, NESTED, STRIDED, Size, TensorRecord


def node_value(node: fx.Node) -> Any:
    """The fake value that tracing stored: ``val`` in aten graphs, ``example_value`` in Dynamo's."""
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


def size_of(size: Any) -> Size:
    """An integer, or the expression of a symbolic size; ``"j0"`` for that of a jagged dimension outside of tracing."""
    if isinstance(size, torch.SymInt):
        expression = expression_of(size)
        return int(expression) if getattr(expression, "is_number", False) else str(expression)
    return int(size)


def expression_of(value: Any) -> Any:
    """SymPy's expression of a symbolic number; text where it has none, as a nested integer outside of tracing."""
    return getattr(value.node, "expr", None) or str(value)


def hint_of(size: Any) -> int | None:
    """The concrete value that a size had while tracing. Adds no guard.

    None for an unbacked one, and for a jagged dimension: its size is one a row.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    if isinstance(size_of(size), int):
        return int(expression_of(size))
    hint = size.node.hint if hasattr(size.node, "expr") and size.node.has_hint() else None
    return None if hint is None or isinstance(hint, torch.SymInt) else int(hint)


def shape_of(tensor: torch.Tensor) -> list[Size]:
    """The sizes; of a strided nested tensor, which tells none, names for them."""
    if _is_nested_strided(tensor):
        return [f"nested{dim}" for dim in range(tensor.dim())]
    return [size_of(size) for size in tensor.shape]


def _is_nested_strided(tensor: torch.Tensor) -> bool:
    return tensor.is_nested and tensor.layout == torch.strided


def tensor_record(tensor: torch.Tensor) -> TensorRecord:
    """A tensor's metadata; strides are empty where the layout has none (sparse and strided nested tensors)."""
    layout = NESTED if _is_nested_strided(tensor) else str(tensor.layout).removeprefix("torch.")
    shape = shape_of(tensor)
    strided = layout == STRIDED
    hints = None
    if any(isinstance(size, str) for size in shape):
        found = [None] if layout == NESTED else [hint_of(size) for size in tensor.shape]
        known = [hint for hint in found if hint is not None]
        hints = known if len(known) == len(found) else None
    return TensorRecord(
        shape=shape,
        dtype=str(tensor.dtype).removeprefix("torch."),
        stride=[size_of(stride) for stride in tensor.stride()] if strided or layout == JAGGED else [],
        device=str(tensor.device),
        layout=layout,
        storage_offset=size_of(tensor.storage_offset()) if strided else 0,
        hints=hints,
    )


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a (nested) value, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
