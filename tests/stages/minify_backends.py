"""Backends that fail in several ways where a graph normalizes a layer."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

aten = torch.ops.aten

COUNTER = "MINIFY_BACKENDS_COUNTER"
"""Environment variable with the path of a file of one byte a call."""


def failing(act: Callable[[fx.GraphModule, fx.Node], None], when: Any = aten.native_layer_norm.default) -> Any:
    """A backend that runs a graph by torch, after ``act`` was called for each node of a target."""

    def compiler(gm: fx.GraphModule, inputs: Any) -> Any:
        for node in list(gm.graph.nodes):
            if node.target is when:
                act(gm, node)
        gm.recompile()
        return gm.forward

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)


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
    if node.meta["val"].shape[-1] % 8:
        raise ValueError(f"{node.meta['val'].shape[-1]} columns")


def specialize(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal of a last dimension that is a number."""
    if isinstance(node.meta["val"].shape[-1], int):
        raise ValueError("a known number of columns")


def fuse(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal of a ReLU whose input is normalized."""
    (source,) = node.all_input_nodes
    if any(item.target is aten.native_layer_norm.default for item in source.all_input_nodes):
        raise RuntimeError("no kernel for a normalized ReLU")


def sometimes(gm: fx.GraphModule, node: fx.Node) -> None:
    """A refusal in one of two processes."""
    with open(os.environ[COUNTER], "a+") as file:
        file.write(".")
        file.flush()
        if os.path.getsize(file.name) % 2 == 0:
            raise OSError("the device is busy")


refusing, aborting, hanging, blurred = failing(refuse), failing(abort), failing(wait), failing(blur)
misaligned, fused = failing(misalign, aten.relu.default), failing(fuse, aten.relu.default)
busy, specialized = failing(sometimes), failing(specialize, aten.relu.default)
failing_backward = failing(refuse, aten.threshold_backward.default)
