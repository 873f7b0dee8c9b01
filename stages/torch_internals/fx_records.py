"""FX graphs as :mod:`stages.graphs.records` records. Relies on FX's node metadata and on symbolic shapes' internals."""

import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from inductor_debug.stages.graphs.flops import count_flops, has_formula
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine, kind_of
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.torch_internals.fx_values import (
    expression_of,
    hint_of,
    node_value,
    shape_of,
    size_of,
    tensor_record,
    tensors_in,
)
from inductor_debug.stages.torch_internals.history import origins_of
from inductor_debug.stages.torch_internals.storages import is_alias, storage_of, storages_of, with_shared, with_storage

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class PlaceholderInfo:
    """What is known of a placeholder: the name of what it stands for (``""``: keep FX's target), role, owner, line."""

    target: str = ""
    role: str = "input"
    module: str = ""
    source: SourceLine | None = None


@dataclass
class RecordContext:
    """What the graphs of one compilation share.

    Attributes:
        sources: finds the user's line.
        modules: ``id(module)`` → its path in the model.
        tensors: ``id(tensor)`` → (path, "parameter" or "buffer").
        by_sequence: autograd sequence number → (line, module path) of the forward node that had it. Filled while graphs
            are recorded, read for backward nodes that carry no line of their own.
        origins: autograd sequence number → the Dynamo graph's calls that had it; filled and read likewise.
        inputs: identity of a storage → (the forward's placeholder that is in it, the storage). The storage is held so
            that the identity stays its own. Filled while a joint or forward graph is recorded, read for the backward.
    """

    sources: SourceFinder
    modules: dict[int, str] = field(default_factory=dict)
    tensors: dict[int, tuple[str, str]] = field(default_factory=dict)
    by_sequence: dict[int, tuple[SourceLine | None, str]] = field(default_factory=dict)
    origins: dict[int, list[str]] = field(default_factory=dict)
    inputs: dict[int, tuple[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: torch.nn.Module) -> "RecordContext":
        """The context of one model."""
        tensors = {id(tensor): (name, "buffer") for name, tensor in module.named_buffers()}
        tensors |= {id(tensor): (name, "parameter") for name, tensor in module.named_parameters()}
        return cls(SourceFinder(module), {id(child): name for name, child in module.named_modules()}, tensors)

    def for_graph(self) -> "RecordContext":
        """The same, with sequence numbers and storages of its own (they belong to one AOTAutograd trace only)."""
        return RecordContext(self.sources, self.modules, self.tensors)


def nested_graphs(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a higher-order operator (``cond``, ``while_loop``, a checkpoint) is given, in order."""
    owner = node.graph.owning_module
    names = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    found = [getattr(owner, name) for name in names if hasattr(owner, name)]
    return [item for item in found if isinstance(item, fx.GraphModule)]


def nested_calls(node: fx.Node) -> list[str] | None:
    """The overloads that a higher-order operator's graphs call; None where they hold Python callables (Dynamo's)."""
    found: list[str] = []
    for inner in (inner for graph in nested_graphs(node) for inner in graph.graph.nodes):
        if isinstance(inner.target, torch._ops.HigherOrderOperator):
            deeper = nested_calls(inner)
            if deeper is None:
                return None
            found += [target_name(inner.target), *deeper]
        elif isinstance(inner.target, torch._ops.OpOverload):
            found.append(str(inner.target))
        elif inner.op.startswith("call_") and inner.target is not operator.getitem:
            return None
    return found


def nested_body(node: fx.Node, context: RecordContext, *, details: bool = True) -> list[NodeRecord] | None:
    """The calls of the graphs that a higher-order operator is given, in order, those of graphs inside them too.

    None where one of those graphs is not at hand. They carry no FLOPs and no storages; ``details`` is that of
    :func:`graph_record`.
    """
    given = [source for source in node.all_input_nodes if source.op == "get_attr"]
    graphs = nested_graphs(node)
    if len(graphs) < sum(not any(True for _ in tensors_in(node_value(source))) for source in given):
        return None
    found: list[NodeRecord] = []
    for inner in (inner for graph in graphs for inner in graph.graph.nodes if inner.op.startswith("call_")):
        found.append(_inner_record(inner, context, details))
        if isinstance(inner.target, torch._ops.HigherOrderOperator):
            deeper = nested_body(inner, context, details=details)
            if deeper is None:
                return None
            found += deeper
    return found


def _inner_record(node: fx.Node, context: RecordContext, details: bool) -> NodeRecord:
    return NodeRecord(
        name=node.name,
        op=node.op,
        target=target_name(node.target),
        args=argument_json(node.args),
        kwargs=argument_json(node.kwargs),
        inputs=[argument.name for argument in node.all_input_nodes],
        outputs=[tensor_record(tensor) for tensor in tensors_in(node_value(node))],
        module=module_path(node, context.modules) if details else "",
        source=source_of(node, context) if details else None,
    )


def target_name(target: Any) -> str:
    """A call's name.

    ``aten.addmm.default`` for an ATen overload, ``mylib.op`` for an operator called as ``torch.ops.mylib.op``, of
    which only a call tells the overload, ``higher_order.cond`` for a higher-order operator. For a Python
    callable its qualified name: the public ``torch.nn.functional`` or ``torch`` name where that namespace exposes the
    very object (``torch.nn.functional.linear`` rather than ``torch._C._nn.linear``), else ``module.qualname``
    (``_operator.add``). Methods and modules are their names already.
    """
    if isinstance(target, (str, torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    name = getattr(target, "__name__", "")
    for namespace, prefix in ((torch.nn.functional, "torch.nn.functional"), (torch, "torch")):
        if name and getattr(namespace, name, None) is target:
            return f"{prefix}.{name}"
    module = getattr(target, "__module__", None)
    qualified = getattr(target, "__qualname__", name) or type(target).__qualname__
    if module is None:  # a method of a C type, e.g. Tensor.add_
        owner = getattr(target, "__objclass__", None)
        return f"{owner.__module__}.{owner.__qualname__}.{name}" if owner is not None else qualified
    return f"{module}.{qualified}"


def argument_json(value: Any) -> Any:
    """One argument as a JSON value; a node is ``{"node": name}``, a slice ``{"slice": [start, stop, step]}``."""
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [argument_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): argument_json(item) for key, item in value.items()}
    if isinstance(value, slice):
        return {"slice": [argument_json(item) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, _SYMBOLIC):
        return str(expression_of(value))
    if isinstance(value, torch.Tensor):
        return {"tensor": shape_of(value), "dtype": str(value.dtype)}
    if value is Ellipsis:
        return "..."
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, complex)):
        return str(value)
    return target_name(value) if callable(value) else f"<{type(value).__module__}.{type(value).__qualname__}>"


def clean_module_path(path: str) -> str:
    """``"L['self']._modules['encoder'].layer[0]"`` → ``"encoder.layer.0"``."""
    path = re.sub(r"^[LG]\['[^']*'\]", "", path)
    path = re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", path)
    return ".".join(part for part in path.split(".") if part and part not in ("_modules", "_orig_mod"))


def module_path(node: fx.Node, modules: dict[int, str]) -> str:
    """Path of the innermost module that the node ran in; for backward nodes that of its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    key, (path, _) = next(reversed(stack.items()))
    identity = str(key).partition("@")[0]
    known = modules.get(int(identity)) if identity.isdigit() else None
    return clean_module_path(str(path)) if known is None else known


def source_of(node: fx.Node, context: RecordContext) -> SourceLine | None:
    """The user's line; where there is none, that of the layer of torch's that the node ran in."""
    return context.sources.find(node.meta.get("stack_trace"), kind=_layer(node))


def _layer(node: fx.Node) -> type | None:
    """The class of the innermost module."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    _, (_, kind) = next(reversed(stack.items()))
    return kind if isinstance(kind, type) else None


def _concrete(value: Any) -> Any:
    """Stand-ins without symbols, so that formulas add no guard: meta tensors and hints."""
    if isinstance(value, fx.Node):
        value = node_value(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_concrete(item) for item in value])
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested:
            return None  # formulas count what a dense tensor of that shape would take
        if not any(isinstance(size, torch.SymInt) for size in value.shape):
            return value
        hints = [hint_of(size) for size in value.shape]
        return None if None in hints else torch.empty(hints, dtype=value.dtype, device="meta")  # type: ignore[arg-type]
    return hint_of(value) if isinstance(value, torch.SymInt) else value


def node_flops(node: fx.Node) -> int | None:
    """FLOPs of a call, symbolic sizes as this case had them; None where no formula or a size is not known."""
    if not has_formula(node.target):
        return None
    unknown: list[bool] = []

    def stand_in(item: Any) -> Any:
        concrete = _concrete(item)
        unknown.append(item is not None and concrete is None)
        return concrete

    args = tree_map(stand_in, node.args, is_leaf=lambda item: isinstance(item, fx.Node))
    kwargs = tree_map(stand_in, node.kwargs, is_leaf=lambda item: isinstance(item, fx.Node))
    output = _concrete(node_value(node))
    return None if any(unknown) else count_flops(node.target, args, kwargs, output)


def _source_and_module(
    node: fx.Node, context: RecordContext, done: dict[str, NodeRecord]
) -> tuple[SourceLine | None, str]:
    found = context.sources.find(node.meta.get("stack_trace"))
    source = None if found is None or context.sources.in_torch(found) else found
    module = module_path(node, context.modules)
    sequence = node.meta.get("seq_nr", -1)
    if source is None or not module:
        forward_source, forward_module = context.by_sequence.get(sequence, (None, ""))
        source, module = source or forward_source, module or (forward_module if source is None else module)
    source = source or context.sources.find(None, kind=_layer(node)) or found
    if source is None:  # e.g. where autograd sums two gradients: the line of what is summed
        read = [done[argument.name] for argument in node.all_input_nodes if argument.op != "placeholder"]
        summed = next((record for record in reversed(read) if record.source is not None), None)
        source, module = (None, module) if summed is None else (summed.source, module or summed.module)
    if source is not None and sequence >= 0:
        context.by_sequence.setdefault(sequence, (source, module))
    return source, module


def _node_record(
    node: fx.Node,
    context: RecordContext,
    done: dict[str, NodeRecord],
    info: PlaceholderInfo | None,
    storages: dict[fx.Node, set[int]],
    details: bool,
    aten: bool,
) -> NodeRecord:
    value = None if node.op == "output" else node_value(node)
    storages[node] = storages_of(value)
    known = info or PlaceholderInfo(role="constant" if node.op == "get_attr" else "")
    source, module = (known.source, known.module) if node.op != "output" and details else (None, "")
    if source is None and node.op != "output" and details:
        source, found = _source_and_module(node, context, done)
        module = found or module
    aliases = node.op in ("call_function", "call_method") and is_alias(node, storages)
    outputs = [tensor_record(tensor) for tensor in tensors_in(value)]
    if details and not aliases and known.role != "tangent":  # a gradient comes dense
        outputs = [with_storage(*both) for both in zip(outputs, tensors_in(value), strict=True)]
    higher = isinstance(node.target, torch._ops.HigherOrderOperator)
    dispatched = nested_calls(node) if higher else None
    return NodeRecord(
        name=node.name,
        op=node.op,
        target=known.target or target_name(node.target),
        args=argument_json(node.args),
        kwargs=argument_json(node.kwargs),
        inputs=[argument.name for argument in node.all_input_nodes],
        outputs=outputs,
        role=known.role,
        module=module,
        source=source,
        flops=node_flops(node) if details and node.op == "call_function" else None,
        aliases=aliases,
        value=size_of(value) if isinstance(value, int | torch.SymInt) and not isinstance(value, bool) else None,
        dispatched=dispatched,
        body=nested_body(node, context, details=details) if higher and dispatched is None else None,
        origins=origins_of(node, context.origins) if aten and node.op == "call_function" else [],
    )


def graph_symbols(graph: fx.Graph, *, details: bool = True) -> dict[str, dict[str, int | None]]:
    """Symbols of a graph's sizes with hint and range; an open end of a range is None."""
    symbols: dict[str, dict[str, int | None]] = {}
    for node in graph.nodes:
        value = node_value(node)
        tensors = list(tensors_in(value))
        sizes = [value] if isinstance(value, torch.SymInt) else [size for item in tensors for size in _sizes(item)]
        if details:
            sizes += [storage.nbytes() for storage in map(storage_of, tensors) if storage is not None]
        for size in sizes:
            if not isinstance(size, torch.SymInt) or isinstance(expression_of(size), str):
                continue
            environment = size.node.shape_env
            for symbol in size.node.expr.free_symbols:
                if str(symbol) not in symbols:
                    symbols[str(symbol)] = _symbol(symbol, environment)
    return dict(sorted(symbols.items()))


def _sizes(tensor: torch.Tensor) -> Iterable[Any]:
    return () if tensor.is_nested and tensor.layout == torch.strided else tensor.shape


def _symbol(symbol: Any, environment: Any) -> dict[str, int | None]:
    hints = getattr(environment, "backed_var_to_val", None)
    hint = (environment.var_to_val if hints is None else hints).get(symbol)
    bounds = environment.var_to_range.get(symbol)
    lower, upper = (None, None) if bounds is None else (bounds.lower, bounds.upper)

    def finite(bound: Any) -> int | None:
        return int(bound) if bound is not None and bound.is_number and bound.is_finite and abs(bound) < 2**62 else None

    # no number: the size of a jagged dimension, which is one a row
    known = int(hint) if isinstance(hint, int) or (hint is not None and hint.is_Integer) else None
    return {"hint": known, "min": finite(lower), "max": finite(upper)}


def graph_record(
    graph: fx.Graph,
    *,
    id: str,
    context: RecordContext,
    placeholders: dict[str, PlaceholderInfo] | None = None,
    details: bool = True,
) -> GraphRecord:
    """One FX graph with tracing metadata as a record. Linear in the number of nodes; the graph is not changed.

    Args:
        graph: its nodes carry ``val`` or ``example_value``.
        id: e.g. ``"g0.forward"``.
        context: see :class:`RecordContext`; sequence numbers found here are added to it.
        placeholders: by node name; those that are missing are plain inputs.
        details: False leaves out what a finding alone needs, source lines, modules and FLOPs, and what only peak memory
            does, storages.
    """
    known = placeholders or {}
    aten = kind_of(id) != "dynamo"
    done: dict[str, NodeRecord] = {}
    storages: dict[fx.Node, set[int]] = {}
    for node in graph.nodes:
        info = known.get(node.name, PlaceholderInfo()) if node.op == "placeholder" else known.get(node.name)
        done[node.name] = _node_record(node, context, done, info, storages, details, aten)
    found = GraphRecord(id, kind_of(id), list(done.values()), graph_symbols(graph, details=details))
    return replace(found, nodes=with_shared(found, storages, context.inputs)) if details else found
