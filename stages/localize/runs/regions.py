"""One run of a graph, and what made each value that was seen of it."""

import operator
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.nested import is_strided
from inductor_debug.models.torch_private import OpOverload, schema_of
from inductor_debug.stages.localize.judging.evaluation import is_dropout, taken_by


@dataclass
class Seen:
    """One run of a graph.

    Attributes:
        id: ``g0.forward``, ``g0.backward``, ….
        graph: its nodes have fake values in ``meta["val"]``.
        owner: what holds the graph's constants.
        inputs: placeholder → what it was given.
        values: node → what was seen of it, a tensor; a node that is not here was not seen.
        kernels: node → ``kernel:handle`` that made it, where that is known.
        call: how many-th run of the graph in the step.
        addresses: placeholder, or node that the graph gives → where in memory lay its value.
        written: placeholder → what it holds after the run, of those that the graph does not write into and that hold
            something else; empty where that was not looked at.
        residuals: node → what was seen of it less float64 of what its region received, where that is known; None where
            it is not kept.
    """

    id: str
    graph: fx.Graph
    owner: torch.nn.Module
    inputs: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, torch.Tensor] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    call: int = 0
    addresses: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, torch.Tensor] = field(default_factory=dict)
    residuals: MutableMapping[str, torch.Tensor] | None = None

    @cached_property
    def drawn(self) -> Mapping[str, torch.Tensor]:
        """Node of dropout → the mask that it drew, where that was seen."""
        masks = (node for node in self.graph.nodes if node.target is operator.getitem and node.name in self.values
                 and node.args[1] == 1 and is_dropout(node.args[0], self.owner))  # fmt: skip
        return {node.args[0].name: self.values[node.name] for node in masks}


def addresses_of(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Where in memory tensors lie, by name."""
    return {name: value.data_ptr() for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def memory_of_inputs(case: Case) -> set[int]:
    """Where the memory of a case's inputs is, which hold other values in another draw."""
    return {tensor.untyped_storage().data_ptr() for tensor in case.named_inputs().values() if is_strided(tensor)}


def lies_in(value: torch.Tensor, memory: set[int]) -> bool:
    """Whether a tensor lies in one of the places."""
    return is_strided(value) and value.untyped_storage().data_ptr() in memory


def given_by(graph: fx.Graph, results: Iterable[Any]) -> dict[str, Any]:
    """The results of a graph by the nodes that give them."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    pairs = zip(output.args[0], results, strict=False)
    return {node.name: value for node, value in pairs if isinstance(node, fx.Node) and node.op == "call_function"}


@dataclass(frozen=True)
class Region:
    """What made one seen value.

    Attributes:
        node: whose value it is.
        members: the nodes that computed it, ``node`` last; views among them.
        received: nodes whose values the members take from outside, seen or given.
        kernel: the kernel whose other values are members too, as it may go on with its registers; None where all that
            was seen is received.
    """

    node: fx.Node
    members: tuple[fx.Node, ...]
    received: tuple[fx.Node, ...]
    kernel: str | None = None

    @property
    def operations(self) -> tuple[fx.Node, ...]:
        """The members that compute."""
        return tuple(node for node in self.members if computes(node))


def computes(node: fx.Node) -> bool:
    """Whether a node computes numbers: no view, no size, no taking apart of several results."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if isinstance(node.target, OpOverload):
        returned = schema_of(node.target).returns
        views = any(item.alias_info is not None and not item.alias_info.is_write for item in returned)
        return not views and node.target is not torch.ops.aten.reshape.default
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def is_view(node: fx.Node) -> bool:
    """Whether a node takes another look at what it takes."""
    return node.op == "call_function" and not computes(node) and node.target is not operator.getitem


def looked_at(node: fx.Node) -> fx.Node | None:
    """What a view is of, if it takes nothing else."""
    taken = taken_by(node) if is_view(node) else []
    return taken[0] if len(taken) == 1 else None


def region_of(seen: Seen, node: fx.Node, order: Mapping[fx.Node, int], *, whole: bool) -> Region:
    """What made a seen value.

    Args:
        order: place of each node in the graph.
        whole: from what its kernel received; False: from what was seen last, of the same kernel too.
    """
    kernel = seen.kernels.get(node.name) if whole else None
    members, received, open_still = {node}, set(), taken_by(node)
    while open_still:
        source = open_still.pop()
        other = source.name in seen.values and (kernel is None or seen.kernels.get(source.name) != kernel)
        if source.op == "placeholder" or other:
            received.add(source)
        elif source not in members:
            members.add(source)
            open_still += taken_by(source)
    place = order.__getitem__
    return Region(node, tuple(sorted(members, key=place)), tuple(sorted(received, key=place)), kernel)
