"""Backends that fail in several ways where a graph normalizes a layer."""

import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

aten = torch.ops.aten

COUNTER = "MINIFY_BACKENDS_COUNTER"
"""Environment variable with the path of a file of one byte a call."""


def failing(
    act: Callable[[fx.GraphModule, fx.Node], None], when: Any = aten.native_layer_norm.default, after: Any = None
) -> Any:
    """A backend that runs a graph by torch, after ``act`` was called for each node of a target.

    Args:
        act: makes something else of the graph, or does not come back.
        when: the target.
        after: the target of an operation whose result the node must take; None for any.
    """

    def compiler(gm: fx.GraphModule, inputs: Any) -> Any:
        for node in list(gm.graph.nodes):
            if node.target is when and (after is None or any(item.target is after for item in sources(node))):
                act(gm, node)
        gm.recompile()
        return gm.forward

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)


def sources(node: fx.Node) -> Iterator[fx.Node]:
    """The operations that a node takes something of."""
    for source in node.all_input_nodes:
        yield source.all_input_nodes[0] if source.target is operator.getitem else source


def refuse(gm: fx.GraphModule, node: fx.Node) -> None:
    raise NotImplementedError(f"{node.target} is not lowered")


def abort(gm: fx.GraphModule, node: fx.Node) -> None:
    os.kill(os.getpid(), signal.SIGABRT)


def wait(gm: fx.GraphModule, node: fx.Node) -> None:
    time.sleep(1000)


def blur(gm: fx.GraphModule, node: fx.Node) -> None:
    """Wrong numbers; an abort where there is no operation that comes before."""
    if not any(item.target is aten.addmm.default for item in gm.graph.nodes):
        abort(gm, node)
    node.args = (*node.args[:4], 0.5)


def misalign(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal of last dimensions that are no multiple of 8."""
    if is_misaligned(node):
        raise ValueError(f"{node.target} is not lowered for such columns")


def is_misaligned(node: fx.Node) -> bool:
    """Whether the last dimension of what a node gives is a number, and no multiple of 8."""
    value = node.meta["val"]
    value = value[0] if isinstance(value, (tuple, list)) else value
    columns = value.shape[-1] if isinstance(value, torch.Tensor) and value.dim() else 8
    return type(columns) is int and columns % 8 > 0


def specialize(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal of a last dimension that is a number."""
    if isinstance(node.meta["val"].shape[-1], int):
        raise ValueError("a known number of columns")


def fuse(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal of a ReLU, for a backend that asks what comes before it."""
    raise RuntimeError("no kernel for a normalized ReLU")


def sometimes(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal in one of two processes."""
    with open(os.environ[COUNTER], "a+") as file:
        file.write(".")
        file.flush()
        if os.path.getsize(file.name) % 2 == 0:
            raise OSError("the device is busy")


refusing, aborting, hanging, blurred = failing(refuse), failing(abort), failing(wait), failing(blur)
misaligned = failing(misalign, aten.relu.default)
fused = failing(fuse, aten.relu.default, aten.native_layer_norm.default)
busy, specialized = failing(sometimes), failing(specialize, aten.relu.default)
failing_backward = failing(refuse, aten.threshold_backward.default)
