"""A custom rule for chips that limit the windows of convolutions and pooling. Free of torch."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stages.constrain.contractions import operand
from stages.constrain.names import Operation
from stages.graphs import GraphRecord, NodeRecord

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")
INT8_LARGEST = 127


def convolution(
    graph: GraphRecord, *, max_stride: int, max_height: int, max_area: int, max_weight_sum: int
) -> Iterator[dict[str, Any]]:
    """Forward convolutions whose stride, dilated kernel or weights exceed a limit.

    Args:
        max_stride: of any dimension.
        max_height: of the dilated kernel's first dimension, dilation · (size - 1) + 1.
        max_area: of the product of the dilated kernel's dimensions.
        max_weight_sum: of the absolute weights of one output channel. A graph has no values: what even weights of 127
            (the largest of int8) keep is kept, anything else is undecided.
    """
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        weight = _weight(nodes, node)
        if weight is None:
            continue
        kernel = weight[2:]
        stride, dilation = _each(node, 3, "stride", kernel), _each(node, 5, "dilation", kernel)
        dilated = [by * (size - 1) + 1 for size, by in zip(kernel, dilation, strict=True)]
        if max(stride, default=1) > max_stride:
            yield _finding(node, "stride", max(stride), max_stride, "use a smaller stride, then a pooling")
        if dilated and dilated[0] > max_height:
            yield _finding(node, "dilated kernel height", dilated[0], max_height, "split the kernel")
        if math.prod(dilated) > max_area:
            yield _finding(node, "dilated kernel area", math.prod(dilated), max_area, "split the kernel")
        largest = math.prod(weight[1:]) * INT8_LARGEST
        if largest > max_weight_sum:
            found = _finding(
                node, "sum of absolute weights, if all were 127,", largest, max_weight_sum, "check the weights"
            )
            yield found | {"undecided": True}


def average_pooling(graph: GraphRecord, *, max_kernel: int, max_stride: int) -> Iterator[dict[str, Any]]:
    """Average poolings (not adaptive ones) whose window or stride exceeds a limit."""
    for node in graph.nodes:
        if not node.op.startswith("call_") or not Operation.of(node).short & {"avg_pool1d", "avg_pool2d", "avg_pool3d"}:
            continue
        kernel = _numbers(node.argument(1, "kernel_size"))
        stride = _numbers(node.argument(2, "stride")) or kernel
        for what, sizes, limit in (("kernel", kernel, max_kernel), ("stride", stride, max_stride)):
            if max(sizes, default=1) > limit:
                yield _finding(node, what, max(sizes), limit, "use several smaller poolings")


def _weight(nodes: Mapping[str, NodeRecord], node: NodeRecord) -> list[int] | None:
    """Shape of a convolution's weight, (output channels, input channels of a group, *kernel)."""
    if not node.op.startswith("call_") or not Operation.of(node).short & set(CONVOLUTIONS):
        return None
    producer = operand(nodes, node, 1, "weight")
    return producer.outputs[0].concrete_shape if producer is not None and producer.outputs else None


def _each(node: NodeRecord, position: int, keyword: str, kernel: list[int]) -> list[int]:
    found = _numbers(node.argument(position, keyword)) or [1]
    return found * len(kernel) if len(found) == 1 else found


def _numbers(value: Any) -> list[int]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]


def _finding(node: NodeRecord, what: str, measured: int, limit: int, suggestion: str) -> dict[str, Any]:
    message = f"{what} is {measured:,}, more than {limit:,}"
    return {"node": node.name, "message": message, "measured": measured, "limit": limit, "suggestion": suggestion}
