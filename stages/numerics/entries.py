"""What a sparse tensor stores, by flat index of the dense tensor, a bounded piece at a time.

Every layout is a list of *entries*: dense blocks of equal size. An entry starts at a flat index, its origin. It is
``run`` neighbors, then ``run`` more that lie ``pitch`` elements behind those, and so on. Those are the rows of a BSR
block; the dense dims of a hybrid tensor are one run.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch

from inductor_debug.models.torch_private import coo_parts
from inductor_debug.stages.numerics.readers import span

PIECE = 1 << 14
"""Entries, and elements of them, handled at a time."""

Block = tuple[int, int]
"""Entries from the first to before the second."""

Pieces = Iterator[tuple[torch.Tensor, torch.Tensor]]
"""int64 flat indices ``[n]``, no order, and the values there, ``[n]``."""


class Entries(ABC):
    """The entries of one tensor, in the order in which they are stored; any order, any duplicates.

    Attributes:
        count: how many entries there are.
        values: ``[*lead, *entry]``, of any strides; the product of ``lead`` is ``count``.
        size: elements of an entry.
        run, pitch: see above.
        extent: elements from an entry's first to its last, both included.
    """

    def __init__(self, values: torch.Tensor, lead: int, run: int, pitch: int) -> None:
        """``lead``: how many leading dims of ``values`` number the entries."""
        self.values, self.lead = values, values.shape[:lead]
        self.count, self.size = self.lead.numel(), values.shape[lead:].numel()
        self.run, self.pitch = run, pitch
        self.extent = (self.size // max(run, 1) - 1) * pitch + run

    def blocks(self) -> Iterator[Block]:
        """All entries in blocks of at most :data:`PIECE`."""
        for start in range(0, self.count, PIECE):
            yield start, min(start + PIECE, self.count)

    @abstractmethod
    def origins(self, block: Block) -> torch.Tensor:
        """int64 ``[entries]``: where each of the block's entries begins."""

    def bounds(self, block: Block) -> tuple[int, int]:
        """No origin in the block is below the first, none above the second."""
        lowest, highest = torch.aminmax(self.origins(block))
        return int(lowest), int(highest)

    def inside(self, block: Block, first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the block, the entries that reach into flat indices ``first`` to ``end``, and their origins."""
        origins = self.origins(block)
        hit = ((origins > first - self.extent) & (origins < end)).nonzero()[:, 0]
        return hit + block[0], origins[hit]

    def elements(self, block: Block, first: int, end: int) -> Pieces:
        """Everything that the block stores between two flat indices."""
        entries, origins = self.inside(block, first, end)
        if self.size > PIECE:
            for entry, origin in zip(entries.tolist(), origins.tolist(), strict=True):
                yield from self._elements_of(entry, origin, first, end)
            return
        for some, begin in zip(*(each.split(PIECE // self.size) for each in (entries, origins)), strict=True):
            index = torch.unravel_index(some, self.lead) if len(self.lead) > 1 else (some,)
            values = self.values[index].reshape(-1)
            if self.size == 1:
                yield begin, values
                continue
            flat = (begin[:, None] + self._offsets(0, self.size)).view(-1)
            kept = (flat >= first) & (flat < end)
            yield flat[kept], values[kept]

    def _elements_of(self, entry: int, origin: int, first: int, end: int) -> Pieces:
        """The same of one entry that is larger than a piece."""
        start, stop = (self._inner(bound - origin) for bound in (first, end))
        for inner in range(start, stop, PIECE):
            last = min(inner + PIECE, stop)
            begin = entry * self.size
            yield origin + self._offsets(inner, last), span(self.values, begin + inner, begin + last)

    def _inner(self, offset: int) -> int:
        """How many of an entry's elements lie less than ``offset`` behind its origin."""
        rows, rest = divmod(max(offset, 0), self.pitch)
        return min(rows * self.run + min(rest, self.run), self.size)

    def _offsets(self, start: int, stop: int) -> torch.Tensor:
        """Of an entry's elements ``start`` to ``stop``, how far each is behind the origin."""
        inner = torch.arange(start, stop, device=self.values.device)
        if self.run == self.size:
            return inner
        rows = torch.div(inner, self.run, rounding_mode="floor")
        return inner + rows * (self.pitch - self.run)


class Coordinates(Entries):
    """COO, coalesced or not; an entry is all of the dense dims at one index of the sparse ones."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.indices, values = coo_parts(tensor)
        size = values.shape[1:].numel()
        super().__init__(values, 1, size, max(size, 1))
        self.sizes = tensor.shape[: tensor.sparse_dim()]

    def origins(self, block: Block) -> torch.Tensor:
        found = torch.zeros(block[1] - block[0], dtype=torch.int64, device=self.values.device)
        for size, index in zip(self.sizes, self.indices, strict=True):
            found.mul_(size).add_(index[slice(*block)])
        return found.mul_(self.size)


class Compressed(Entries):
    """CSR, CSC, BSR and BSC, with batch and dense dims; an entry is a block, or an element of CSR's or CSC's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        blocked = tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)
        self.compressed = tensor.crow_indices() if self.by_row else tensor.ccol_indices()
        self.plain_indices = tensor.col_indices() if self.by_row else tensor.row_indices()
        values = tensor.values()
        batch = self.plain_indices.ndim - 1
        rows, columns = values.shape[batch + 1 : batch + 3] if blocked else (1, 1)
        dense = tensor.shape[batch + 2 :].numel()
        super().__init__(values, batch + 1, columns * dense, tensor.shape[batch + 1] * dense)
        self.band = rows * self.pitch  # elements from one row of blocks to the next
        self.matrix = tensor.shape[batch] * self.pitch
        self.each = self.plain_indices.shape[-1]  # entries of one matrix

    def blocks(self) -> Iterator[Block]:
        """Part of one matrix each, or several whole ones."""
        if not self.count:
            return
        # What is not contiguous is searched through by copies, and those of many matrices would be too large.
        step = max(1, PIECE // self.each) * self.each if self.compressed.is_contiguous() else self.each
        for start in range(0, self.count, step):
            stop = min(start + step, self.count)
            for first in range(start, stop, PIECE) if step == self.each else (start,):
                yield first, min(first + PIECE, stop) if step == self.each else stop

    def origins(self, block: Block) -> torch.Tensor:
        first, last = block[0] // self.each, (block[1] - 1) // self.each
        indices = span(self.plain_indices, *block).to(torch.int64)
        begin = block[0] - first * self.each
        wanted = torch.arange(begin, begin + (len(indices) if first == last else self.each), device=indices.device)
        matrices = torch.arange(first, last + 1, device=indices.device)[:, None]
        lines = self._lines(matrices, wanted).view(-1)
        origins = self._origins(lines, indices) if self.by_row else self._origins(indices, lines)
        return (origins.view(len(matrices), -1) + matrices * self.matrix).view(-1)

    def _origins(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return rows * self.band + columns * self.run

    def _lines(self, matrices: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
        """The row (by column: the column) of entries of some matrices, as int64 ``[matrices, entries]``."""
        width = self.compressed.shape[-1]
        first, last = int(matrices[0]), int(matrices[-1])
        entries = entries.to(self.compressed.dtype).expand(len(matrices), -1).contiguous()
        step = width if self.compressed.is_contiguous() else PIECE
        below = torch.full_like(entries, -1, dtype=torch.int64)
        for start in range(0, width, step):  # its place among all is the sum of those among the parts
            stop = min(start + step, width)
            part = span(self.compressed, first * width + start, last * width + stop)
            below += torch.searchsorted(part.view(len(matrices), -1), entries, right=True)
        return below

    def bounds(self, block: Block) -> tuple[int, int]:
        first, last = block[0] // self.each, (block[1] - 1) // self.each
        if first < last:
            return first * self.matrix, (last + 1) * self.matrix - 1
        lowest, highest = (int(bound) for bound in torch.aminmax(span(self.plain_indices, *block)))
        begin = first * self.matrix
        if not self.by_row:
            return begin + lowest * self.band, begin + (highest + 1) * self.band - 1
        ends = torch.tensor([block[0], block[1] - 1], device=self.plain_indices.device) - first * self.each
        top, bottom = self._lines(torch.tensor([first]), ends)[0].tolist()
        if top < bottom:
            return begin + top * self.band, begin + (bottom + 1) * self.band - 1
        return begin + top * self.band + lowest * self.run, begin + top * self.band + highest * self.run

    def inside(self, block: Block, first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = block[0] // self.each
        if self.by_row or (block[1] - 1) // self.each > matrix:
            return super().inside(block, first, end)
        # By column any window meets all entries. Their rows are known, so that few of their columns are looked up.
        rows, begin = span(self.plain_indices, *block), matrix * self.matrix
        top, bottom = (first - begin) // self.band, (end - 1 - begin) // self.band
        hit = ((rows >= top) & (rows <= bottom)).nonzero()[:, 0]
        entries = hit + block[0]
        columns = self._lines(torch.tensor([matrix]), entries - matrix * self.each)[0]
        origins = self._origins(rows[hit].to(torch.int64), columns) + begin
        kept = ((origins > first - self.extent) & (origins < end)).nonzero()[:, 0]
        return entries[kept], origins[kept]


def entries_of(tensor: torch.Tensor) -> Entries:
    """The entries of a COO, CSR, CSC, BSR or BSC tensor."""
    return Coordinates(tensor) if tensor.layout == torch.sparse_coo else Compressed(tensor)
