"""Custom rules for chips that limit the windows of convolutions and pooling, or advise a batch."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from inductor_debug.stages.graphs.operation_names import Operation
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.graphs.symbolic_sizes import Symbols, is_multiple, shape_in_case
from inductor_debug.stages.rules.contractions import operand
from inductor_debug.stages.rules.violation import CustomFinding

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")
INT8_LARGEST = 127


def convolution(
    graph: GraphRecord, *, max_stride: int, max_height: int, max_area: int, max_weight_sum: int
) -> Iterator[CustomFinding]:
    """Forward convolutions, transposed ones included, whose stride, dilated kernel or weights exceed a limit.

    Args:
        max_stride: of any dimension.
        max_height: of the dilated kernel's first dimension, dilation · (size - 1) + 1.
        max_area: of the product of the dilated kernel's dimensions.
        max_weight_sum: of the absolute weights of one output channel. A graph has no values: what even weights of 127
            (the largest of int8) keep is kept, anything else is undecided.
    """
    for node in graph.nodes:
        if not node.is_call or not Operation.of(node).short & set(CONVOLUTIONS):
            continue
        producer = operand(graph, node, 1, "weight")
        weight = producer.outputs[0].concrete_shape if producer is not None and producer.outputs else None
        kernel = (weight or [])[2:]
        turned = node.target.rsplit(".", 1)[-1].startswith("conv_transpose")  # takes its arguments in another order
        stride = _each(node.argument(3, "stride"), kernel)
        dilation = _each(node.argument(7 if turned else 5, "dilation"), kernel)
        if weight is None or stride is None or dilation is None:
            yield _unread(node, "the weight's shape, the stride or the dilation")
            continue
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
            yield replace(found, undecided=True)


def average_pooling(graph: GraphRecord, *, max_kernel: int, max_stride: int) -> Iterator[CustomFinding]:
    """Average poolings (not adaptive ones) whose window or stride exceeds a limit."""
    for node in graph.nodes:
        if not node.is_call or not Operation.of(node).short & {"avg_pool1d", "avg_pool2d", "avg_pool3d"}:
            continue
        kernel = _numbers(node.argument(1, "kernel_size"))
        given = node.argument(2, "stride")
        stride = kernel if given in (None, []) else _numbers(given)
        if not kernel or not stride:
            yield _unread(node, "the window or the stride")
            continue
        for what, sizes, limit in (("kernel", kernel, max_kernel), ("stride", stride, max_stride)):
            if max(sizes) > limit:
                yield _finding(node, what, max(sizes), limit, "use several smaller poolings")


def batch(graph: GraphRecord, *, multiple: int) -> Iterator[CustomFinding]:
    """Convolutions whose batch is not a multiple; a batch of 1, which alignment leaves out, is none.

    The cost is what padding the batch of the input adds. One without a batch dimension is left out.

    Args:
        multiple: of the batch, e.g. 8.
    """
    for node in graph.nodes:
        if not node.is_call or not Operation.of(node).short & set(CONVOLUTIONS):
            continue
        read, weight = operand(graph, node, 0, "input"), operand(graph, node, 1, "weight")
        if read is None or weight is None or not read.outputs or not weight.outputs:
            yield _unread(node, "the batch")
            continue
        tensor = read.outputs[0]
        if len(tensor.shape) == len(weight.outputs[0].shape):
            yield from _batch(node, tensor, graph.symbols, multiple)


def _batch(node: NodeRecord, tensor: TensorRecord, symbols: Symbols, multiple: int) -> Iterator[CustomFinding]:
    size, here = tensor.shape[0], shape_in_case(tensor, symbols)[0]
    fits = is_multiple(size, multiple, symbols, here)
    if fits:
        return
    found = partial(CustomFinding, node=node.name, operand="args[0]", measured=size, limit=multiple)
    if fits is None:
        known = "is not known" if here is None else f"fits in this case ({here}), but need not"
        yield found(
            message=f"whether the batch {size} is a multiple of {multiple} {known}",
            suggestion="compile for fixed batches",
            undecided=True,
        )
        return
    grown = None if not here else -here % multiple / here
    yield found(
        message=f"the batch {size} is not a multiple of {multiple}",
        suggestion=f"use a batch that is a multiple of {multiple}",
        cost_bytes=None if grown is None or tensor.nbytes is None else round(tensor.nbytes * grown),
        cost_share=grown,
    )


def _each(value: Any, kernel: list[int]) -> list[int] | None:
    """One number for each dimension of ``kernel``, 1 by default; None where they can't be read."""
    found = [1] if value in (None, []) else _numbers(value)
    if found is None or len(found) not in (1, len(kernel)):
        return None
    return found * len(kernel) if len(found) == 1 else found


def _numbers(value: Any) -> list[int] | None:
    """Whole numbers, one or a list of them; None where one is something else (symbolic, or made by a node)."""
    items = value if isinstance(value, list) else [value]
    return items if all(isinstance(item, int) and not isinstance(item, bool) for item in items) else None


def _unread(node: NodeRecord, what: str) -> CustomFinding:
    return CustomFinding(
        node=node.name,
        message=f"{what} can't be read from {node.target}: not established",
        measured=node.target,
        suggestion="check this operation by hand",
        undecided=True,
    )


def _finding(node: NodeRecord, what: str, measured: int, limit: int, suggestion: str) -> CustomFinding:
    message = f"{what} is {measured:,}, more than {limit:,}"
    return CustomFinding(node=node.name, message=message, measured=measured, limit=limit, suggestion=suggestion)
