"""A backend that is given a part of each graph; torch executes the rest, operation by operation.

So any adapter gets a switch for every operation: which one, left to torch, makes the fault go away?
"""

from collections.abc import Callable, Sequence

from torch import Tensor, fx

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.parted import Parted, runs_of
from inductor_debug.stages.torch_internals.switch_records import Group
from inductor_debug.stages.torch_internals.switches import Switchboard, seen


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
        return Parted(gm, pieces, self.inner)

    def storage_rounding(self) -> AcceleratorAdapter | None:
        return self.inner.storage_rounding()


def pieces_of(gm: fx.GraphModule, board: Switchboard) -> list[tuple[bool, list[fx.Node]]]:
    """The graph's calls in order, in runs that the board has on or off."""
    return runs_of(gm, lambda node: not board.asked(Group.OPERATIONS, str(node.target), [seen(node, "")]))
