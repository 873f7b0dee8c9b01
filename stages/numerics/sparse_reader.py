"""Sparse tensors as the dense ones that they stand for, a piece at a time."""

import torch

from inductor_debug.stages.numerics.entries import Pieces, entries_of
from inductor_debug.stages.numerics.readers import Reader

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

WINDOW = 8 << 20
"""Bytes that are made dense at a time: three sides and what is on the way to them stay far below 64 MiB."""


class SparseReader(Reader):
    """A COO, CSR, CSC, BSR or BSC tensor, hybrid, batched, coalesced or not, of any dtype that has a zero.

    Duplicates are added in float64, complex128 or int64 and rounded to the dtype once (integers wrap, bools are or'ed).
    A missing element is 0, and so is a stored -0.0, as in ``to_dense()``.

    Of each block of entries the range of its flat indices is known. A window of the dense tensor is filled from the
    blocks that reach into it. They are few where entries are stored in row-major order; otherwise they may be all, for
    every window.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        """``tensor``: of one of :data:`LAYOUTS`."""
        super().__init__(tensor.shape, tensor.dtype, tensor.device)
        wide = torch.float64 if tensor.dtype.is_floating_point else torch.int64
        self._wide = torch.complex128 if tensor.dtype.is_complex else wide
        self._entries = entries_of(tensor)
        self._blocks = list(self._entries.blocks()) if self.numel() else []
        bounds = [self._entries.bounds(block) for block in self._blocks]
        self._lowest, self._highest = torch.tensor(bounds, dtype=torch.int64).view(-1, 2).unbind(1)
        self._highest = self._highest + self._entries.extent - 1
        self.release()

    def release(self) -> None:
        self._first, self._window = 0, torch.empty(0, dtype=self._wide, device=self.device)

    def read(self, offset: int, count: int) -> torch.Tensor:
        if not self._first <= offset <= offset + count <= self._first + len(self._window):
            self._fill(offset, count)
        begin = offset - self._first
        return self._window[begin : begin + count].to(self.dtype, copy=True)

    def _fill(self, first: int, count: int) -> None:
        """Make dense what begins at ``first``: as much as a window holds, and ``count`` at least."""
        length = min(max(WINDOW // self._wide.itemsize, count), self.numel() - first)
        if len(self._window) == length:
            self._window.zero_()
        else:
            self.release()
            self._window = torch.zeros(length, dtype=self._wide, device=self.device)
        self._first = first
        for flat, values in self._elements(first, first + length):
            self._window.index_add_(0, flat - first, values)

    def at(self, flat: torch.Tensor) -> torch.Tensor:
        flat = flat.to(self.device)
        found = torch.zeros(len(flat), dtype=self._wide, device=self.device)
        if len(flat):
            for place, values in self._elements(int(flat[0]), int(flat[-1]) + 1):
                nearest = torch.searchsorted(flat, place)  # never beyond the last
                hit = flat[nearest] == place
                found.index_add_(0, nearest[hit], values[hit])
        return found.to(self.dtype)

    def _elements(self, first: int, end: int) -> Pieces:
        """All that is stored between two flat indices, duplicates apart, and in the wide dtype."""
        for number in ((self._lowest < end) & (self._highest >= first)).nonzero()[:, 0].tolist():
            for flat, values in self._entries.elements(self._blocks[number], first, end):
                yield flat, values.to(self._wide)
