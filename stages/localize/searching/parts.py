"""Some of a graph's operations, with the views through which they take and give what they do."""

import operator
from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.runs.regions import computes, is_view
from inductor_debug.stages.localize.searching.pieces import writes_input


@dataclass(frozen=True)
class Part:
    """Some of a graph's operations.

    Attributes:
        operations: in the graph's order.
        members: these, and views of what they take and make; ``received`` what those take from outside; ``results``
            those of the members that others, or the graph's caller, take.
    """

    operations: tuple[fx.Node, ...]
    members: tuple[fx.Node, ...]
    received: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]

    @property
    def views(self) -> tuple[fx.Node, ...]:
        """The members that compute nothing."""
        return tuple(node for node in self.members if is_view(node))


def part_of(
    graph: fx.Graph,
    operations: Sequence[fx.Node],
    *,
    views: bool = True,
    without: Container[fx.Node] = (),
    given: Container[fx.Node] = (),
) -> Part:
    """The part that some operations of a graph are.

    Args:
        operations: of ``graph``.
        views: whether the views through which they take what they take are members too.
        without: views that are no members.
        given: what of the members is a result whoever takes it.
    """
    members: dict[fx.Node, None] = {}
    wanted = set(operations)
    for node in graph.nodes:
        view = node.op == "call_function" and not computes(node) and any(item in members for item in taken_by(node))
        if node in wanted or (view and node not in without):
            members[node] = None
    made = list(members)
    needed = [item for node in members for item in taken_by(node) if views]
    while needed:
        item = needed.pop()
        view = is_view(item) or (item.target is operator.getitem and is_view(taken_by(item)[0]))
        if view and item not in members and item not in without and len(taken_by(item)) == 1:
            members[item] = None
            needed += taken_by(item)
    taken = {item for node in members for item in taken_by(node)}
    constants = {item: None for item in graph.nodes if item.op == "get_attr" and item in taken}
    received = [item for item in graph.nodes if item in taken and item not in members and item not in constants]
    results = [node for node in made if isinstance(node.meta.get("val"), torch.Tensor)
               and (node in given or writes_input(node)
                    or any(user not in members for user in node.users))]  # fmt: skip
    places = {node: index for index, node in enumerate(graph.nodes)}
    ordered = sorted([*members, *constants], key=places.__getitem__)
    return Part(tuple(operations), tuple(ordered), tuple(received), tuple(results))
