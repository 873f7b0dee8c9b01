"""Which operation of a wrong value's region is at fault."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import fx

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize import pieces
from inductor_debug.stages.localize.replay import Local, Region, Replay, Seen, computes


@dataclass
class Found:
    """What was found out of a wrong value.

    Attributes:
        nodes: the operation at fault; several where no single one is.
        local: the comparison that shows it best.
        value: of the last of ``nodes`` as the backend computed it.
        kind: ``operation`` or ``region``.
        shows: how it shows, in words.
    """

    nodes: list[fx.Node]
    local: Local
    value: torch.Tensor
    kind: str
    shows: list[str]


def narrowed(seen: Seen, local: Local, adapter: AcceleratorAdapter, *, factor: float) -> list[Found]:
    """Look for the operations at fault in the region of a wrong value.

    The region is compiled as a graph of its own with each of its values as a result. What is wrong there, from what it
    received, is at fault. If nothing is as soon as its values are looked at, only the fusion is wrong.

    Args:
        seen: the run in which the value was wrong.
        local: of the value.
        adapter: compiles parts of the graph.
        factor: error over floor above which a value is wrong.

    Returns:
        One for each operation at fault, or one for the whole region.
    """
    region = local.region
    shows = ["in the kernel that ran"] if seen.kernels else ["in place"]
    operations, value = list(region.operations), seen.values[region.node.name]
    if len(operations) == 1:
        return [Found(operations, local, value, "operation", [*shows, _told(_alone(seen, region, adapter, factor))])]
    inner = pieces.taps(region)

    def by_itself() -> Seen:
        piece = pieces.piece_of(seen, region, inner)
        return pieces.run(piece, pieces.compiled(piece, adapter))

    found = _named(seen, local, by_itself, adapter, factor)
    if isinstance(found, str):
        return [Found(operations, local, value, "region", [*shows, f"its operations could not be told apart: {found}"])]
    if found:
        return found
    if _alone(seen, region, adapter, factor) is True:
        return [Found(operations, local, value, "region", [*shows, "only when these operations are fused"])]
    in_graph = _named(seen, local, lambda: _in_graph(seen, region, inner, adapter), adapter, factor)
    if in_graph and not isinstance(in_graph, str):
        return in_graph
    return [Found(operations, local, value, "region", [*shows, "not when its operations are compiled by themselves"])]


def _named(
    seen: Seen, local: Local, run: Callable[[], Seen], adapter: AcceleratorAdapter, factor: float
) -> list[Found] | str:
    """What is wrong where every value is seen, as nodes of the graph that ran first; or why that did not run.

    An operation may be far beyond its own noise and matter nothing (an approximation of erf, before a rounding to
    bfloat16). If float64 with one wrong value in its place gives what was seen, the first such one is the fault.
    """
    tapped = pieces.attempted(run)
    if isinstance(tapped, str):
        return tapped
    graph = {node.name: node for node in seen.graph.nodes}
    replay = Replay(tapped, factor=factor)
    found = []
    for inner in replay.locals():
        if inner.wrong:
            single = replay.region(inner.region.node, whole=False)
            named = [graph[node.name] for node in single.operations]
            kind = "operation" if len(named) == 1 else "region"
            shows = ["in the kernel that ran", _told(_alone(tapped, single, adapter, factor))]
            found.append(Found(named, inner, tapped.values[inner.region.node.name], kind, shows))
    first = Replay(seen, factor=factor)
    for item in found:
        if explained(first, local.region, [item]):
            return [_before_conversion(item)]
    return found


def _before_conversion(item: Found) -> Found:
    """What a conversion to a wider format was given, in its place: it rounds nothing, and has the value as it was in a
    register, before it was stored."""
    (*others, node) = item.nodes
    source = node.args[0] if node.args else None
    if others or node.target is not torch.ops.prims.convert_element_type.default or not isinstance(source, fx.Node):
        return item
    before, after = source.meta.get("val"), node.meta.get("val")
    wider = isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.itemsize < after.itemsize
    return replace(item, nodes=[source]) if wider and computes(source) else item


def explained(replay: Replay, region: Region, found: Iterable[Found]) -> bool:
    """Whether a value that is wrong is right given the wrong values of operations in its region."""
    members = {node.name for node in region.members}
    given = {item.nodes[-1].name: item.value for item in found if item.nodes[-1].name in members}
    return bool(given) and not replay.compared(region, given).wrong


def _in_graph(seen: Seen, region: Region, inner: list[fx.Node], adapter: AcceleratorAdapter) -> Seen:
    """A run of the whole graph, compiled anew, in which the region's values and what it received are seen."""
    received = [node for node in region.received if node.op == "call_function"]
    piece = pieces.whole_with(seen, [*inner, *received])
    run = pieces.run(piece, pieces.compiled(piece, adapter))
    kernels = {name: kernel for name, kernel in run.kernels.items() if name in {node.name for node in inner}}
    return replace(run, kernels=kernels)


def _alone(seen: Seen, region: Region, adapter: AcceleratorAdapter, factor: float) -> bool | str:
    """Whether a value is wrong where its region is compiled by itself, or why that is not known."""
    found = pieces.attempted(
        lambda: pieces.compared(pieces.piece_of(seen, region, [region.node]), adapter, factor=factor)
    )
    return found if isinstance(found, str) else any(item.wrong for item in found)


def _told(alone: bool | str) -> str:
    """What :func:`_alone` found, in words."""
    if isinstance(alone, str):
        return f"whether it shows alone is not known: {alone}"
    return "alone" if alone else "not alone"
