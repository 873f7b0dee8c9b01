"""What tracing stored with a node: fake values, their sizes and tensors. Relies on symbolic shapes' internals."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from stages.graphs import Size, TensorRecord


def node_value(node: fx.Node) -> Any:
    """The fake value that tracing stored: ``val`` in aten graphs, ``example_value`` in Dynamo's."""
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


def size_of(size: Any) -> Size:
    """An integer, or the expression of a symbolic size."""
    if isinstance(size, torch.SymInt):
        expression = size.node.expr
        return int(expression) if expression.is_number else str(expression)
    return int(size)


def hint_of(size: Any) -> int | None:
    """The concrete value that a size had while tracing; None for an unbacked one. Adds no guard."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.expr.is_number:
        return int(size.node.expr)
    return int(size.node.hint) if size.node.has_hint() else None


def tensor_record(tensor: torch.Tensor) -> TensorRecord:
    """A tensor's metadata; strides are empty where the layout has none (sparse tensors)."""
    shape = [size_of(size) for size in tensor.shape]
    strided = tensor.layout == torch.strided
    hints = None
    if any(isinstance(size, str) for size in shape):
        found = [hint_of(size) for size in tensor.shape]
        known = [hint for hint in found if hint is not None]
        hints = known if len(known) == len(found) else None
    return TensorRecord(
        shape=shape,
        dtype=str(tensor.dtype).removeprefix("torch."),
        stride=[size_of(stride) for stride in tensor.stride()] if strided else [],
        device=str(tensor.device),
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
