"""Which operation of a wrong value's region is at fault."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import fx

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.judging.replay import Local, Replay
from inductor_debug.stages.localize.judging.sweep import Deviation
from inductor_debug.stages.localize.runs.regions import Region, Seen, computes, is_view, region_of
from inductor_debug.stages.localize.searching import pieces

FUSED = "only when it is fused with what makes what it takes"


@dataclass
class Found:
    """What was found out of a wrong value.

    Attributes:
        nodes: the operation at fault; several where no single one is.
        local: the comparison that shows it best.
        kind: ``operation``, ``region`` or ``slope``.
        shows: how it shows, in words.
        deviation: of the last of ``nodes``; None where what else it makes wrong is not asked.
        within: the value that was seen in whose region it was found, where its own was not.
    """

    nodes: list[fx.Node]
    local: Local
    kind: str
    shows: list[str]
    deviation: Deviation | None = None
    within: str = ""


def narrowed(
    seen: Seen, local: Local, adapter: AcceleratorAdapter, *, factor: float, over: Callable[[], bool] = lambda: False
) -> list[Found]:
    """Look for the operations at fault in the region of a wrong value.

    The region is compiled as a graph of its own with each of its values as a result. What is wrong there, from what it
    received, is at fault. If nothing is as soon as its values are looked at, only the fusion is wrong: at fault are the
    few operations that it takes.

    Args:
        seen: the run in which the value was wrong.
        local: of the value.
        adapter: compiles parts of the graph.
        factor: error over floor above which a value is wrong.
        over: whether time is up.

    Returns:
        One for each operation at fault, or one for those that are wrong only together.
    """
    region = local.region
    shows = ["in the kernel that ran"] if seen.kernels else ["in place"]
    operations, value = list(region.operations), Replay(seen, factor=factor).deviation(region)
    if len(operations) == 1:
        item = Found(operations, local, "operation", [*shows, _told(_alone(seen, region, adapter, factor))], value)
        return [_or_view(item, seen, region, adapter)]
    inner = pieces.taps(region)

    def by_itself() -> Seen:
        piece = pieces.piece_of(seen, region, inner)
        return pieces.run(piece, pieces.compiled(piece, adapter))

    found = _named(seen, local, by_itself, adapter, factor)
    if isinstance(found, str):
        return [Found(operations, local, "region", [*shows, f"its operations could not be told apart: {found}"], value)]
    if found:
        return found
    if _alone(seen, region, adapter, factor) is True:
        few = list(_fewest_fused(seen, region, adapter, factor, over).operations)
        if len(few) == 1:
            return [Found(few, local, "operation", [*shows, FUSED], value)]
        return [Found(few, local, "region", [*shows, "only when these operations are fused"], value)]
    in_graph = _named(seen, local, lambda: _in_graph(seen, region, inner, adapter), adapter, factor)
    if in_graph and not isinstance(in_graph, str):
        return in_graph
    return [Found(operations, local, "region", [*shows, "not when its operations are compiled by themselves"], value)]


def _fewest_fused(
    seen: Seen, region: Region, adapter: AcceleratorAdapter, factor: float, over: Callable[[], bool]
) -> Region:
    """The part of a region, wrong only when it is fused, that takes its other operations' values and is wrong still.

    It reads them multiplied by one, which is fused with it as those operations were; the values alone would be stored.
    Operations are left out from the region's end on: with each goes what nothing else takes.
    """
    order = {node: place for place, node in enumerate(seen.graph.nodes)}
    taps, known, found = pieces.taps(region), seen, region

    def without(values: Sequence[fx.Node]) -> tuple[Seen, Region] | None:
        given = pieces.held(known, values)
        left = region_of(given, region.node, order, whole=False)
        more = {node.name for node in left.received if node not in region.received}
        piece = pieces.read_through(pieces.piece_of(given, left, [region.node]), more)
        wrong = any(item.wrong for item in pieces.compared(piece, adapter, factor=factor))
        return (given, left) if wrong else None

    for operation in reversed(region.operations[:-1]):
        if operation in found.members and not over():
            values = [tap for tap in taps if (tap if computes(tap) else taken_by(tap)[0]) is operation]
            smaller = pieces.attempted(partial(without, values))
            if smaller is not None and not isinstance(smaller, str):
                known, found = smaller
    return found


def _named(
    seen: Seen, local: Local, run: Callable[[], Seen], adapter: AcceleratorAdapter, factor: float
) -> list[Found] | str:
    """What is wrong where every value is seen, as nodes of the graph that ran first; or why that did not run."""
    tapped = pieces.attempted(run)
    if isinstance(tapped, str):
        return tapped
    graph = {node.name: node for node in seen.graph.nodes}
    replay = Replay(tapped, factor=factor)
    found: dict[str, Found] = {}
    for inner in replay.locals():
        if inner.wrong:
            single = replay.region(inner.region.node, whole=False)
            named = [graph[node.name] for node in single.operations]
            kind = "operation" if len(named) == 1 else "region"
            shows = ["in the kernel that ran", _told(_alone(tapped, single, adapter, factor))]
            item = Found(named, inner, kind, shows, replay.deviation(inner.region), local.region.node.name)
            item = _or_view(item, tapped, single, adapter) if len(named) == 1 else item
            found.setdefault(_before_conversion(item).nodes[-1].name, item)
    needed = _needed(Replay(seen, factor=factor), local.region, list(found.values()))
    return [_before_conversion(item) for item in needed]


def _or_view(item: Found, seen: Seen, region: Region, adapter: AcceleratorAdapter) -> Found:
    """A single operation, or the view through which it takes something, where that is wrong by itself."""
    found = pieces.wrong_view(seen, filter(is_view, region.members), adapter)
    if found is None:
        return item
    view, local = found
    return Found([view], local, "operation", ["in what takes it", pieces.VIEW])


def _needed(replay: Replay, region: Region, found: list[Found]) -> list[Found]:
    """The few operations whose own errors together give what was seen of a region, of all that are wrong in it.

    An operation may be far beyond its own noise and matter nothing (an approximation of erf, before a rounding to
    bfloat16). Each deviates by its own error alone, not by what came in wrong.
    """
    for item in found:
        if explained(replay, region, [item]):
            return [item]
    if len(found) < 2 or not explained(replay, region, found):
        return found
    kept = list(found)
    for item in sorted(found, key=_size):
        rest = [other for other in kept if other is not item]
        if explained(replay, region, rest):
            kept = rest
    return kept


def _size(item: Found) -> float:
    assert item.local.row is not None
    return math.inf if item.local.row.ratio is None else item.local.row.ratio


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
    """Whether a value that is wrong is right given the errors of operations in its region."""
    members = {node.name for node in region.members}
    deviations = {
        name: item.deviation for item in found if (name := _deviating(item)) in members and item.deviation is not None
    }
    local = replay.compared(region, deviations) if deviations else None
    return local is not None and local.row is not None and not local.wrong


def _deviating(item: Found) -> str:
    """The node whose value deviates: the operation at fault, or which of its several results."""
    node = item.nodes[-1]
    several = isinstance(node.meta.get("val"), (tuple, list))
    return item.local.region.node.name if several else node.name


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
        return f"whether it shows {pieces.ALONE} is not known: {alone}"
    return pieces.ALONE if alone else f"not {pieces.ALONE}"
