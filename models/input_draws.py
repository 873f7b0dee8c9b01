"""Other inputs for a case that is built: the same tensors with other content.

A draw has values of the tensor itself, so that tokens stay in the vocabulary and pictures in their range: every value
at another place, or few values again and again, for ties. What only has the values 0 and 1 is a mask, and stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.nested import is_strided, memory_of
from inductor_debug.models.random_state import own_numbers

FEW = 8
"""Distinct values of a draw with ties, at most."""

_USE = 2**31 + 1
"""Of the case's seed, see :func:`models.random_state.own_numbers`."""


@contextmanager
def drawn_inputs(case: Case, number: int, *others: Case) -> Iterator[bool]:
    """Inside, the case's inputs hold other values; they are the same tensors, and hold their own again on exit.

    Args:
        case: on any device.
        number: of the draw; 0 leaves all as it is, even ones have ties.
        others: cases whose inputs of the same names get the same values, in their dtype.

    Yields:
        Whether there is an input that varies.
    """
    mine = _varying(case) if number else {}
    theirs = [{name: other.named_inputs()[name] for name in mine} for other in others]
    before = [(tensor, tensor.detach().clone()) for held in (mine, *theirs) for tensor in held.values()]
    try:
        with torch.no_grad():
            for place, (name, tensor) in enumerate(mine.items()):
                tensor.copy_(_drawn(tensor.detach(), own_numbers(case.seed, _USE, number, place), ties=number % 2 == 0))
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


def _drawn(tensor: torch.Tensor, numbers: numpy.random.Generator, *, ties: bool) -> torch.Tensor:
    values, count = tensor.flatten(), tensor.numel()
    order = numbers.choice(numbers.permutation(count)[:FEW], count) if ties else numbers.permutation(count)
    return values[torch.from_numpy(order).to(tensor.device)].reshape(tensor.shape)
