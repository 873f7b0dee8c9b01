"""Other inputs for a case that is built: the same tensors with other content.

A draw has values of the tensor itself, so that tokens stay in the vocabulary and pictures in their range: every value
at another place, or few values again and again, for ties. What only has the values 0 and 1 is a mask, and stays.
Special draws put values that arithmetic treats apart into a tenth of each floating tensor; the last one is a batch of
nothing.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.nested import is_strided, map_tensors, memory_of
from inductor_debug.models.random_state import own_numbers

FEW = 8
"""Distinct values of a draw with ties, at most."""

MOST = 100
"""Draws of the tensors' own values, the inputs as they are included."""

SPECIAL = {
    "zeros of both signs": lambda limits: (0.0, -0.0),
    "denormal numbers": lambda limits: (limits.smallest_normal / 2, -limits.smallest_normal / 2),
    "the largest numbers": lambda limits: (limits.max, limits.min),
    "infinities": lambda limits: (math.inf, -math.inf),
    "NaN": lambda limits: (math.nan,),
}
"""Special draws, from number :data:`MOST` on: their names, and their values by a dtype's ``torch.finfo``."""

EMPTY = MOST + len(SPECIAL)
"""Number of the draw without elements: the batch, the leading dimension of the first input, has the size 0."""

_USE = 2**31 + 1
"""Of the case's seed, see :func:`models.random_state.own_numbers`."""


@contextmanager
def drawn_inputs(case: Case, number: int, *others: Case) -> Iterator[bool]:
    """Inside, the case's inputs hold other values; they are the same tensors, and hold their own again on exit.

    Those of the empty draw are other tensors: inside, the case has them in place of its own.

    Args:
        case: on any device.
        number: of the draw; 0 leaves all as it is, even ones have ties, those from :data:`MOST` on are special.
        others: cases whose inputs of the same names get the same values, in their dtype.

    Yields:
        Whether there is an input that varies.
    """
    if number == EMPTY:
        with _empty(case, *others) as found:
            yield found
        return
    mine = _varying(case) if number else {}
    if number >= MOST:
        mine = {name: tensor for name, tensor in mine.items() if tensor.is_floating_point()}
    theirs = [{name: other.named_inputs()[name] for name in mine} for other in others]
    before = [(tensor, tensor.detach().clone()) for held in (mine, *theirs) for tensor in held.values()]
    try:
        with torch.no_grad():
            for place, (name, tensor) in enumerate(mine.items()):
                tensor.copy_(_drawn(tensor.detach(), own_numbers(case.seed, _USE, number, place), number))
                for held in theirs:
                    held[name].copy_(tensor)
        yield bool(mine)
    finally:
        with torch.no_grad():
            for tensor, content in before:
                tensor.copy_(content)


@contextmanager
def _empty(*cases: Case) -> Iterator[bool]:
    """Inside, the inputs of each case have no batch; see :data:`EMPTY`. Yields whether there is an input with one."""
    before = [(case.args, case.kwargs) for case in cases]
    found = [_without_batch(case) for case in cases]
    try:
        for case, empty in zip(cases, found, strict=True):
            case.args, case.kwargs = map_tensors(partial(_replaced, empty), (case.args, case.kwargs))
        yield bool(found[0])
    finally:
        for case, (args, kwargs) in zip(cases, before, strict=True):
            case.args, case.kwargs = args, kwargs


def _without_batch(case: Case) -> dict[int, torch.Tensor]:
    """The inputs whose leading dimension has the size of the first one's, with the size 0 there, by identity."""
    tensors = [x for x in case.named_inputs().values() if is_strided(x) and x.dim() and not x.is_meta]
    taken, sizes = _of_the_module(case), {len(x) for x in tensors[:1]}
    batched = [x for x in tensors if len(x) in sizes and memory_of(x) not in taken]
    return {id(x): x.detach()[:0].clone().requires_grad_(x.requires_grad) for x in batched}


def _replaced(others: dict[int, torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return others.get(id(tensor), tensor)


def _of_the_module(case: Case) -> set[Any]:
    """Memory of its parameters and buffers."""
    return {memory_of(tensor) for tensor in (*case.module.parameters(), *case.module.buffers()) if is_strided(tensor)}


def _varying(case: Case) -> dict[str, torch.Tensor]:
    """Inputs of more than one value and no mask, each memory once; not what shares memory with the module."""
    taken = _of_the_module(case)
    found: dict[str, torch.Tensor] = {}
    for name, tensor in case.named_inputs().items():
        ordinary = is_strided(tensor) and not tensor.is_meta and tensor.is_leaf and not tensor.is_complex()
        if not ordinary or tensor.dtype == torch.bool or _overlaps(tensor) or memory_of(tensor) in taken:
            continue
        taken.add(memory_of(tensor))
        values = tensor.detach().unique()
        if values.numel() > 1 and not (not tensor.is_floating_point() and set(values.tolist()) <= {0, 1}):
            found[name] = tensor
    return found


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements surely lie in one place."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return reach + 1 < tensor.numel()


def _drawn(tensor: torch.Tensor, numbers: numpy.random.Generator, number: int) -> torch.Tensor:
    values, count = tensor.flatten(), tensor.numel()
    order = numbers.permutation(count)
    if number >= MOST:
        special = torch.tensor(list(SPECIAL.values())[number - MOST](torch.finfo(tensor.dtype)), dtype=torch.float64)
        places = torch.from_numpy(order[: max(count // 10, 1)]).to(tensor.device)
        chosen = special[torch.from_numpy(numbers.integers(len(special), size=len(places)))]
        return values.index_put((places,), chosen.to(tensor.dtype).to(tensor.device)).reshape(tensor.shape)
    if number % 2 == 0:
        order = numbers.choice(order[:FEW], count)
    return values[torch.from_numpy(order).to(tensor.device)].reshape(tensor.shape)
