"""Puts a fault behind one node of a graph: the rest of the graph, its names included, stays as it is."""

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from inductor_debug.models.errors import invalid_choice
from inductor_debug.stages.backends.faults.site import Fault, Site

Decompositions = Mapping[Any, Callable[..., Any]] | None


def with_fault(gm: fx.GraphModule, name: str, fault: Fault, *, strength: float, output: int) -> fx.GraphModule:
    """A copy of an AOT graph in which what follows a node takes a wrong value of it.

    Args:
        gm: the graph, whose nodes have fake values; left as it is.
        name: of an operation of the graph.
        fault: what is wrong there.
        strength: as the fault defines it.
        output: which output of an operation that has several.

    Raises:
        ConfigurationError: the operation has no such output, or can't have the fault.
    """
    made = _copied(gm)
    node = next(item for item in made.graph.nodes if item.name == name)
    value = _value_of(made.graph, node, output)
    read = [item for item in node.all_input_nodes if not isinstance(item.meta["val"], (tuple, list))]
    taken = list(dict.fromkeys([*read, value]))
    chosen = None if value is node else output
    body = traced(_applied(node, taken, fault, strength, chosen), [item.meta["val"] for item in taken], None)
    body.graph.eliminate_dead_code()  # outputs of an operation of several that the fault does not take
    readers = list(value.users)
    wrong = _spliced(made, value, dict(zip(_placeholders(body), taken, strict=True)), body)
    value.replace_all_uses_with(wrong, delete_user_cb=readers.__contains__)
    made.graph.lint()
    made.recompile()
    return made


def make_values_known(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Give the nodes of a graph the fake values that AOTAutograd's have, where they have none."""
    if any("val" not in node.meta for node in gm.graph.nodes if node.op == "call_function"):
        FakeTensorProp(gm).propagate(*example_inputs)


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    module = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    module.meta = dict(gm.meta)
    return module


def _value_of(graph: fx.Graph, node: fx.Node, output: int) -> fx.Node:
    """The node whose value is the chosen output: the operation, or what takes it out of several."""
    value = node.meta["val"]
    several = isinstance(value, (tuple, list))
    outputs = list(value) if several else [value]
    tensors = [index for index, each in enumerate(outputs) if isinstance(each, Tensor)]
    if output not in tensors:
        raise invalid_choice("backend.options.output", output, map(str, tensors))
    if not several:
        return node
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == output:
            return user
    with graph.inserting_after(node):
        taken = graph.call_function(operator.getitem, (node, output))
    taken.meta = {**node.meta, "val": value[output]}
    return taken


def _applied(
    node: fx.Node, taken: Sequence[fx.Node], fault: Fault, strength: float, output: int | None
) -> Callable[..., Tensor]:
    """The fault as a function of the values of ``taken``, the last of which is the right one."""

    def apply(*values: Any) -> Tensor:
        known, value = dict(zip(taken, values, strict=True)), values[-1]
        whole = all(item in known for item in node.all_input_nodes)  # what takes a tuple apart reads no tensor
        args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__) if whole else ((), {})
        wrong = fault.apply(Site(node.target, args, kwargs, value, output, strength))
        assert (wrong.shape, wrong.dtype) == (value.shape, value.dtype), node.target
        if wrong.stride() == value.stride():
            return wrong
        copied: Tensor = torch.ops.aten.copy.default(value, wrong)  # what follows may view it, which needs its strides
        return copied

    return apply


def _spliced(made: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any], body: fx.GraphModule) -> fx.Node:
    """Copies what ``body`` computes behind the node, with the node's own lines; the node that gives its result.

    Copies are named after the node, so that none has the name of an operation of the graph that this one is a part of.
    """
    origin = {key: value for key, value in node.meta.items() if key not in ("val", "tensor_meta")}
    last = node
    for item in body.graph.nodes:
        if item.op == "placeholder":
            continue
        if item.op == "output":
            break
        with made.graph.inserting_after(last):
            args, kwargs = fx.map_arg((item.args, item.kwargs), known.__getitem__)
            name = f"{node.name}_fault_{item.name}"
            last = known[item] = made.graph.create_node(item.op, item.target, args, kwargs, name)
        last.meta = {**origin, **{key: item.meta[key] for key in ("val", "tensor_meta") if key in item.meta}}
        if item.op == "get_attr":
            last.target = f"_fault_{node.name}_{item.target}"
            setattr(made, last.target, getattr(body, item.target))
    found = fx.map_arg(item.args[0], known.__getitem__)
    assert isinstance(found, fx.Node)
    return found


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def traced(function: Callable[..., Any], inputs: Sequence[Any], decompositions: Decompositions) -> fx.GraphModule:
    """What ``function`` does with inputs like these, as a graph, decomposed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with _fake_mode(inputs) as mode, fx.traceback.preserve_node_meta(), torch.no_grad():
        trace = make_fx(
            function,
            decomposition_table=dict(decompositions or {}),
            tracing_mode="fake" if mode is None else "real",
        )
        graph: fx.GraphModule = trace(*inputs)
    return graph


def _fake_mode(inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """The fake tensors' own mode, in which tensors that a fault makes are fake too; nothing for real tensors."""
    modes = [mode for tensor in inputs if (mode := getattr(tensor, "fake_mode", None)) is not None]
    return modes[0] if modes else nullcontext()
