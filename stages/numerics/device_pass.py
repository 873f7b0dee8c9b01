"""The one-pass comparison of two tensors on a CUDA device: started without waiting, read when it is needed.

All launches of a pass are queued at once, the copy of its few kilobytes of results to the host included. So the passes
of many tensors follow each other without a gap, and the host reads the first while the device works on the next.
"""

import contextlib
import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import torch

from inductor_debug.stages.numerics.histogram import BINS, LOWEST, OCTAVES
from inductor_debug.stages.numerics.sums import HUGE, TINY

WIDTHS = {torch.float32: 32, torch.float16: 16, torch.bfloat16: 16, torch.float64: 64}
"""dtypes that the kernels read, and their bits."""

WIDENED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
"""dtypes of which the kernels read float64 copies, which are exact."""

LANES, PROGRAMS_PER_PROCESSOR, MOST_TILES, MOST_WORST = 256, 8, 256, 8

LARGEST_DIVISOR = 2.0**126
"""Beyond it the fast division of float32 gives 0 (CUDA C++ Programming Guide, intrinsic functions, ``__fdividef``)."""

REGISTERS = 64
"""Registers of a thread that let 4 programs share a multiprocessor, which has 65536."""


EXACT_REGISTERS = 128
"""The same for 2 programs, of the kernel that takes NaN and infinities; without a limit only one has room."""


class Element(NamedTuple):
    """One element among the worst: its error (NaN as infinity), both values, and its flat position."""

    error: float
    reference: float
    test: float
    position: int


@dataclass
class DeviceFigures:
    """What one pass gave; the names are those of ``triton_kernels.COLUMNS``.

    Attributes:
        sums: figures by name.
        histogram: counts by bin (see :mod:`stages.numerics.histogram`).
        worst: worst first; at most :data:`MOST_WORST`, all errors above 0.
    """

    sums: dict[str, float | int]
    histogram: list[int]
    worst: list[Element] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """False where a pass for finite values met others, or such whose quotients it does not get right."""
        return self.sums.get("top_left", 0.0) <= LARGEST_DIVISOR and all(
            math.isfinite(self.sums.get(name, 0.0)) for name in ("sum_abs", "sum_rel", "squares", "magnitude")
        )

    @property
    def scaled(self) -> bool:
        """False where a square may have overflowed or vanished."""
        tops = [self.sums.get(f"top_{name}", 0.0) for name in ("left", "right", "floor", "error", "gold")]
        tops += [element.error for element in self.worst[:1] if math.isfinite(element.error)]
        return all(top == 0 or TINY < top < HUGE for top in tops)


def supported(tensors: Sequence[torch.Tensor], worst: int) -> bool:
    """Whether the kernels can compare them: floats of 16 to 64 bits, bools, and integers of :data:`WIDENED`.

    They must be on one CUDA device, and Triton here. Not on ROCm, where they were never run.
    """
    first = tensors[0].device
    known = all(tensor.device == first and (tensor.dtype in WIDTHS or tensor.dtype in WIDENED) for tensor in tensors)
    return first.type == "cuda" and torch.version.hip is None and known and worst <= MOST_WORST and _has_triton()


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where the kernels can read it, else a contiguous copy, in float64 where they lack its dtype."""
    return (tensor if tensor.dtype in WIDTHS else tensor.double()).contiguous()


class DevicePass:
    """One pass over 1-D contiguous tensors, of which :attr:`covered` elements from the start are compared."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        atol: float,
        rtol: float,
        exact: bool,
        histogram: bool = True,
        first: int = 0,
    ) -> None:
        """Queue the pass.

        Args:
            tensors: reference, test and, where there is one, gold.
            atol, rtol: the tolerance, ``|test - reference| <= atol + rtol * |reference|``.
            exact: True takes NaN and infinities, and different dtypes; False is faster, and its figures mean nothing
                where :attr:`DeviceFigures.valid` is False.
            histogram: count errors by size too, at about the cost of all the rest together.
            first: flat index of the first element.
        """
        from inductor_debug.stages.numerics import triton_kernels as kernels

        reference, test, gold = tensors[0], tensors[1], tensors[2] if len(tensors) > 2 else None
        self.first = first
        device = reference.device
        lanes_of = 16 // max(reference.element_size(), test.element_size())
        tile = LANES * lanes_of
        tiles = reference.numel() // tile
        programs = max(1, min(tiles, _processors(device) * PROGRAMS_PER_PROCESSOR))
        tiles = min(tiles, programs * MOST_TILES)
        self.covered = tiles * tile
        if not tiles:
            return
        width, bits = len(kernels.COLUMNS), WIDTHS[reference.dtype] if reference.dtype == test.dtype else 0
        self.exact = exact or bits == 0
        # one allocation for what only the kernels read; each part starts at a multiple of 16 bytes
        lanes, row = programs * LANES, programs + programs % 2
        sizes = (BINS, lanes, lanes, row, row, programs * width)
        self._workspace = torch.empty(sum(sizes), dtype=torch.int64, device=device)
        bins, lane_error, lane_tile, program_error, program_index, table = self._workspace.split(sizes)
        found = (lane_error.view(torch.float64), lane_tile, program_error.view(torch.float64), program_index)
        self._results = torch.empty(_RESULTS + width, dtype=torch.int64, pin_memory=True)
        quick = not self.exact and not histogram and gold is None
        with _current(device):
            if histogram:
                bins.zero_()
            _launch(
                kernels.figures_kernel,
                programs,
                (reference, test, reference if gold is None else gold, atol, rtol, table, *found, bins, tiles),
                (self.exact, gold is not None, histogram, bits, LANES, lanes_of, BINS, LOWEST, OCTAVES),
                num_warps=LANES // 32,
                maxnreg=REGISTERS if quick else EXACT_REGISTERS if self.exact else None,
            )
            side, begun, self._done = _side_stream(device), torch.cuda.Event(), torch.cuda.Event()
            begun.record()
            side.wait_event(begun)
            _launch(  # meanwhile the next pass may start
                kernels.finish_kernel,
                width + MOST_WORST**2 + histogram,
                (reference, test, table, *found, bins, self._results, programs, tiles, first),
                (LANES, lanes_of, MOST_TILES, _rows(device), MOST_WORST, BINS),
                stream=side,
            )
            self._done.record(side)
        self._distinct, self._histogram = programs >= MOST_WORST, histogram
        self._tensors = reference, test  # the side stream reads them until it is done

    def __del__(self) -> None:
        if hasattr(self, "_tensors"):  # never read: the memory may be given to others only when the kernels are done
            self._done.synchronize()

    def read(self) -> DeviceFigures:
        """Wait for the pass; its figures."""
        from inductor_debug.stages.numerics import triton_kernels as kernels

        if not self.covered:
            return DeviceFigures({}, [0] * BINS)
        self._done.synchronize()
        del self._workspace, self._tensors
        results, floats, width = self._results.numpy(), kernels.FLOATS, len(kernels.COLUMNS)
        found = [*results[:floats].view(numpy.float64).tolist(), *results[floats:width].tolist()]
        sums: dict[str, float | int] = dict(zip(kernels.COLUMNS, found, strict=True))
        sums["ulp"] %= 2**64
        if not self.exact:  # all were, else the figures are not valid
            sums |= {"finite": self.covered, "in_gold": self.covered}
        worst, bins = results[width:-BINS], results[-BINS:]
        return DeviceFigures(sums, bins.tolist() if self._histogram else [], _worst(worst, self._distinct))


_RESULTS = 4 * MOST_WORST**3 + BINS
"""Numbers that a pass leaves beside its columns."""

_compiled: dict[Any, Any] = {}


def _launch(
    kernel: Any,
    programs: int,
    arguments: Sequence[Any],
    constants: tuple[Any, ...],
    *,
    stream: torch.cuda.Stream | None = None,
    **options: Any,
) -> None:
    """Start a kernel on the current device; what Triton compiled for such arguments is kept.

    Triton looks at every argument at every launch, which costs the host more than the launch. Of them only dtypes, the
    pointers' alignment and the width of integers matter here.
    """
    kinds = tuple(
        (item.dtype, item.data_ptr() % 16) if isinstance(item, torch.Tensor) else type(item) is int and item >> 31
        for item in arguments
    )
    key = kernel, torch.cuda.current_device(), kinds, constants, tuple(options.values())
    compiled = _compiled.get(key)
    if compiled is not None:
        handle = (stream or torch.cuda.current_stream()).cuda_stream
        compiled[(programs, 1, 1)](*arguments, *constants, stream=handle)
        return
    with torch.cuda.stream(stream):
        _compiled[key] = kernel[(programs,)](*arguments, *constants, **options)


def _worst(table: numpy.ndarray, distinct: bool) -> list[Element]:
    """The worst elements of a table of [error, reference, test, position].

    Args:
        distinct: no element stands there twice.
    """
    rows = table.reshape(-1, 4)
    errors = rows[:, 0].view(numpy.float64)
    least = numpy.partition(errors, -MOST_WORST)[-MOST_WORST] if distinct else 0.0
    chosen = rows[(errors > 0) & (errors >= least)]
    elements: dict[int, Element] = {}
    for (error, reference, test, _), position in zip(
        chosen.view(numpy.float64).tolist(), chosen[:, 3].tolist(), strict=True
    ):
        elements[position] = Element(error, reference, test, position)
    return sorted(elements.values(), key=lambda element: (-element.error, element.position))[:MOST_WORST]


def _current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Makes the device the current one, where it is not."""
    return contextlib.nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


@functools.cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _rows(device: torch.device) -> int:
    """A power of two that no number of programs exceeds."""
    return 1 << (_processors(device) * PROGRAMS_PER_PROCESSOR - 1).bit_length()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
