"""Every figure of one tensor against another, in one pass, piece by piece.

Tensors on a CUDA device are compared there where :mod:`stages.numerics.device_pass` can. All others are compared on the
host, to which a piece at a time is brought. Extra memory is bounded by :data:`CHUNK` elements, whatever the tensors'
size and strides, and by what the readers keep of tensors that are not strided (see :mod:`stages.numerics.readers`). How
a piece is measured is told in :mod:`stages.numerics.accumulator`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import torch

from inductor_debug.stages.numerics.accumulator import Accumulator, Figures
from inductor_debug.stages.numerics.boxes import Place, boxes, in_order
from inductor_debug.stages.numerics.device_pass import WIDTHS, DevicePass, readable, supported
from inductor_debug.stages.numerics.readers import Reader, Side

CHUNK = 1 << 13
"""Elements handled at a time on the CPU. Temporaries stay in its cache, and below 10000 elements, from which on BLAS,
and then torch, splits an operation over threads. Their barriers cost many times the work where other processes want the
cores.
"""

SLAB = 1 << 24
"""Elements that a CUDA device copies at a time where its kernels can't read tensors as they are: up to 128 MiB each."""

DEVICE_CHUNK = 1 << 16
"""Elements brought to the host at a time from elsewhere, where each copy is waited for."""


def chunks(sides: Sequence[Side], limit: int = CHUNK) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Equal-shaped sides as (flat offset, 1-D pieces) in row-major order; only a piece is ever made contiguous.

    Readers are asked for the ranges that the strided tensors fall into, and forget what they kept in the end.
    """
    strided = [side for side in sides if isinstance(side, torch.Tensor)]
    if len(strided) == len(sides):
        yield from _split_strided(strided, limit)
        return
    total = sides[0].numel()
    ranges: Iterator[tuple[int, list[torch.Tensor]]] = ((offset, []) for offset in range(0, total, limit))
    try:
        for offset, pieces in _split_strided(strided, limit) if strided else ranges:
            count = len(pieces[0]) if pieces else min(limit, total - offset)
            found = iter(pieces)
            yield offset, [side.read(offset, count) if isinstance(side, Reader) else next(found) for side in sides]
    finally:
        for side in sides:
            if isinstance(side, Reader):
                side.release()


def _split_strided(tensors: list[torch.Tensor], limit: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
    if all(tensor.is_contiguous() for tensor in tensors):
        tensors = [tensor.view(-1) for tensor in tensors]
    yield from _split(tensors, limit, 0)


def _split(tensors: list[torch.Tensor], limit: int, offset: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
    first = tensors[0]
    if first.numel() == 0:
        return
    if first.numel() <= limit:
        yield offset, [tensor.reshape(-1) for tensor in tensors]
        return
    axis = next(index for index, size in enumerate(first.shape) if size > 1)
    row = first.numel() // first.shape[axis]
    step = max(1, limit // row)
    for start in range(0, first.shape[axis], step):
        length = min(step, first.shape[axis] - start)
        pieces = [tensor.narrow(axis, start, length) for tensor in tensors]
        yield from _split(pieces, limit, offset + start * row)


def measure(
    reference: Side,
    test: Side,
    gold: Side | None,
    *,
    rtol: float,
    atol: float,
    worst: int = 8,
    histogram: bool = False,
    limit: int | None = None,
    general: bool = False,
) -> Figures:
    """All figures of ``test`` against ``reference`` (equal shapes, any dtypes and devices).

    Where both hold NaN, or the same infinity, the element is equal and adds no error. Where only one side holds NaN
    the error is NaN, where only one side is infinite it is infinite. Figures against gold (``floor``, ``error``,
    ``magnitude``) leave out elements that are not finite in all three.

    Args:
        reference, test, gold, rtol, atol, worst: as for :func:`begin`.
        histogram: count errors by size too (see :mod:`stages.numerics.histogram`).
        limit: elements at a time; default :data:`CHUNK` on the CPU, :data:`DEVICE_CHUNK` elsewhere.
        general: True sends every piece the general way.
    """
    accumulator = Accumulator(reference, test, rtol, atol, worst, histogram)
    accumulator.short &= not general
    limit = limit or (CHUNK if reference.device.type == "cpu" else DEVICE_CHUNK)
    _walk(accumulator, [reference, test] + ([gold] if gold is not None else []), limit, 0)
    return accumulator.finish()


def begin(
    reference: Side,
    test: Side,
    gold: Side | None,
    *,
    rtol: float,
    atol: float,
    worst: int = 8,
    histogram: bool = False,
) -> Callable[[], Figures]:
    """:func:`measure` in two steps: what this returns gives the figures when it is called.

    On a CUDA device the work is queued here, without waiting, so that many tensors are compared back to back. Those
    that are not contiguous, integers, and those with a reader are not queued. The tensors must not change in between.

    Args:
        reference, test: the sides, of equal shapes, any dtypes and devices.
        gold: the reference in float64, of the same shape; None for no figures against it.
        rtol, atol, worst, histogram: as for :class:`~stages.numerics.accumulator.Accumulator`.
    """
    sides = [reference, test] + ([gold] if gold is not None else [])
    tensors = [side for side in sides if isinstance(side, torch.Tensor)]
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "worst": worst, "histogram": histogram}
    if len(tensors) == len(sides) and tensors[0].is_cuda and supported(tensors, worst):
        return _on_device(tensors, **options)
    return lambda: measure(reference, test, gold, **options)


def _on_device(
    tensors: list[torch.Tensor], *, rtol: float, atol: float, worst: int, histogram: bool
) -> Callable[[], Figures]:
    """Queue the passes over tensors that the kernels can read; others are copied, and passed over, when it is finished.

    What is copied is in row-major order, a slab at a time, and integers as float64, which holds them.
    """
    tensors = [tensor.detach() for tensor in tensors]
    options: dict[str, Any] = {"atol": atol, "rtol": rtol, "histogram": histogram}
    queued = None
    if all(tensor.is_contiguous() and tensor.dtype in WIDTHS for tensor in tensors):
        queued = _queue([tensor.view(-1) for tensor in tensors], 0, options)

    def finish() -> Figures:
        accumulator = Accumulator(tensors[0], tensors[1], rtol, atol, worst, histogram)
        if queued is not None:
            queued(accumulator)
            return accumulator.finish()
        for offset, pieces in chunks(tensors, SLAB):
            _queue(pieces, offset, options)(accumulator)
        return accumulator.finish()

    return finish


def _queue(pieces: Sequence[torch.Tensor], first: int, options: dict[str, Any]) -> Callable[[Accumulator], None]:
    """Queue the passes over 1-D tensors; what this returns adds what they found, and what is left over.

    Args:
        pieces: reference, test and, where there is one, gold.
        first: flat index of their first element.
        options: of every pass.
    """
    read = [readable(piece) for piece in pieces]
    count = read[0].numel()

    def queue(offset: int, end: int, exact: bool) -> DevicePass:
        return DevicePass([tensor[offset:end] for tensor in read], exact=exact, first=first + offset, **options)

    passes: list[DevicePass] = []
    offset = 0
    while offset < count and (begun := queue(offset, count, False)).covered:
        passes.append(begun)
        offset += begun.covered

    def finish(accumulator: Accumulator) -> None:
        for each in passes:
            start = each.first - first
            end = start + each.covered
            found = each.read()
            if not found.valid and not each.exact:
                found = queue(start, end, True).read()
            if found.scaled:
                accumulator.merge(found, end - start, gold=len(read) > 2)
            else:
                _walk(accumulator, [piece[start:end] for piece in pieces], DEVICE_CHUNK, first + start)
        if offset < count:
            _walk(accumulator, [piece[offset:] for piece in pieces], DEVICE_CHUNK, first + offset)

    return finish


def _walk(accumulator: Accumulator, sides: Sequence[Side], limit: int, first: int) -> None:
    """Give the accumulator everything, ``limit`` elements at a time; ``first``: flat index of the first element."""
    with numpy.errstate(all="ignore"):
        for place, pieces in _pieces(sides, limit):
            whole = Place(first + place.first, place.sizes, place.steps)
            accumulator.add(whole, [piece if piece.is_cpu else piece.cpu() for piece in pieces])


def _pieces(sides: Sequence[Side], limit: int) -> Iterator[tuple[Place, list[torch.Tensor]]]:
    """Places, and the pieces there; by flat index where there is a reader, whose ranges those are."""
    tensors = [side for side in sides if isinstance(side, torch.Tensor)]
    if len(tensors) == len(sides):
        return boxes(tensors, limit)
    return ((in_order(offset, len(pieces[0])), pieces) for offset, pieces in chunks(sides, limit))
