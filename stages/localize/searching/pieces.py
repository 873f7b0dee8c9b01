"""A part of a graph as a graph of its own, compiled by a backend and run on what the part received."""

import logging
import operator
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import fx

from inductor_debug.models.errors import is_out_of_memory
from inductor_debug.models.torch_private import OpOverload, schema_of
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.parted import laid_out, sizes_of
from inductor_debug.stages.localize.judging.evaluation import Unknown, as_it_is, taken_by
from inductor_debug.stages.localize.judging.replay import Local, Replay
from inductor_debug.stages.localize.judging.sweep import Sweep
from inductor_debug.stages.localize.runs.regions import Region, Seen, computes, region_of
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.formats import same_bits

log = logging.getLogger(__name__)

aten = torch.ops.aten

Result = TypeVar("Result")

ALONE = "when it is compiled alone"
VIEW = f"{ALONE}, as a view of what it takes"
MISREAD = "in what reads it as it is laid out, and not where it is contiguous"


class Part(Protocol):
    """Nodes of a graph, and the nodes whose values they take from outside."""

    @property
    def members(self) -> tuple[fx.Node, ...]: ...

    @property
    def received(self) -> tuple[fx.Node, ...]: ...


@dataclass(frozen=True)
class Piece:
    """A part of a run.

    Attributes:
        module: its graph: what it received in, a tuple of some of its values out. Nodes keep their names.
        inputs: what it received, laid out as the graph says.
        results: names of the nodes whose values it gives.
    """

    module: fx.GraphModule
    inputs: list[Any]
    results: list[str]


def side_by_side(parts: Sequence[Piece]) -> Piece:
    """Several pieces as one, each from what it received itself."""
    if len(parts) == 1:
        return parts[0]
    graph = fx.Graph()
    received: dict[str, fx.Node] = {}
    inputs: list[Any] = []
    for piece in parts:
        for node, value in zip(_placeholders(piece), piece.inputs, strict=True):
            if node.name not in received:  # another name than that of an operation, which may be in another piece
                received[node.name] = graph.placeholder(f"received_{node.name}")
                received[node.name].meta = dict(node.meta)
                inputs.append(value)
    results: dict[str, fx.Node] = {}
    for piece in parts:
        copies = {node: received[node.name] for node in _placeholders(piece)}
        for node in piece.module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                copies[node] = graph.node_copy(node, copies.__getitem__)
        results |= {node.name: copies[node] for node in copies if node.name in piece.results}
    graph.output(tuple(results.values()))
    return Piece(fx.GraphModule(parts[0].module, graph), inputs, list(results))


def apart(parts: Sequence[Piece]) -> tuple[Piece, list[list[str]]]:
    """Several pieces as one, which share nothing, whatever their nodes are called.

    Args:
        parts: of one owner.

    Returns:
        The piece, and the results of each part under the names that they have in it.
    """
    graph = fx.Graph()
    copies: list[dict[fx.Node, fx.Node]] = [{} for _ in parts]
    for piece, mine in zip(parts, copies, strict=True):
        for node in _placeholders(piece):
            mine[node] = graph.node_copy(node)
            mine[node].target = mine[node].name  # the argument's name
    for piece, mine in zip(parts, copies, strict=True):
        for node in piece.module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                mine[node] = graph.node_copy(node, mine.__getitem__)
    results = [{node.name: mine[node] for node in mine if node.name in piece.results}
               for piece, mine in zip(parts, copies, strict=True)]  # fmt: skip
    given = [[own[name] for name in piece.results] for piece, own in zip(parts, results, strict=True)]
    graph.output(tuple(node for each in given for node in each))
    names = [[node.name for node in each] for each in given]
    inputs = [value for piece in parts for value in piece.inputs]
    return Piece(fx.GraphModule(parts[0].module, graph), inputs, [name for each in names for name in each]), names


def piece_of(seen: Seen, part: Part, results: Sequence[fx.Node], contiguous: Container[fx.Node] = ()) -> Piece:
    """A part of a run.

    Args:
        seen: the run, which has the values that the part received.
        part: of its graph.
        results: nodes of it whose values the piece gives.
        contiguous: what it is given contiguous, whatever the graph says.

    Raises:
        KeyError: a received value was not seen.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = []
    sizes = [node for node in sizes_of(seen.graph) if node not in part.received and node.name in seen.inputs]
    for node in (*sizes, *part.received):
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
        if node in contiguous and isinstance(node.meta.get("val"), torch.Tensor):
            copies[node].meta["val"] = node.meta["val"].contiguous()
        value = (seen.inputs if node.op == "placeholder" else seen.values)[node.name]
        inputs.append(_laid_out(value, copies[node].meta.get("val")))
    for node in part.members:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [node for node in results if not writes_input(node)]
    graph.output(tuple(copies[node] for node in results))
    return Piece(fx.GraphModule(seen.owner, graph), inputs, [node.name for node in results])


def read_through(piece: Piece, names: Container[str]) -> Piece:
    """The piece with some of what it takes multiplied by one, which changes no bit, before anything reads it.

    A compiler fuses that with what reads it.
    """
    graph, given = piece.module.graph, _placeholders(piece)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in given:
        if node.name in names:
            with graph.inserting_before(first):
                read = graph.call_function(aten.mul.Tensor, (node, True))  # True: in the dtype that it has
            read.meta = {"val": aten.mul.Tensor(node.meta["val"], True)}
            node.replace_all_uses_with(read)
            read.args = (node, True)
    piece.module.recompile()
    return piece


def held(seen: Seen, nodes: Iterable[fx.Node]) -> Seen:
    """A run with the values of some nodes: as they were seen, or as torch computes them from what was.

    Raises:
        Unknown: one can't be computed.
    """
    order = {node: place for place, node in enumerate(seen.graph.nodes)}
    values: ChainMap[str, Any] = ChainMap({}, seen.values)  # type: ignore[arg-type]
    for node in nodes:
        if node.op == "call_function" and node.name not in values:
            region = region_of(seen, node, order, whole=False)
            value = Sweep(seen, [region], as_it_is).value(region)
            if isinstance(value, Unknown):
                raise value
            values[node.name] = value
    return replace(seen, values=values)


def wrong_view(seen: Seen, views: Iterable[fx.Node], adapter: AcceleratorAdapter) -> tuple[fx.Node, Local] | None:
    """The first of some views that a backend computes otherwise than torch, bit for bit, whatever reads it.

    A graph of a view alone is not compiled: AOTAutograd makes such an output of the input again. So two operations that
    change no number read it, one at a time. It is the view where both differ.
    """
    for view in views:
        found = [attempted(partial(_read, seen, view, read, adapter)) for read in READS]
        wrong = [local for local in found if isinstance(local, Local)]
        if len(wrong) == len(READS):
            return view, wrong[0]
    return None


def misread(seen: Seen, nodes: Sequence[fx.Node], adapter: AcceleratorAdapter) -> dict[fx.Node, Local]:
    """Of values that are not contiguous, those that a backend which is given them reads otherwise than torch.

    As of :func:`wrong_view`, by both of two operations. Given contiguous, it reads them rightly.
    """
    left = list(nodes)
    found: dict[fx.Node, Local] = {}
    for contiguous, wrong in (((), True), (nodes, False)):
        for read in READS:
            if not left:
                return {}
            piece = piece_of(seen, Region(left[0], (), tuple(left)), left, contiguous)
            each = attempted(partial(_reads, piece, left, read, adapter))
            if isinstance(each, str) and len(left) > 1:
                return {key: local for node in nodes for key, local in misread(seen, [node], adapter).items()}
            if isinstance(each, str):
                return {}
            found = {local.region.node: local for local in each if wrong} or found
            left = [local.region.node for local in each if local.wrong is wrong]
    return {node: found[node] for node in left}


Read = tuple[Any, tuple[Any, ...]]
"""An operator that changes no number, and its further arguments."""

READS: tuple[Read, ...] = ((aten.clone.default, ()), (aten.mul.Tensor, (1,)))


def _read(seen: Seen, view: fx.Node, read: Read, adapter: AcceleratorAdapter) -> Local | None:
    """The first result of a view that an operation reads otherwise than torch."""
    several = not isinstance(view.meta.get("val"), torch.Tensor)
    parts = [node for node in view.users if node.target is operator.getitem] if several else [view]
    members = (view, *parts) if several else (view,)
    part = Region(view, members, tuple(taken_by(view)))
    piece = piece_of(held(seen, part.received), part, parts)
    return next((local for local in _reads(piece, parts, read, adapter) if local.wrong), None)


def _reads(piece: Piece, nodes: Sequence[fx.Node], read: Read, adapter: AcceleratorAdapter) -> list[Local]:
    """The results of a piece, those of ``nodes``, as an operation reads them, against torch."""
    graph = piece.module.graph
    (output,) = (node for node in graph.nodes if node.op == "output")
    target, more = read
    reads = []
    with graph.inserting_before(output):
        for node in output.all_input_nodes:
            reads.append(graph.call_function(target, (node, *more)))
            reads[-1].meta = {"val": target(node.meta["val"], *more)}
    output.args = (tuple(reads),)
    piece.module.recompile()
    piece = replace(piece, results=[node.name for node in reads])
    right = piece.module(*piece.inputs)
    ran = run(piece, compiled(piece, adapter))
    return [differing(node, value, ran.values[name])
            for node, value, name in zip(nodes, right, piece.results, strict=True)]  # fmt: skip


def differing(node: fx.Node, right: torch.Tensor, value: torch.Tensor) -> Local:
    """A value against one whose bits it should have."""
    value = value.reshape(right.shape)
    row = compare_tensors(right, value, path=node.name, worst=1)
    verdict = "exact" if bool(same_bits(right, value).all()) else "defect"
    return Local(Region(node, (node,), ()), replace(row, verdict=verdict))


Compiled = Callable[..., Sequence[torch.Tensor]]


def compiled(piece: Piece, adapter: AcceleratorAdapter) -> Compiled:
    """The piece, compiled by a backend.

    Raises:
        Exception: whatever the backend raises.
    """
    examples = [node.meta.get("val", value) for node, value in zip(_placeholders(piece), piece.inputs, strict=True)]
    with torch.no_grad():
        return adapter.compile(piece.module, examples)


def run(piece: Piece, function: Compiled, earlier: Iterable[Sequence[Any]] = ()) -> Seen:
    """The piece as its backend runs it, with its results as what was seen. One kernel is taken to have made them all.

    Args:
        earlier: inputs of calls that come before.

    Raises:
        Exception: whatever the backend raises.
    """
    with torch.no_grad():  # a piece may write into what it is given
        for inputs in earlier:
            function(*map(_copied, inputs))
        inputs = [_copied(value) for value in piece.inputs]
        results = function(*inputs)
    values = dict(zip(piece.results, results, strict=False))  # of a whole graph its own results come after
    left = dict(zip(_placeholders(piece), inputs, strict=True))
    values |= {node.name: left[node.all_input_nodes[0]] for node in piece.module.graph.nodes if writes_input(node)}
    given = {node.name: value for node, value in zip(_placeholders(piece), piece.inputs, strict=True)}
    after = {node.name: value for node, value in zip(_placeholders(piece), inputs, strict=True)
             if isinstance(value, torch.Tensor) and value is not given[node.name] and not _is_written(node)
             and not bool(same_bits(given[node.name], value).all())}  # fmt: skip
    by = dict.fromkeys(values, "piece")
    return Seen("piece", piece.module.graph, piece.module, given, values, by, written=after)


def writes_input(node: fx.Node) -> bool:
    """Whether a node leaves its value in an input of the graph."""
    return node.target is aten.copy_.default and node.all_input_nodes[0].op == "placeholder"


def of_other_kind(ran: Seen, right: Mapping[str, torch.Tensor]) -> list[Local]:
    """The results of a run that have another shape or dtype than right ones; they are taken out of it."""
    found = []
    values: dict[str, Any] = dict(ran.values)
    for node in [item for item in ran.graph.nodes if item.name in values and item.name in right]:
        value, own = values[node.name], right[node.name]
        same = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (own.shape, own.dtype)
        if not same:
            del values[node.name]
            row = compare_tensors(own, value, path=node.name, worst=1)
            found.append(Local(Region(node, (node,), ()), row))
    ran.values = values
    return found


def _is_written(node: fx.Node) -> bool:
    """Whether an operation writes into what a node gives."""
    return any(isinstance(user.target, OpOverload) and schema_of(user.target).is_mutable for user in node.users)


def compared(piece: Piece, adapter: AcceleratorAdapter, *, factor: float) -> list[Local]:
    """What of the piece's results is how far from float64 of what it received; in the graph's order."""
    return Replay(run(piece, compiled(piece, adapter)), factor=factor).locals()


def whole_with(seen: Seen, results: Sequence[fx.Node]) -> Piece:
    """The whole graph of a run with further results: what it gives, and the values of some of its nodes.

    Raises:
        KeyError: an input was not seen.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = []
    for node in seen.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "placeholder":
            inputs.append(_laid_out(seen.inputs[node.name], node.meta.get("val")))
    (output,) = (node for node in seen.graph.nodes if node.op == "output")
    given = fx.map_arg(output.args[0], copies.__getitem__)
    graph.output((*(copies[node] for node in results), *given))
    return Piece(fx.GraphModule(seen.owner, graph), inputs, [node.name for node in results])


def taps(region: Region) -> list[fx.Node]:
    """The members whose values can be results: tensors that were computed."""
    return [
        node
        for node in region.members
        if isinstance(node.meta.get("val"), torch.Tensor)
        and (computes(node) or (node.target is operator.getitem and computes(taken_by(node)[0])))
    ]


def _placeholders(piece: Piece) -> list[fx.Node]:
    return [node for node in piece.module.graph.nodes if node.op == "placeholder"]


def _copied(value: Any) -> Any:
    """A tensor's copy, laid out alike, with gaps where there are; what holds one element for many stays."""
    if not isinstance(value, torch.Tensor) or 0 in value.stride():
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _laid_out(value: Any, like: object) -> Any:
    """A copy with the shape and the strides of the fake one."""
    found = laid_out(value, like)
    return _copied(value) if found is value else found


def attempted(work: Callable[[], Result]) -> Result | str:
    """What ``work`` gives, or in words why a part of the graph could not be compiled or run."""
    try:
        return work()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error) or _is_lost(error):
            raise
        log.info("localize: a part of the graph could not be run", exc_info=True)
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _is_lost(error: Exception) -> bool:
    """Whether a kernel has broken the device for the rest of the process, as one that reads beyond its memory does."""
    if not isinstance(error, torch.AcceleratorError):
        return False
    try:
        torch.accelerator.synchronize()
    except RuntimeError:
        return True
    return False
