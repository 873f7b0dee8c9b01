"""Every figure of one tensor against another, in one pass, piece by piece, on the tensors' own device.

Extra memory is bounded by :data:`CHUNK` elements, whatever the tensors' size and strides. How a piece is measured is
told in :mod:`stages.kerneldiff.accumulator`.
"""

from collections.abc import Iterator

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
    limit: int | None = None,
    general: bool = False,
) -> Figures:
    """All figures of ``test`` against ``reference`` (equal shapes, any dtypes and devices).

    Where both hold NaN, or the same infinity, the element is equal and adds no error. Where only one side holds NaN
    the error is NaN, where only one side is infinite it is infinite. Figures against gold (``floor``, ``error``,
    ``magnitude``) leave out elements that are not finite in all three.

    Args:
        limit: elements at a time; default :data:`CHUNK` on the CPU, :data:`DEVICE_CHUNK` elsewhere.
        general: True sends every chunk the general way.
    """
    accumulator = Accumulator(reference, test, rtol, atol, worst)
    accumulator.short &= not general
    limit = limit or (CHUNK if reference.device.type == "cpu" else DEVICE_CHUNK)
    tensors = [reference, test] + ([gold] if gold is not None else [])
    for offset, pieces in chunks([tensor.detach() for tensor in tensors], limit):
        accumulator.add(offset, [piece.to(reference.device).resolve_conj().resolve_neg() for piece in pieces])
    return accumulator.finish(reference, test)
