"""What the calls of a Dynamo graph dispatch to: each is run on its example values, which are fake tensors.

Relies on ``TorchDispatchMode``, ``OpOverload.decompose``, ``detect_fake_mode``, on the nodes with which Dynamo switches
gradients and autocast, and on ``ShapeEnv.ignore_fresh_unbacked_symbols``.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from inductor_debug.stages.torch_internals.fx_records import nested_graphs
from inductor_debug.stages.torch_internals.fx_values import expression_of, node_value, shape_of, size_of, tensors_in

log = logging.getLogger(__name__)

Calls = list[str] | None
"""Overloads in the order of their calls; None where that could not be found out."""

_ASSERTIONS = ("_check", "_assert")
_ENTER, _EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


class _Recorder(TorchDispatchMode):
    """Notes which operators are dispatched; what only stands for others (CompositeImplicit) is taken apart.

    Args:
        writes: False refuses an operator that writes to a tensor, before it does.
    """

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.writes = writes
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":  # asks for a tensor's device or layout
            return func(*args, **(kwargs or {}))
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is NotImplemented:
            if func._schema.is_mutable and not self.writes:
                raise _Writes(str(func))
            self.called.append(str(func))
            result = func(*args, **(kwargs or {}))
        return result


def dispatched_calls(gm: fx.GraphModule) -> dict[str, Calls]:
    """What each call of a Dynamo graph dispatches to, by the node's name; nothing of the graph is changed.

    Calls that are alike (target, arguments, shapes, strides, dtypes, gradients, autocast) are run once.
    """
    mode = _fake_mode(gm)
    environment = getattr(mode, "shape_env", None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))  # restored at the end
        if mode is not None:
            stack.enter_context(mode)
        if environment is not None:
            stack.enter_context(environment.ignore_fresh_unbacked_symbols())
        runner = _Runner(gm, {})
        stack.callback(runner.leave)
        return runner.run()


def _fake_mode(gm: fx.GraphModule) -> Any:
    """That of the example values: for the backend Dynamo sets up another, in which they can't be run."""
    for node in gm.graph.nodes:
        for tensor in tensors_in(node_value(node)):
            if isinstance(tensor, FakeTensor):
                return tensor.fake_mode
    return detect_fake_mode()


class _Unknown(Exception):
    """A value of which the graph holds no example."""


class _Writes(Exception):
    """An operator that writes to a tensor which the graph holds."""


class _Runner:
    """Runs a graph's calls one by one, each on the example values of its arguments.

    Args:
        gm: a Dynamo graph, or one nested in it.
        cache: what was run, shared with the graphs nested in this one.
    """

    def __init__(self, gm: fx.GraphModule, cache: dict[Any, Calls]) -> None:
        self.gm, self.cache = gm, cache
        self.autocasts: dict[fx.Node, Any] = {}
        self.signatures: dict[fx.Node, Any] = {}
        self.lost = False

    def run(self) -> dict[str, Calls]:
        return {node.name: self._calls(node) for node in self.gm.graph.nodes if node.op.startswith("call_")}

    def leave(self) -> None:
        """Undo the autocasts that the graph left open."""
        for context in reversed(self.autocasts.values()):
            _EXIT(context)
        self.autocasts = {}

    def _calls(self, node: fx.Node) -> Calls:
        if self.lost or node.op == "call_module":
            return None
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._nested(node)
        read = [tensor for source in node.all_input_nodes for tensor in tensors_in(node_value(source))]
        if not read and node_value(node) is None:
            return self._switch(node)
        try:
            key = (node.op, node.target, self._signature(node.args), self._signature(node.kwargs), *_state(node))
            hash(key)
        except (_Unknown, TypeError):
            return self._run(node)
        if key not in self.cache:
            self.cache[key] = self._run(node)
        return self.cache[key]

    def _nested(self, node: fx.Node) -> Calls:
        """Of a higher-order operator: what the graphs that it is given call."""
        called: list[str] = []
        for graph in nested_graphs(node):
            inner = _Runner(graph, self.cache)
            found = inner.run()
            inner.leave()
            if None in found.values():
                return None
            called += [name for calls in found.values() for name in calls or ()]
        return called

    def _switch(self, node: fx.Node) -> Calls:
        """A call without tensors and without a value: an assertion, or a switch of the state that later calls see."""
        target = node.target
        if target is torch._C._set_grad_enabled:
            torch._C._set_grad_enabled(*node.args)
        elif target is _ENTER:
            self.autocasts[node] = _ENTER(*node.args, **node.kwargs)
        elif target is _EXIT and node.args[0] in self.autocasts:
            _EXIT(self.autocasts.pop(node.args[0]))  # type: ignore[arg-type]
        elif not getattr(target, "__name__", "").startswith(_ASSERTIONS):
            self.lost = True
            return None
        return []

    def _run(self, node: fx.Node) -> Calls:
        function = self._function(node)
        for copies, gradients in ((False, True), (True, True), (True, False)):  # a leaf is written to without them
            try:
                example = functools.partial(_example, copies=copies, gradients=gradients)
                args, kwargs = fx.map_arg((node.args, node.kwargs), example)
                with _Recorder(copies) as recorder, torch.set_grad_enabled(torch.is_grad_enabled() and gradients):
                    function(*args, **kwargs)
                return recorder.called
            except Exception as error:  # noqa: BLE001 - what can't be run is not established
                log.debug("%s: what %s dispatches to is not known: %s", node.name, node.target, error)
        return None

    def _function(self, node: fx.Node) -> Callable[..., Any]:
        if node.op == "call_function":
            assert callable(node.target)
            return node.target
        return lambda value, *args, **kwargs: getattr(value, str(node.target))(*args, **kwargs)

    def _signature(self, value: Any) -> Any:
        """What two arguments have in common that are treated alike; hashable, else TypeError."""
        if isinstance(value, fx.Node):
            if value not in self.signatures:
                found = node_value(value)
                if found is None:
                    raise _Unknown(value.name)
                self.signatures[value] = self._signature(found)
            return self.signatures[value]
        if isinstance(value, Tensor):
            return _tensor_signature(value)
        if isinstance(value, (list, tuple)):
            return (type(value), *map(self._signature, value))
        if isinstance(value, dict):
            return tuple((key, self._signature(item)) for key, item in value.items())
        if isinstance(value, slice):
            return (slice, *map(self._signature, (value.start, value.stop, value.step)))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return (type(value), str(expression_of(value)))
        return (type(value), value)


def _example(node: fx.Node, copies: bool, gradients: bool) -> Any:
    """A node's example value; with ``copies`` what is done to its tensors in place changes nothing of the graph."""
    value = node_value(node)
    if value is None:
        raise _Unknown(node.name)

    def copy(tensor: Tensor) -> Tensor:
        return tensor.data.requires_grad_(tensor.requires_grad and gradients)

    return torch.utils._pytree.tree_map_only(Tensor, copy, value) if copies else value


def _tensor_signature(tensor: Tensor) -> Any:
    dense = tensor.layout == torch.strided and not tensor.is_nested
    strides = tuple(size_of(stride) for stride in tensor.stride()) if dense else ()
    sizes = tuple(shape_of(tensor))
    return (sizes, strides, tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.is_leaf)


def _state(node: fx.Node) -> Iterator[Any]:
    """What decides besides the arguments: gradients and autocast."""
    yield torch.is_grad_enabled()
    devices = {tensor.device.type for tensor in tensors_in(node_value(node))} | {"cpu"}
    for device in sorted(devices):
        yield (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
