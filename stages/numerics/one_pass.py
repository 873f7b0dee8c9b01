"""Every figure of one tensor against another, in one pass, piece by piece.

Tensors on a CUDA device are compared there where :mod:`stages.numerics.device.device_pass` can. All others are compared
on the host, to which a piece at a time is brought. Extra memory is bounded by :data:`CHUNK` elements, whatever the
tensors' size and strides, and by what the readers keep of tensors that are not strided (see
:mod:`stages.numerics.readers`). How a piece is measured is told in :mod:`stages.numerics.accumulator`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy
import torch

from inductor_debug.stages.numerics.accumulator import Accumulator, Figures
from inductor_debug.stages.numerics.boxes import Place, boxes, in_memory, in_order
from inductor_debug.stages.numerics.device.device_pass import DevicePass, flat, supported, to_host
from inductor_debug.stages.numerics.readers import Reader, Side
from inductor_debug.stages.numerics.worst import Candidate

CHUNK = 1 << 13
"""Elements handled at a time on the CPU. Temporaries stay in its cache, and below 10000 elements, from which on BLAS,
and then torch, splits an operation over threads. Their barriers cost many times the work where other processes want the
cores.
"""

SLAB = 1 << 24
"""Elements that a CUDA device copies at a time where its kernels can't read tensors as they are: up to 128 MiB each, of
two slabs at a time."""

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
    _walk(accumulator, [reference, test] + ([gold] if gold is not None else []), limit)
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
    alone: bool = False,
) -> Callable[[], Figures]:
    """:func:`measure` in two steps: what this returns gives the figures when it is called.

    On a CUDA device the work is queued here, without waiting, so that many tensors are compared back to back. Those
    that must be copied, and those with a reader, are not queued. The tensors must not change in between.

    Args:
        reference, test: the sides, of equal shapes, any dtypes and devices.
        gold: the reference in float64, of the same shape; None for no figures against it.
        rtol, atol, worst, histogram: as for :class:`~stages.numerics.accumulator.Accumulator`.
        alone: no other tensors follow soon.
    """
    if isinstance(reference, torch.Tensor) and reference.is_cuda:
        sides = [reference, test] if gold is None else [reference, test, gold]
        tensors = [side for side in sides if isinstance(side, torch.Tensor)]
        if len(tensors) == len(sides) and supported(tensors, worst):
            return _on_device(tensors, rtol=rtol, atol=atol, worst=worst, histogram=histogram, alone=alone)
    return lambda: measure(reference, test, gold, rtol=rtol, atol=atol, worst=worst, histogram=histogram)


def _on_device(
    tensors: list[torch.Tensor], *, rtol: float, atol: float, worst: int, histogram: bool, alone: bool = False
) -> Callable[[], Figures]:
    """Queue the passes over tensors that fill their memory in one order; others are copied when it is finished.

    Those are read in the order of their memory. Of errors that are equal, the first in memory are then the worst, which
    need not be the first by index. What is copied is in row-major order, a slab at a time.
    """
    tensors = [tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]
    options: dict[str, Any] = {"atol": atol, "rtol": rtol, "histogram": histogram, "alone": alone}
    place = in_memory(tensors)
    queued = None if place is None else _queue(tensors, place, options)
    accumulator = Accumulator(tensors[0], tensors[1], rtol, atol, worst, histogram)

    def finish() -> Figures:
        if queued is not None:
            return queued(accumulator) or accumulator.finish()
        begun: deque[Callable[[Accumulator], Figures | None]] = deque()
        for offset, pieces in chunks(tensors, SLAB):
            options["alone"] = False
            begun.append(_queue([piece.contiguous() for piece in pieces], in_order(offset, len(pieces[0])), options))
            if len(begun) > 1:
                begun.popleft()(accumulator)
        last = [each(accumulator) for each in begun]
        return (last[0] if len(last) == 1 else None) or accumulator.finish()

    return finish


def _queue(
    tensors: Sequence[torch.Tensor], place: Place, options: dict[str, Any]
) -> Callable[[Accumulator], Figures | None]:
    """Queue the passes over tensors; what this returns adds what they found, and what is left over.

    Where one pass found all there is to find, and that is all of a tensor, it gives the figures instead.

    Args:
        tensors: reference, test and, where there is one, gold; each fills a range of memory.
        place: of their elements.
        options: of every pass.
    """
    count = tensors[0].numel()

    def part(start: int, end: int) -> Sequence[torch.Tensor]:
        if start == 0 and end == count and torch.bool not in [tensor.dtype for tensor in tensors]:
            return tensors
        sides = [flat(tensor)[start:end] for tensor in tensors]
        return [side.view(torch.uint8) if side.dtype == torch.bool else side for side in sides]

    passes: list[DevicePass] = []
    offset = 0
    while offset < count and (begun := DevicePass(part(offset, count), care="quick", first=offset, **options)).covered:
        passes.append(begun)
        offset += begun.covered
    rest = to_host([flat(tensor)[offset:] for tensor in tensors]) if offset < count else None

    def finish(accumulator: Accumulator) -> Figures | None:
        for each in passes:
            start, end = each.first, each.first + each.covered
            found = each.read()
            while (care := found.after(each.care, each.dtype)) is not None:
                each = DevicePass(part(start, end), care=care, first=start, **options)
                found = each.read()
            if found.scaled:
                found.worst = _placed(found.worst, place)
                if each.care == "quick" and end - start == accumulator.figures.elements and not _more(tensors, options):
                    return accumulator.whole(found)
                accumulator.merge(found, end - start, gold=len(tensors) > 2)
            else:
                _walk(accumulator, [flat(side)[start:end] for side in tensors], DEVICE_CHUNK, place.part(start, end))
        if rest is not None:
            _walk(accumulator, rest(), DEVICE_CHUNK, place.part(offset, count))
        return None

    return finish


def _more(tensors: Sequence[torch.Tensor], options: dict[str, Any]) -> bool:
    """Whether more is asked for than the figures of two sides."""
    return len(tensors) > 2 or options["histogram"]


def _placed(worst: list[Candidate], place: Place) -> list[Candidate]:
    """The worst elements of a pass, whose indices are positions in memory, by flat row-major index."""
    if place.steps == (1,) and not place.first:
        return worst
    indices = place.flat(numpy.array([item[1] for item in worst], dtype=numpy.int64)).tolist()
    return [(item[0], index, item[2], item[3]) for item, index in zip(worst, indices, strict=True)]


@numpy.errstate(all="ignore")
def _walk(accumulator: Accumulator, sides: Sequence[Side], limit: int, whole: Place | None = None) -> None:
    """Give the accumulator everything, ``limit`` elements at a time; ``whole``: place of these, where it is a part."""
    for place, pieces in _pieces(sides, limit):
        if whole is not None:
            place = whole.part(place.first, place.first + pieces[0].numel())
        accumulator.add(place, [piece if piece.is_cpu else piece.cpu() for piece in pieces])


def _pieces(sides: Sequence[Any], limit: int) -> Iterable[tuple[Place, Sequence[torch.Tensor]]]:
    """Places, and the pieces there; by flat index where there is a reader, whose ranges those are."""
    for side in sides:
        if isinstance(side, Reader):
            return ((in_order(offset, len(pieces[0])), pieces) for offset, pieces in chunks(sides, limit))
    count = sides[0].numel()
    return boxes(sides, limit) if count > limit else [(in_order(0, count), sides)] if count else []
