"""Whose value a buffer's memory holds around a launch: followed through reuse in the generated code."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inductor_debug.stages.artifacts.lowered_tables import ValueRow
from inductor_debug.stages.torch_internals.generated_kernels import split_cpp_kernels
from inductor_debug.stages.torch_internals.generated_launches import Launch, find_launches, reused_buffers
from inductor_debug.stages.torch_internals.printer_output import without_printing

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph


@dataclass(frozen=True)
class Held:
    """What a buffer's memory holds.

    Attributes:
        written: False: nothing yet; None: not known.
        buffer: whose value it is: another's where the memory is reused.
        writer: ``kernel:handle`` of the launch that wrote it; "" for a graph's input, and where it is not known.
    """

    written: bool | None = None
    buffer: str = ""
    writer: str = ""


class Memory:
    """The launches of one graph, in order, and what they write. One for each run of the graph.

    Args:
        lowered: with the generated C++, the printer's lines in it or not.
    """

    def __init__(self, lowered: "LoweredGraph") -> None:
        lowered = replace(lowered, source_code=without_printing(lowered.source_code))
        self.launches = find_launches(lowered, {kernel.name for kernel in split_cpp_kernels(lowered.source_code)})
        self._buffers = lowered.schedule.buffers
        self._renamed = lowered.schedule.renamed
        self._reused = reused_buffers(lowered.source_code, self._buffers)
        self._next = 0

    def follow(self, kernel: str, buffers: Collection[str]) -> int | None:
        """The index of the next launch of a kernel that is given these buffers; None where there is none."""
        known = set(buffers) & self._buffers.keys()
        for index in range(self._next, len(self.launches)):
            launch = self.launches[index]
            if launch.kernel == kernel and known <= {*launch.given, *launch.reused}:
                self._next = index + 1
                return index
        return None

    def dtype_of(self, buffer: str) -> str:
        """A buffer's dtype without the ``torch.`` prefix; "" where it is not known."""
        return self._buffers[buffer].dtype if buffer in self._buffers else ""

    def before(self, index: int, buffer: str) -> Held:
        """What a buffer holds when a launch begins: its own value, what its memory had before, or nothing yet."""
        found = self._held(self.launches[:index], buffer)
        return Held(False) if found.written is None and buffer in self.launches[index].writes else found

    def after(self, index: int, buffer: str) -> Held:
        """What a buffer holds when a launch has ended."""
        return replace(self._held(self.launches[: index + 1], buffer), written=True)

    def _held(self, launches: Sequence[Launch], buffer: str) -> Held:
        names = [buffer]
        while names[-1] in self._reused and self._reused[names[-1]] not in names:
            names.append(self._reused[names[-1]])
        for name in names:
            wanted = {name, self._renamed.get(name, name)}
            writer = next((launch for launch in reversed(launches) if not wanted.isdisjoint(launch.writes)), None)
            if writer is not None:
                return Held(True, name, writer.key)
            if name in self._buffers and self._buffers[name].role != "buffer":
                return Held(True, name)
        return Held()


def held_rows(rows: Sequence[ValueRow]) -> Iterator[ValueRow]:
    """Rows of ``lower/values.csv`` that tell of memory that was written."""
    return (row for row in rows if row.when != "before" or row.written)


def brought_by(row: ValueRow) -> str:
    """``kernel:handle`` of the launch that wrote what a row's launch was given; "" where the launch wrote it itself."""
    return "" if row.handle is None or row.writer == f"{row.kernel}:{row.handle}" else row.writer
