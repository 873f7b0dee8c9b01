"""Backends with a fault at some operations, each a global of this module that its name describes.

``refusal__of__relu__default`` refuses ``aten.relu.default``; ``wrong__of__relu__default__after__addmm__default``
computes it wrongly where it follows ``aten.addmm.default``. A fault sees targets, order and shapes, no names of nodes.
"""

import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

OF, AFTER = "__of__", "__after__"


def name_of(kind: str, *targets: str) -> str:
    """The global's name: the kind of a fault, the target that has it, and one that comes before it if that counts."""
    return kind + OF + AFTER.join(target.removeprefix("aten.").replace(".", "__") for target in targets)


def __getattr__(name: str) -> Any:
    kind, of, rest = name.partition(OF)
    if not of or kind not in FAULTS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    globals()[name] = found = _backend(FAULTS[kind], *map(_target, rest.split(AFTER)))
    return found


def _target(text: str) -> Any:
    operation, _, overload = text.rpartition("__")
    return getattr(getattr(torch.ops.aten, operation), overload)


def _backend(act: Callable[[fx.GraphModule, fx.Node], None], target: Any, before: Any = None) -> Any:
    def compiler(gm: fx.GraphModule, inputs: Any) -> Any:
        for node in list(gm.graph.nodes):
            if node.target is target and (before is None or any(item.target is before for item in sources(node))):
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


def negate(gm: fx.GraphModule, node: fx.Node) -> None:
    """The first result with the wrong sign."""
    results = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
    for value in results if isinstance(node.meta["val"], (tuple, list)) else [node]:
        with gm.graph.inserting_after(value):
            wrong = gm.graph.call_function(torch.ops.aten.neg.default, (value,))
        value.replace_all_uses_with(wrong, lambda user, wrong=wrong: user is not wrong)  # type: ignore[misc]


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


FAULTS: dict[str, Callable[[fx.GraphModule, fx.Node], None]] = {
    "refusal": refuse, "abort": abort, "hang": wait, "wrong": negate, "misaligned": misalign,
}  # fmt: skip
