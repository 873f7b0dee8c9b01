"""Who executes: calls of TorchInductor's compiled graphs, operations that torch's dispatcher executes, and graphs that
a backend gave back as they were.

Relies on ``torch._inductor.output_code.CompiledFxGraph``, on its ``__call__`` with one list of inputs, and on
``torch._C._current_autograd_node``; on ``functorch.compile.make_boxed_func``, whose function calls what its one cell
holds; and on ``_torchdynamo_disable`` and ``_torchdynamo_orig_callable`` of what ``torch.compiler.disable`` gave.
"""

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from inductor_debug.models.torch_private import UnseenMode, schema_of, storage_identity
from inductor_debug.stages.torch_internals.fx_values import node_value, tensors_in

_BOXED = make_boxed_func(len).__code__
_TORCHS = ("aten", "prims")
_INDUCTOR = ("torch._inductor", "torch._dynamo.backends.inductor")


def memories(values: Any) -> set[int]:
    """What tells the storages of all tensors in nested values; 0 is among them where a tensor has none."""
    return {_memory(leaf) for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}


def _memory(tensor: Tensor) -> int:
    try:
        return storage_identity(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):  # of a sparse tensor, or a subclass
        return 0


def backward_node() -> Any:
    """The node of autograd's graph whose backward runs now; None where none does."""
    return torch._C._current_autograd_node()


def is_inductor(backend: Callable[..., Any]) -> bool:
    """Whether a backend, as ``torch.compile`` takes it, is TorchInductor's own function."""
    function = getattr(backend, "func", backend)
    return str(getattr(function, "__module__", "")).startswith(_INDUCTOR)


def executes(compiled: Callable[..., Any], gm: fx.GraphModule) -> bool:
    """Whether to call ``compiled`` is to have torch execute the graph itself, node by node, and nothing else.

    So it is for the module, its ``forward``, an interpreter of torch's, and each of them boxed or kept from Dynamo. Of
    any other function that can't be told. Whether the graph was changed is not asked.
    """
    seen: Any = compiled
    while True:
        owner = getattr(seen, "__self__", seen)
        if owner is gm or (type(owner) is fx.Interpreter and owner.module is gm):
            return True
        if getattr(seen, "__code__", None) is _BOXED:
            seen = seen.__closure__[0].cell_contents
        elif getattr(seen, "_torchdynamo_disable", False):
            seen = seen._torchdynamo_orig_callable
        else:
            return False


def count_operations(gm: fx.GraphModule) -> int:
    """Calls of a graph that make a tensor, by the example values that tracing stored, or write into one."""
    return sum(_computes(node) for node in gm.graph.nodes if node.op.startswith("call_"))


def _computes(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload) and schema_of(node.target).is_mutable:
        return True
    made = memories(list(tensors_in(node_value(node))))
    return bool(made - memories([list(tensors_in(node_value(source))) for source in node.all_input_nodes]))


class OperationCounter(UnseenMode):
    """While it is entered, ``tell`` is called for each operation of torch's own that makes a tensor or writes into one.

    Memory that is merely allocated does not count: whoever fills it computes.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self.tell = tell

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        torchs = isinstance(func, torch._ops.OpOverload) and func.namespace in _TORCHS
        allocates = torchs and "empty" in func.__name__
        if torchs and not allocates and (schema_of(func).is_mutable or memories(result) - memories((args, kwargs))):
            self.tell()
        return result


def inductor_calls(around: Callable[[Callable[[], Any], list[Any]], Any]) -> contextlib.AbstractContextManager[Any]:
    """While open, each call of a graph that TorchInductor compiled goes through ``around``.

    Args:
        around: gets the call to make and its inputs; returns what the call returns.
    """
    from torch._inductor.output_code import CompiledFxGraph

    original = CompiledFxGraph.__call__

    def call(graph: Any, inputs: Any) -> Any:
        return around(lambda: original(graph, inputs), list(inputs))

    return mock.patch.object(CompiledFxGraph, "__call__", call)
