"""Backends with a fault at some operations, each a global of this module that its name describes.

``refusal__of__relu__default`` refuses ``aten.relu.default``; ``wrong__of__relu__default__after__addmm__default``
computes it wrongly where it follows ``aten.addmm.default``. A fault sees targets, order and shapes, no names of nodes.
"""

import operator
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx

sys.path.append(str(Path(__file__).resolve().parents[1] / "stages"))
import minify_backends as backends

OF, AFTER = "__of__", "__after__"

PACKAGES = [__name__, backends.__name__]
"""What a process must be able to import that runs a script of these backends."""


def backend(kind: str, *targets: str) -> Any:
    """The backend with a fault at a target, and at one that comes before it if that counts."""
    name = kind + OF + AFTER.join(target.removeprefix("aten.").replace(".", "__") for target in targets)
    return getattr(sys.modules[__name__], name)


def __getattr__(name: str) -> Any:
    kind, of, rest = name.partition(OF)
    if not of or kind not in FAULTS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    globals()[name] = found = backends.failing(FAULTS[kind], *map(_target, rest.split(AFTER)))
    return found


def _target(text: str) -> Any:
    operation, _, overload = text.rpartition("__")
    return getattr(getattr(torch.ops.aten, operation), overload)


def segfault(gm: fx.GraphModule, node: fx.Node) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def negate(gm: fx.GraphModule, node: fx.Node) -> None:
    """The first result with the wrong sign."""
    results = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
    for value in results if isinstance(node.meta["val"], (tuple, list)) else [node]:
        with gm.graph.inserting_after(value):
            wrong = gm.graph.call_function(torch.ops.aten.neg.default, (value,))
        value.replace_all_uses_with(wrong, lambda user, wrong=wrong: user is not wrong)  # type: ignore[misc]


FAULTS: dict[str, Callable[[fx.GraphModule, fx.Node], None]] = {
    "refusal": backends.refuse, "abort": backends.abort, "segfault": segfault, "hang": backends.wait, "wrong": negate,
    "misaligned": backends.misalign,
}  # fmt: skip
