"""Other inputs for a case that is built: the same tensors with other content.

A draw has values of the tensor itself, so that tokens stay in the vocabulary and pictures in their range: every value
at another place, or few values again and again, for ties. What only has the values 0 and 1 is a mask, and stays.
Special draws put values that arithmetic treats apart into a tenth of each floating tensor.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.nested import is_strided, memory_of
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

_USE = 2**31 + 1
"""Of the case's seed, see :func:`models.random_state.own_numbers`."""


@contextmanager
def drawn_inputs(case: Case, number: int, *others: Case) -> Iterator[bool]:
    """Inside, the case's inputs hold other values; they are the same tensors, and hold their own again on exit.

    Args:
        case: on any device.
        number: of the draw; 0 leaves all as it is, even ones have ties, those from :data:`MOST` on are special.
        others: cases whose inputs of the same names get the same values, in their dtype.

    Yields:
        Whether there is an input that varies.
    """
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


def _varying(case: Case) -> dict[str, torch.Tensor]:
    """Inputs of more than one value and no mask, each memory once; not what shares memory with the module."""
    taken = {memory_of(tensor) for tensor in (*case.module.parameters(), *case.module.buffers()) if is_strided(tensor)}
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
