"""Whether an operation at fault is wrong at other shapes too: neighbours of its own, compiled by the same backend.

Many faults need a size: a tail that is left out, a counter that overflows, a tile that is padded. So each size of what
the operation receives is replaced, wherever it stands, by those around it: half of it, one less, one more, and the
multiples of a tile below and above. What it received is cut, or repeated, to that. All neighbours of an operation are
one compilation, each a kernel of its own. Where it is laid out otherwise than contiguously, that is varied too.
"""

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from inductor_debug.stages.artifacts.localization import Neighbour
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.judging.replay import Local
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.localize.searching import pieces
from inductor_debug.stages.localize.searching.parts import part_of
from inductor_debug.stages.localize.searching.pieces import Piece

TILE = 32
"""Elements to a multiple of which sizes are cut and filled up; a warp, a stick, a block of a matrix unit."""

LEAST = 4
"""The smallest size that is varied: below stand dimensions of kernels and batches."""

MOST = 12
"""Neighbours that are tried."""

ELEMENTS = 1 << 26
"""What all of them receive, at most."""

Change = tuple[int, int] | None
"""A size and another in its place; None: the same shape, made contiguous."""


def neighbours(seen: Seen, nodes: Sequence[fx.Node], adapter: AcceleratorAdapter, *, factor: float) -> list[Neighbour]:
    """How an operation that is wrong by itself does at other shapes.

    Args:
        seen: the run in which it was found.
        nodes: the operation; several where only together they are wrong.
        adapter: the backend.
        factor: error over floor above which a value is wrong.

    Returns:
        Empty where it is not wrong by itself, or not under another name (then nothing is known of its neighbours, which
        have other names too), or could not be compiled.
    """
    piece = pieces.attempted(lambda: _piece(seen, nodes))
    if not isinstance(piece, Piece):
        return []
    varied = list(_varied(piece))
    variants = [piece, piece, *(variant for _, variant in varied)]
    together = pieces.attempted(lambda: _together(variants, adapter, factor))
    own, again, *states = together if isinstance(together, list) else [_one(it, adapter, factor) for it in variants]
    if own != "wrong" or again != "wrong":
        return []
    found = []
    for (change, _), state in zip(varied, states, strict=True):
        size, other = change or (None, None)
        found.append(Neighbour(size, other, state))
    return found


def _piece(seen: Seen, nodes: Sequence[fx.Node]) -> Piece | None:
    """The operation and what it received; what was not seen of that is as torch computes it from what was."""
    if any(node.op != "call_function" for node in nodes):
        return None
    part = part_of(seen.graph, nodes, views=False)
    several = {node for node in nodes if not isinstance(node.meta.get("val"), torch.Tensor)}
    results = [node for node in part.members if (node in nodes and node not in several)
               or (node.target is operator.getitem and taken_by(node)[0] in several)]  # fmt: skip
    if not results:
        return None
    return pieces.piece_of(pieces.held(seen, part.received), part, results)


def _varied(piece: Piece) -> Iterator[tuple[Change, Piece]]:
    tensors = [value for value in piece.inputs if isinstance(value, torch.Tensor)]
    if any(not value.is_contiguous() for value in tensors):
        inputs = [value.contiguous() if isinstance(value, torch.Tensor) else value for value in piece.inputs]
        contiguous = pieces.attempted(partial(_traced, piece, inputs, None))
        if not isinstance(contiguous, str):
            yield None, contiguous
    sizes = dict.fromkeys(size for value in tensors for size in value.shape if size >= LEAST)
    tried = [(size, other) for others in zip(*map(_around, sizes), strict=True)
             for size, other in zip(sizes, others, strict=True) if other > 1 and other != size]  # fmt: skip
    found, held = 0, sum(value.numel() for value in tensors)
    for size, other in dict.fromkeys(tried):
        inputs = [_resized(value, size, other) for value in piece.inputs]
        held += sum(value.numel() for value in inputs if isinstance(value, torch.Tensor))
        if found == MOST or held > ELEMENTS:
            return
        variant = pieces.attempted(partial(_traced, piece, inputs, (size, other)))
        if not isinstance(variant, str):
            yield (size, other), variant
            found += 1


def _around(size: int) -> tuple[int, ...]:
    """Other sizes; what tells most comes first."""
    below, above = (size - 1) // TILE * TILE, size // TILE * TILE + TILE
    return (size - 1 if size % TILE == 0 else above, size // 2, size + 1, below or size - 1, size - 1)


def _resized(value: Any, size: int, other: int) -> Any:
    """A tensor with every dimension of one size cut, or repeated, to another; its strides in the same order."""
    if not isinstance(value, torch.Tensor) or size not in value.shape:
        return value
    result = value
    for dim, length in enumerate(value.shape):
        if length == size:
            result = result.index_select(dim, torch.arange(other, device=value.device) % size)
    order = sorted(range(value.dim()), key=lambda dim: (-value.stride()[dim], dim))
    laid_out = result.permute(order).contiguous()
    return laid_out.permute([order.index(dim) for dim in range(value.dim())])


def _traced(piece: Piece, inputs: list[Any], change: Change) -> Piece:
    """The piece for other inputs.

    Raises:
        Exception: the operation does not take them.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in piece.module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if change is not None and node.op == "call_function":
            copies[node].args = _sizes(copies[node].args, *change)
    module = fx.GraphModule(piece.module, graph)
    FakeTensorProp(module).propagate(*inputs)
    return Piece(module, inputs, piece.results)


def _sizes(argument: Any, size: int, other: int) -> Any:
    """Arguments with a size replaced where it stands in a list of sizes."""
    if isinstance(argument, tuple | list):
        inner = [other if type(item) is int and item == size and isinstance(argument, list) else
                 _sizes(item, size, other) for item in argument]  # fmt: skip
        return type(argument)(inner)
    return argument


def _together(variants: Sequence[Piece], adapter: AcceleratorAdapter, factor: float) -> list[str]:
    whole, results = pieces.apart(variants)
    FakeTensorProp(whole.module).propagate(*whole.inputs)  # of one fake mode
    found = pieces.compared(whole, adapter, factor=factor)
    return [_told([local for local in found if local.region.node.name in own]) for own in results]


def _one(piece: Piece, adapter: AcceleratorAdapter, factor: float) -> str:
    found = pieces.attempted(lambda: pieces.compared(piece, adapter, factor=factor))
    return found if isinstance(found, str) else _told(found)


def _told(found: Sequence[Local]) -> str:
    if any(local.wrong for local in found):
        return "wrong"
    return next((local.unchecked for local in found if local.row is None), "right" if found else "it was not seen")
