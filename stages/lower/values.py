"""Intermediate values of one step, as AOTInductor's printer tells them.

``lower/values.csv`` has one row a printed value: see :class:`stages.artifacts.lowered_tables.ValueRow`.
"""

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inductor_debug.models.case import Case
from inductor_debug.models.contents import same_bits
from inductor_debug.stages.artifacts.files import VALUE, VALUES
from inductor_debug.stages.artifacts.lowered_tables import ValueRow
from inductor_debug.stages.backends.adapter import ValuePrinter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.file_names import file_name
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.lower.buffer_contents import Held, Memory, held_rows
from inductor_debug.stages.lower.first_nonfinite import (
    STATES,
    Value,
    births,
    in_column,
    is_unjudged,
    place_of,
    to_learn,
    value_of,
)
from inductor_debug.stages.native_output import copied_stdout
from inductor_debug.stages.torch_internals.printer_output import (
    PrintedValue,
    named_by_path,
    parse_printer_output,
    state_of,
)

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.aot_inductor import Run
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph

STORED_LIMIT = 64 * 2**20
"""Bytes of tensors that level 1 stores in a run."""

SAVE, NAMES = 1, 3
"""Levels of the printer."""


@dataclass
class ValueObserver:
    """Runs compiled graphs and keeps what their printer tells.

    Args:
        level: of the printer.
        kernels: those whose values are kept; empty for all. (The printer itself knows them at level 2 alone.)

    Attributes:
        rows: of ``lower/values.csv``.
        files: path → content, of level 1.
        stored_bytes: of the tensors in them.
        left_out: tensors that were over the limit of what is stored.
        silent: kernels that were launched and of which nothing was told: the printer passes over views and handles.
    """

    level: int
    kernels: Collection[str] = ()
    rows: list[ValueRow] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    stored_bytes: int = 0
    left_out: int = 0
    silent: list[str] = field(default_factory=list)
    _calls: dict[str, int] = field(default_factory=dict)

    def __call__(self, lowered: "LoweredGraph", run: "Run") -> Sequence[Tensor]:
        """What ``run`` returns. Level 1 saves below the working directory, which is another one meanwhile."""
        from inductor_debug.stages.torch_internals.aot_inductor import cache_folder

        with tempfile.TemporaryDirectory(prefix="values-", dir=cache_folder()) as folder:
            text = Path(folder, "printed.txt")
            try:
                with (
                    copied_stdout(text),
                    contextlib.chdir(folder) if self.level == SAVE else contextlib.nullcontext(),
                ):
                    return run()
            finally:
                self._keep(lowered, parse_printer_output(text.read_text(errors="replace")))

    def _keep(self, lowered: "LoweredGraph", printed: Sequence[PrintedValue]) -> None:
        call = self._calls.get(lowered.id, 0)
        self._calls[lowered.id] = call + 1
        memory = Memory(lowered)
        named = [named_by_path(item, lowered.schedule.buffers) if item.path else item for item in printed]
        wanted = {kernel.lower() for kernel in self.kernels}

        def kept(kernel: str) -> bool:
            return not wanted or kernel.lower() in wanted

        told = {item.kernel for item in named} | set(self.silent)
        kernels = dict.fromkeys(launch.kernel for launch in memory.launches)
        self.silent += [name for name in kernels if name not in told and kept(name)]
        launches = list(numbered(named))
        last = {item.path: index for index, (_, item) in enumerate(launches)}
        places = _places(launches, memory)
        before: dict[str, Tensor] = {}
        tensors: dict[tuple[int, str], dict[str, Tensor]] = {}
        rows: list[ValueRow] = []
        held = [_held(item, places.get(launch), memory) for launch, item in launches]
        for index, (launch, item) in enumerate(launches):
            place = places.get(launch)
            row = _row(lowered.id, call, launch, item, held[index])
            row = replace(row, handle=None if place is None else int(memory.launches[place].handle))
            if kept(row.kernel) and item.path and last[item.path] != index:
                note = "overwritten: a later launch of this kernel saved this buffer under the same name"
                row = replace(row, note=note)
            elif kept(row.kernel) and item.path:
                key = (-1 if launch is None else launch, item.kernel)
                file = _file(lowered.id, call, *key)
                row = self._saved(row, item, before, tensors.setdefault(key, {}), file)
            rows.append(row)
        if any(row.state in STATES for row in held_rows(rows) if kept(row.kernel)):
            rows = [row if kept(row.kernel) or last[item.path] != index else _unkept(row, item)
                    for index, (row, (_, item)) in enumerate(zip(rows, launches, strict=True))]  # fmt: skip
            rows = _traced(rows, held, memory)
        self.rows += [row for row in rows if kept(row.kernel)]
        self._store(lowered.id, call, tensors)

    def _saved(
        self, row: ValueRow, item: PrintedValue, before: dict[str, Tensor], kept: dict[str, Tensor], file: str
    ) -> ValueRow:
        """The row of a saved tensor, which is put into ``kept`` where it is to be stored."""
        try:
            tensor = torch.load(item.path, weights_only=True, map_location="cpu")
        except OSError as error:  # torch names the file after kernel and buffer, and looks at no limit
            return replace(row, note=f"not saved by torch: {error.strerror}; level 2 tells of this value")
        row = described(row, tensor)
        from inductor_debug.stages.sides.packing import SAFETENSORS_DTYPES

        if item.when == "before":
            before[item.buffer] = tensor
        if row.written is False:
            return replace(row, note="not stored: not yet written")
        previous = before.pop(item.buffer, None) if item.when == "after" else None
        if previous is not None and same_bits(previous, tensor):
            return replace(row, note="not stored: unchanged by the launch")
        if tensor.dtype not in SAFETENSORS_DTYPES:
            return replace(row, note=f"not stored: safetensors holds no {row.dtype} in every release")
        nbytes = tensor.numel() * tensor.element_size()
        if self.stored_bytes + nbytes > STORED_LIMIT:
            self.left_out += 1
            return replace(row, note=f"not stored: over the limit of {STORED_LIMIT >> 20} MiB in all")
        self.stored_bytes += nbytes
        kept[f"{item.when}.{item.buffer}"] = tensor
        return replace(row, file=file)

    def _store(self, graph_id: str, call: int, tensors: Mapping[tuple[int, str], dict[str, Tensor]]) -> None:
        from inductor_debug.stages.sides.packing import serialise

        self.files |= {_file(graph_id, call, *key): serialise(kept) for key, kept in tensors.items() if kept}

    def artifacts(self) -> dict[str, Any]:
        """The table and the stored tensors."""
        return {VALUES.path: VALUES.frame(self.rows), **self.files}

    def first(self, state: str) -> ValueRow | None:
        """The first row of that state, of memory that was written; None where there is none."""
        return next((row for row in held_rows(self.rows) if row.state == state), None)

    def describe(self) -> str:
        """For the stage's message: how much was told, and where the first NaN or infinity is."""
        found = {(row.graph, row.call, row.launch) for row in self.rows if row.launch is not None}
        launches = counted(len(found), "launch", "launches")
        if self.level == NAMES:
            return f"the printer named {launches}"
        verb = f"saved {counted(len(self.files), 'file')} of" if self.level == SAVE else "told"
        over = f", {self.left_out} over the limit of {STORED_LIMIT >> 20} MiB left out" if self.left_out else ""
        words = f"the printer {verb} {counted(len(self.rows), 'value')} around {launches}{over}"
        words += f", nothing of {', '.join(self.silent)}" if self.silent else ""
        unjudged = sum(is_unjudged(row) for row in held_rows(self.rows))
        words += f"; not established of {counted(unjudged, 'value')}" if unjudged else ""
        for state, name in (("nan", "NaN"), ("inf", "infinity")):
            row = self.first(state)
            if row is not None:
                option = to_learn(row, self.kernels, self.level)
                hint = f"; to learn it, type {option}" if option else ""
                return f"{words}; the first {name} is in {place_of(row)}{hint}"
        return f"{words}; no NaN or infinity among {'the others' if unjudged else 'them'}"


def observe(case: Case, printer: ValuePrinter, observer: ValueObserver) -> float:
    """Take one step of the case, compiled once more with the printer, and keep in ``observer`` what is told.

    Returns:
        the wall seconds of that step, its compilation included.
    """
    compiled = compile_case(case, printer.printing(observer))
    assert compiled.compile_s is not None, "a compiled case was timed"
    return compiled.compile_s


def _traced(rows: Sequence[ValueRow], held: Sequence[Held], memory: Memory) -> list[ValueRow]:
    """All rows of a run, those of filtered kernels too, with the column ``born``; ``held``: of each."""
    seen: dict[Value, set[str]] = defaultdict(set)
    for each, row in zip(held, rows, strict=True):
        value, state = value_of(each), "finite" if row.elements == 0 else row.state
        if value is not None and state:
            seen[value].add(state)
    # a value that changed was written by a launch that was not found
    known = {value: state for value, (state, *others) in seen.items() if not others}
    found = {state: births(memory, known, state) for state in STATES}
    return [
        replace(row, born=in_column(found[row.state].get(value, [value[0]])))
        if row.state in STATES and (value := value_of(each)) in known
        else row
        for each, row in zip(held, rows, strict=True)
    ]


def _unkept(row: ValueRow, item: PrintedValue) -> ValueRow:
    """The row of a filtered kernel's saved tensor, of which its file alone tells."""
    if item.path:
        with contextlib.suppress(OSError):  # torch names the file after kernel and buffer, and looks at no limit
            return described(row, torch.load(item.path, weights_only=True, map_location="cpu"))
    return row


def _places(launches: Sequence[tuple[int | None, PrintedValue]], memory: Memory) -> dict[int | None, int | None]:
    """Number of a launch that was told of → its place among the graph's launches; None where it was not found."""
    told: dict[int, tuple[str, list[str]]] = {}
    for launch, item in launches:
        if launch is not None:
            told.setdefault(launch, (item.kernel, []))[1].append(item.buffer)
    return {launch: memory.follow(*of) for launch, of in told.items()}


def _held(item: PrintedValue, place: int | None, memory: Memory) -> Held:
    if not item.buffer:
        return Held()
    if item.when == "input":
        return Held(True, item.buffer)
    if place is None:
        return Held(True if item.when == "after" else None)
    return memory.before(place, item.buffer) if item.when == "before" else memory.after(place, item.buffer)


def numbered(printed: Sequence[PrintedValue]) -> Iterator[tuple[int | None, PrintedValue]]:
    """Each item with the number of its launch: one begins with another kernel, and with "before" after "after"."""
    launch, previous = -1, PrintedValue("input")
    for item in printed:
        if item.when == "input":
            yield None, item
            continue
        if item.kernel != previous.kernel or (previous.when, item.when) == ("after", "before"):
            launch += 1
        previous = item
        yield launch, item


def described(row: ValueRow, tensor: Tensor) -> ValueRow:
    """The row with what tells of a tensor's values."""
    dtype, shape, stride = str(tensor.dtype).removeprefix("torch."), str(list(tensor.shape)), str(list(tensor.stride()))
    row = replace(row, elements=tensor.numel(), dtype=dtype, shape=shape, stride=stride)
    if tensor.numel() == 0:
        return row
    wide = (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).double()
    low, high = (float(item) for item in torch.aminmax(wide))
    row = replace(row, state=state_of(low, high))
    return row if tensor.is_complex() else replace(row, mean=float(wide.mean()), min=low, max=high)


def _row(graph: str, call: int, launch: int | None, item: PrintedValue, held: Held) -> ValueRow:
    told = {name: getattr(item, name) for name in ("elements", "dtype", "shape", "stride", "device", "mean", "value")}
    return ValueRow(graph, call, launch, item.kernel, item.when, item.buffer, held.written, held.buffer, held.writer,
                    min=item.minimum, max=item.maximum, state=item.state, **told)  # fmt: skip


def _file(graph_id: str, call: int, launch: int, kernel: str) -> str:
    return VALUE.at(graph_id, file_name(f"{call}-{launch:04}-{kernel}", ".safetensors"))
