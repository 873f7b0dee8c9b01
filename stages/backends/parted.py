"""A graph in pieces: some of its operations by a backend, the others otherwise."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.utils.fuser_utils import fuse_as_graphmodule

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.torch_internals.switches import piece_of_a_graph


def runs_of(gm: fx.GraphModule, is_on: Callable[[fx.Node], bool]) -> list[tuple[bool, list[fx.Node]]]:
    """The graph's calls in order, in runs that are on or off. A ``getitem`` is where what it takes from is.

    Args:
        gm: the graph.
        is_on: of a call.
    """
    runs: list[tuple[bool, list[fx.Node]]] = []
    run_of: dict[fx.Node, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.target is operator.getitem and node.args[0] in run_of:
            run = run_of[node.args[0]]
        else:
            on = is_on(node)
            if not runs or runs[-1][0] != on:
                runs.append((on, []))
            run = runs[-1][1]
        run.append(node)
        run_of[node] = run
    return runs


class Parted:
    """Calls the pieces of a graph one after the other.

    Args:
        gm: the graph.
        runs: its calls, from :func:`runs_of`.
        adapter: compiles those that are on.
        otherwise: what runs the others, from their graph.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        runs: Sequence[tuple[bool, Sequence[fx.Node]]],
        adapter: AcceleratorAdapter,
        otherwise: Callable[[fx.GraphModule], Callable[..., Sequence[Any]]] = lambda piece: piece.forward,
    ) -> None:
        self.gm, self.otherwise = gm, otherwise
        self.placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self.attributes = [node for node in gm.graph.nodes if node.op == "get_attr"]
        self.output = next(node for node in gm.graph.nodes if node.op == "output")
        self.calls = [self._piece(on, nodes, number, adapter) for number, (on, nodes) in enumerate(runs)]

    def _piece(
        self, on: bool, nodes: Sequence[fx.Node], number: int, adapter: AcceleratorAdapter
    ) -> tuple[Callable[..., Sequence[Any]], Sequence[fx.Node], Sequence[fx.Node]]:
        piece, inputs, outputs = fuse_as_graphmodule(self.gm, list(nodes), f"Piece{number}", always_return_tuple=True)
        if not on:
            return self.otherwise(piece), inputs, outputs
        sizes = tuple(node for node in sizes_of(self.gm.graph) if node not in inputs)
        first = next(iter(piece.graph.nodes))
        for node in sizes:
            with piece.graph.inserting_before(first):
                piece.graph.placeholder(node.name).meta = dict(node.meta)
        piece.recompile()
        inputs = (*sizes, *inputs)
        with piece_of_a_graph():
            return adapter.compile(piece, [node.meta["val"] for node in inputs]), inputs, outputs

    def __call__(self, *inputs: Any) -> Any:
        values: dict[fx.Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        for node in self.attributes:
            values[node] = operator.attrgetter(str(node.target))(self.gm)
        for call, given, made in self.calls:
            taken = [laid_out(values[node], node.meta.get("val")) for node in given]
            values |= zip(made, call(*taken), strict=True)
        return fx.map_arg(self.output.args[0], lambda node: values[node])


def sizes_of(graph: fx.Graph) -> list[fx.Node]:
    """The dynamic sizes that a graph takes: a compiler asks for those that the shapes in a part of it depend on."""
    return [node for node in graph.nodes if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.SymInt)]


def laid_out(value: Any, like: object) -> Any:
    """A tensor with the shape and the strides of a fake one; itself where it has them, and what is no tensor.

    Args:
        value: of as many elements as ``like``.
        like: what the graph says of it.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor) or value.stride() == like.stride():
        return value
    shape = [int(size) for size in like.shape]
    strides = [int(stride) for stride in like.stride()]
    value = value.reshape(shape)
    for dim, stride in enumerate(strides):  # an expanded dimension holds one element
        value = value.narrow(dim, 0, 1) if stride == 0 and shape[dim] > 1 else value
    held = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return held.copy_(value).expand(shape)
