"""Flat row-major ranges of a tensor, in bounded memory whatever its layout.

A strided tensor is read by views of it. A tensor that is not is stood for by a :class:`Reader`, which makes dense only
the range that it is asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch


class Reader(ABC):
    """A tensor that is not strided, read as the dense one that it stands for.

    Attributes:
        shape, dtype, device: of that dense tensor.
    """

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return self.shape.numel()

    @abstractmethod
    def read(self, offset: int, count: int) -> torch.Tensor:
        """``count`` elements from flat index ``offset``, row-major: a 1-D tensor of its own memory.

        Quickest where ranges are read in ascending order.
        """

    @abstractmethod
    def at(self, flat: torch.Tensor) -> torch.Tensor:
        """The elements at flat indices.

        Args:
            flat: int64 ``[n]`` on any device, ascending, none twice.

        Returns:
            ``[n]`` of :attr:`dtype` on :attr:`device`.
        """

    def release(self) -> None:  # noqa: B027 - most have nothing to forget
        """Forget what was kept for the next :meth:`read`."""


Side = torch.Tensor | Reader
"""What is compared: a strided tensor, or a reader for one that is not."""


def span(side: Side, start: int, stop: int) -> torch.Tensor:
    """Elements ``start`` to ``stop`` in row-major order, 1-D; what is not contiguous is copied, only that far."""
    if isinstance(side, Reader):
        return side.read(start, stop - start)
    if side.is_contiguous():
        return side.view(-1)[start:stop]
    row = side.numel() // side.shape[0]
    first, last = start // row, (stop - 1) // row
    if first == last:
        return span(side[first], start - first * row, stop - first * row)
    parts = []
    if start % row:
        parts.append(span(side[first], start - first * row, row))
        first += 1
    whole = stop // row
    if whole > first:
        parts.append(side[first:whole].reshape(-1))
    if stop % row:
        parts.append(span(side[whole], 0, stop - whole * row))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def unravel(flat: int, shape: Sequence[int]) -> list[int]:
    """The index of the ``flat``-th element in row-major order."""
    index = []
    for size in reversed(shape):
        flat, along = divmod(flat, size)
        index.append(along)
    return index[::-1]


def region(side: Side, where: list[int | slice]) -> torch.Tensor:
    """``side[where]``, for one index, or a slice with a start and a stop, a dim; bounded by its own size."""
    if isinstance(side, torch.Tensor):
        return side[tuple(where)]
    flat = torch.zeros((), dtype=torch.int64)
    for size, index in zip(side.shape, where, strict=True):
        flat = flat * size
        flat = flat[..., None] + torch.arange(index.start, index.stop) if isinstance(index, slice) else flat + index
    return side.at(flat.reshape(-1)).view(flat.shape)
