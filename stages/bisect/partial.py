"""A backend that is given a part of each graph; torch executes the rest, operation by operation.

So any adapter gets a switch for every operation: which one, left to torch, makes the fault go away?
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx
from torch.fx.passes.utils.fuser_utils import fuse_as_graphmodule

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.torch_internals.switch_records import Group
from inductor_debug.stages.torch_internals.switches import Switchboard, piece_of_a_graph, seen


class PartialAdapter(AcceleratorAdapter):
    """AOTAutograd's graphs, in pieces: the operations that are on compiled by ``inner``, the others run by torch.

    Args:
        inner: the adapter, whose decompositions are applied before.
        board: says which operations are off, and notes them all.
    """

    def __init__(self, inner: AcceleratorAdapter, board: Switchboard) -> None:
        self.inner, self.board = inner, board
        self.name = inner.name
        self.decompositions = inner.decompositions

    @property
    def executor(self) -> Executor:
        return "torch"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        pieces = pieces_of(gm, self.board)
        if all(on for on, _ in pieces):
            return self.inner.compile(gm, example_inputs)
        return _Pieces(gm, pieces, self.inner)

    def storage_rounding(self) -> AcceleratorAdapter | None:
        return self.inner.storage_rounding()


def pieces_of(gm: fx.GraphModule, board: Switchboard) -> list[tuple[bool, list[fx.Node]]]:
    """The graph's calls in order, in runs that are on or off. A ``getitem`` is where what it takes from is."""
    runs: list[tuple[bool, list[fx.Node]]] = []
    run_of: dict[fx.Node, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.target is operator.getitem and node.args[0] in run_of:
            run = run_of[node.args[0]]
        else:
            on = not board.asked(Group.OPERATIONS, str(node.target), [seen(node, "")])
            if not runs or runs[-1][0] != on:
                runs.append((on, []))
            run = runs[-1][1]
        run.append(node)
        run_of[node] = run
    return runs


class _Pieces:
    """Calls the pieces of a graph one after the other."""

    def __init__(
        self, gm: fx.GraphModule, pieces: Sequence[tuple[bool, Sequence[fx.Node]]], adapter: AcceleratorAdapter
    ) -> None:
        self.gm = gm
        self.placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self.attributes = [node for node in gm.graph.nodes if node.op == "get_attr"]
        self.output = next(node for node in gm.graph.nodes if node.op == "output")
        self.calls = [self._piece(on, nodes, number, adapter) for number, (on, nodes) in enumerate(pieces)]

    def _piece(
        self, on: bool, nodes: Sequence[fx.Node], number: int, adapter: AcceleratorAdapter
    ) -> tuple[Callable[..., Sequence[Any]], Sequence[fx.Node], Sequence[fx.Node]]:
        piece, inputs, outputs = fuse_as_graphmodule(self.gm, list(nodes), f"Piece{number}", always_return_tuple=True)
        if not on:
            return piece.forward, inputs, outputs
        with piece_of_a_graph():
            return adapter.compile(piece, [node.meta["val"] for node in inputs]), inputs, outputs

    def __call__(self, *inputs: Any) -> Any:
        values: dict[fx.Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        for node in self.attributes:
            values[node] = operator.attrgetter(str(node.target))(self.gm)
        for call, given, made in self.calls:
            values |= zip(made, call(*(values[node] for node in given)), strict=True)
        return fx.map_arg(self.output.args[0], lambda node: values[node])
