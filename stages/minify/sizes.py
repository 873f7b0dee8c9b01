"""A program at other sizes."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import FakeTensorMode, unlogged_shape_errors
from inductor_debug.stages.minify.candidate import Candidate, Stored, TensorGiven, Whole

RESIDUES = (2, 4, 8, 16, 32, 64, 128)
"""Sizes modulo these are kept where the smallest ones show nothing: of vectors, tiles and aligned memory."""


def smaller(candidate: Candidate) -> list[tuple[int, list[int]]]:
    """Sizes above 1, the largest first, and what to try in place of each, the smallest first."""
    sizes = {size for item in candidate.given if isinstance(item, TensorGiven) for size in item.shape if size > 1}
    return [(size, sorted(filter(size.__gt__, _tried(size)))) for size in sorted(sizes, reverse=True)]


def _tried(size: int) -> set[int]:
    alike = {size % residue + whole for residue in RESIDUES for whole in (0, residue)}
    return {1, 2, 3, size // 8, size // 4, size // 2, *alike} - {0}


def resized(candidate: Candidate, old: int, new: int) -> Candidate | None:
    """The program with one size in place of another, wherever that stands; None where that is no program.

    What is a multiple of the size may follow it, or not: a product of sizes in an argument, then any in an argument,
    then any size too. The first of these that torch takes is given.
    """
    sizes = {size for item in candidate.given if isinstance(item, TensorGiven) for size in item.shape}
    ways: list[tuple[Follows, Follows]] = [
        (lambda size: size % old == 0 and size not in sizes, lambda size: False),
        (lambda size: size % old == 0, lambda size: False),
        (lambda size: size % old == 0, lambda size: size % old == 0),
    ]
    for in_arguments, in_shapes in ways:
        found = _put(candidate, old, new, in_arguments, in_shapes)
        if found is not None:
            return found
    return None


Follows = Callable[[int], bool]
"""Whether a number that is not the size itself follows it."""


def _put(candidate: Candidate, old: int, new: int, in_arguments: Follows, in_shapes: Follows) -> Candidate | None:
    def number(value: Any) -> Any:
        follows = type(value) is int and value > 1 and (value == old or in_arguments(value))
        return value // old * new if follows else value

    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in candidate.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "call_function":
            copies[node].args = fx.node.map_aggregate(copies[node].args, number)
            copies[node].kwargs = fx.node.map_aggregate(copies[node].kwargs, number)
    tensors = {item.name: item.shape for item in candidate.given if isinstance(item, TensorGiven)}
    shapes = {name: tuple(size // old * new if size == old or in_shapes(size) else size for size in shape)
              for name, shape in tensors.items()}  # fmt: skip
    share = min((Fraction(math.prod(shapes[name]), math.prod(shape)) for name, shape in tensors.items()
                 if math.prod(shape)), default=Fraction(1))  # fmt: skip
    given = tuple(
        _resized(item, shapes[item.name], new, share)
        if isinstance(item, TensorGiven)
        else replace(item, number=number(item.number))
        for item in candidate.given
    )
    return inferred(replace(candidate, graph=graph, given=given))


def _resized(item: TensorGiven, shape: tuple[int, ...], new: int, share: Fraction) -> TensorGiven:
    """An input of another shape.

    Whole numbers may be indices, of a dimension or of all elements, and some operations do not check them. So those
    above the new size shrink with the tensor that shrinks most.

    Args:
        item: the input.
        shape: that it gets.
        new: the size that is new.
        share: of its elements that the tensor keeps which shrinks most.
    """
    values, drawn = item.values, item.drawn
    if isinstance(drawn, Whole) and drawn.high > new:
        high = max(new, int(drawn.high * share))
        values = drawn = Whole(min(drawn.low, high - 1), high)
    if shape == item.shape:
        return replace(item, values=values, drawn=drawn)
    values = drawn if isinstance(values, Stored) else values  # there are as many no more
    return replace(item, shape=shape, stride=dense(shape, item.stride), values=values, drawn=drawn)


def dense(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps, in the order of others; what holds one element for many still does."""
    strides, step = [0] * len(shape), 1
    for place in sorted(range(len(shape)), key=lambda place: (like[place], -place)):
        if like[place]:
            strides[place] = step
            step *= max(shape[place], 1)
    return tuple(strides)


def inferred(candidate: Candidate) -> Candidate | None:
    """The program with the shapes that its nodes have; None where torch refuses it."""
    values: dict[fx.Node, Any] = {}
    given = iter(candidate.given)
    try:
        with unlogged_shape_errors(), FakeTensorMode():
            for node in candidate.graph.nodes:
                if node.op == "output":
                    break
                if node.op == "placeholder":
                    item = next(given)
                    values[node] = (torch.empty_strided(item.shape, item.stride, dtype=item.dtype, device=item.device)
                                    if isinstance(item, TensorGiven) else item.number)  # fmt: skip
                else:
                    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                    call = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
                    values[node] = call(*args[node.op == "call_method" :], **kwargs)
                node.meta = {"val": values[node]}
    except Exception:  # noqa: BLE001 - whatever torch raises of sizes that do not fit
        return None
    return candidate
