"""Every figure of one tensor against another, in one pass, piece by piece, on the tensors' own device.

Extra memory is bounded by :data:`CHUNK` elements, whatever the tensors' size and strides. How a piece is measured is
told in :mod:`stages.kerneldiff.accumulator`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from stages.kerneldiff.accumulator import Accumulator, Figures

CHUNK = 1 << 14
"""Elements handled at a time on the CPU: temporaries stay in its cache, and below the size from which torch splits an
operation over threads (32768 elements), whose barriers cost many times the work where other processes want the cores.
"""

DEVICE_CHUNK = 1 << 18
"""Elements handled at a time elsewhere, where starting an operation costs more: 2 MiB a float64 temporary."""


def chunks(tensors: list[torch.Tensor], limit: int = CHUNK) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Equal-shaped tensors as (flat offset, 1-D pieces) in row-major order; only a piece is ever made contiguous."""
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
    reference: torch.Tensor,
    test: torch.Tensor,
    gold: torch.Tensor | None,
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
        histogram: count errors by size too (see :mod:`stages.kerneldiff.histogram`).
        limit: elements at a time; default :data:`CHUNK` on the CPU, :data:`DEVICE_CHUNK` elsewhere.
        general: True sends every chunk the general way.
    """
    accumulator = Accumulator(reference, test, rtol, atol, worst, histogram)
    accumulator.short &= not general
    limit = limit or (CHUNK if reference.device.type == "cpu" else DEVICE_CHUNK)
    _walk(accumulator, [reference, test] + ([gold] if gold is not None else []), limit, 0)
    return accumulator.finish(reference, test)


def begin(
    reference: torch.Tensor,
    test: torch.Tensor,
    gold: torch.Tensor | None,
    *,
    rtol: float,
    atol: float,
    worst: int = 8,
    histogram: bool = False,
) -> Callable[[], Figures]:
    """:func:`measure` in two steps: what this returns gives the figures when it is called.

    On a CUDA device the work is queued here, without waiting, so that many tensors are compared back to back. The
    tensors must not change in between.
    """
    tensors = [tensor.detach() for tensor in ([reference, test] + ([gold] if gold is not None else []))]
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "worst": worst, "histogram": histogram}
    if reference.is_cuda:
        from stages.kerneldiff.device_pass import supported

        if supported(tensors, worst) and all(tensor.is_contiguous() for tensor in tensors):
            return _on_device(tensors, **options)
    return lambda: measure(reference, test, gold, **options)


def _on_device(
    tensors: list[torch.Tensor], *, rtol: float, atol: float, worst: int, histogram: bool
) -> Callable[[], Figures]:
    """Queue the passes over contiguous tensors, and finish them, and the few elements behind the last tile, later."""
    from stages.kerneldiff.device_pass import DevicePass

    flat = [tensor.view(-1) for tensor in tensors]
    count = flat[0].numel()
    options: dict[str, Any] = {"atol": atol, "rtol": rtol, "histogram": histogram}

    def queue(offset: int, end: int, exact: bool) -> DevicePass:
        return DevicePass([tensor[offset:end] for tensor in flat], exact=exact, first=offset, **options)

    passes: list[DevicePass] = []
    offset = 0
    while offset < count and (begun := queue(offset, count, False)).covered:
        passes.append(begun)
        offset += begun.covered

    def finish() -> Figures:
        accumulator = Accumulator(tensors[0], tensors[1], rtol, atol, worst, histogram)
        for each in passes:
            start, end = each.first, each.first + each.covered
            found = each.read()
            if not found.valid and not each.exact:
                found = queue(start, end, True).read()
            if found.scaled:
                accumulator.merge(found, end - start, gold=len(flat) > 2)
            else:
                _walk(accumulator, [tensor[start:end] for tensor in flat], DEVICE_CHUNK, start)
        if offset < count:
            _walk(accumulator, [tensor[offset:] for tensor in flat], DEVICE_CHUNK, offset)
        return accumulator.finish(tensors[0], tensors[1])

    return finish


def _walk(accumulator: Accumulator, tensors: list[torch.Tensor], limit: int, first: int) -> None:
    """Give the accumulator everything, ``limit`` elements at a time; ``first``: flat index of the first element."""
    device = tensors[0].device
    for offset, pieces in chunks([tensor.detach() for tensor in tensors], limit):
        accumulator.add(first + offset, [piece.to(device).resolve_conj().resolve_neg() for piece in pieces])
