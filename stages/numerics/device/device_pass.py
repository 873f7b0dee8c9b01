"""The one-pass comparison of two tensors on a CUDA device: started without waiting, read when it is needed.

All launches of a pass are queued at once, and its few kilobytes of results are written to the host's memory. So the
passes of many tensors follow each other without a gap, and the host reads the first while the device works on the next.

What a pass works with besides the tensors is kept for the next one (:class:`_Room`): to allocate it, and to make
events, takes the host longer than small tensors take the device.
"""

import contextlib
import functools
import importlib.util
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from inductor_debug.stages.numerics.device.device_figures import (
    INTEGERS,
    NARROW_RANGE,
    WIDTHS,
    Care,
    DeviceFigures,
    worst_of,
)
from inductor_debug.stages.numerics.histogram import BINS, LOWEST, OCTAVES

_KNOWN = frozenset((*WIDTHS, *INTEGERS))

QUICK = {torch.int32: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
"""dtypes of the quick kernel, and its name for them; 16-bit floats on devices of compute capability 9.0 or later."""

LANES, MOST_WORST = 256, 8
PROGRAMS_PER_PROCESSOR = {"quick": 4, "finite": 8, "exact": 8}
TILES_AT_ONCE = {"quick": 2, "finite": 1, "exact": 1}
MOST_STEPS = 256
"""Of a program, which counts in 16 bits: in a step it takes in ``TILES_AT_ONCE``, of which 16 bytes are a lane's."""

REGISTERS = 64
"""Registers of a thread that let 4 programs share a multiprocessor, which has 65536."""

EXACT_REGISTERS = 128
"""The same for 2 programs, of the kernel that takes NaN and infinities; without a limit only one has room."""


def supported(tensors: Sequence[torch.Tensor], worst: int) -> bool:
    """Whether the kernels can compare them: floats of 16 to 64 bits, bools, and integers of :data:`INTEGERS`.

    They must be on one CUDA device, and Triton here. Not on ROCm, where they were never run.
    """
    index = tensors[0].get_device()
    for tensor in tensors:
        if tensor.dtype not in _KNOWN or not tensor.is_cuda or tensor.get_device() != index:
            return False
    return worst <= MOST_WORST and _usable()


class _Device:
    """What is known of a device, and kept for the passes on it.

    Attributes:
        most: programs of a pass at most, by care.
        pairs: it has instructions for pairs of 16-bit integers.
        handle_of: the current stream's handle, by the device's index; torch's own way makes an object of it each time.
        free: rooms that no pass is using.
        side: a stream on which figures are put together while the next pass runs.
    """

    def __init__(self, index: int) -> None:
        from triton.runtime import driver

        about = torch.cuda.get_device_properties(index)
        self.index, self.device, self.handle_of = index, torch.device("cuda", index), driver.active.get_current_stream
        self.most = {care: about.multi_processor_count * count for care, count in PROGRAMS_PER_PROCESSOR.items()}
        self.pairs = torch.cuda.get_device_capability(index) >= (9, 0)
        self.free: list[_Room] = []
        self.side = torch.cuda.Stream(self.device)
        self._streams: dict[int, torch.cuda.Stream] = {0: torch.cuda.default_stream(index)}

    def stream(self, handle: int) -> torch.cuda.Stream:
        """The stream of a handle."""
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.ExternalStream(handle, self.device)
        return self._streams[handle]

    def room(self) -> "_Room":
        """One that no pass is using."""
        return self.free.pop() if self.free else _Room(self)


@functools.cache
def _device(index: int) -> _Device:
    return _Device(index)


class _Room:
    """What the passes of one device work with, one at a time: memory on it, results on the host, an event.

    Attributes:
        parts: of the kernels' memory: table, lane_error, lane_tile, program_error, program_index, histogram, results.
        places: their addresses.
        integers: the results as they lie there.
        columns: names of the first of them, ``width`` altogether.
        unpack: gives these as the numbers that they are.
    """

    def __init__(self, device: _Device) -> None:
        kernels = _kernels().triton_kernels
        programs = max(device.most.values())
        self.columns, self.width = kernels.COLUMNS, len(kernels.COLUMNS)
        counts = self.width - kernels.FLOATS - len(kernels.INTEGER_TOPS)
        self.unpack = struct.Struct(f"{kernels.FLOATS}d{counts}q{len(kernels.INTEGER_TOPS)}Q").unpack_from
        lanes, row = programs * LANES, programs + programs % 2
        sizes = (programs * self.width, lanes, lanes, row, row, BINS)  # each part starts at a multiple of 16 bytes
        memory = torch.empty(sum(sizes), dtype=torch.int64, device=device.device).split(sizes)
        table, lane_error, lane_tile, program_error, program_index, histogram = memory
        results = torch.empty(self.width + 4 * MOST_WORST**2 + BINS, dtype=torch.int64, pin_memory=True)
        errors = (side.view(torch.float64) for side in (lane_error, program_error))
        self.parts = (table, next(errors), lane_tile, next(errors), program_index, histogram, results)
        self.places = tuple(part.data_ptr() for part in self.parts)
        self.integers = results.numpy()
        self.begun, self.done = torch.cuda.Event(), torch.cuda.Event()


class DevicePass:
    """One pass over tensors, of which :attr:`covered` elements from the start of their memory are compared."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        atol: float,
        rtol: float,
        care: Care,
        histogram: bool = True,
        first: int = 0,
        alone: bool = False,
    ) -> None:
        """Queue the pass.

        Args:
            tensors: reference, test and, where there is one, gold; of :data:`WIDTHS`, or of :data:`INTEGERS` but bool.
            atol, rtol: the tolerance, ``|test - reference| <= atol + rtol * |reference|``.
            care: where the tensors allow no less; see :meth:`DeviceFigures.after`.
            histogram: count errors by size too, at about the cost of all the rest together.
            first: flat index of the first element.
            alone: no other pass follows soon, which could run while this one's figures are put together.
        """
        reference, test = tensors[0], tensors[1]
        self.dtype, self.first, self.histogram = reference.dtype, first, histogram
        self._room: _Room | None = None
        self._device = device = _device(reference.get_device())
        launch = _Launch(device.index, tensors)
        if care == "quick" and (histogram or len(tensors) > 2 or not launch.quickly(atol, rtol, device.pairs)):
            care = "finite"
        self.care: Care = care if self.dtype == test.dtype else "exact"
        lanes_of = 16 // max(self.dtype.itemsize, test.dtype.itemsize)
        at_once, most = TILES_AT_ONCE[self.care], device.most[self.care]
        steps = reference.numel() // (LANES * lanes_of * at_once)
        programs = min(steps, most)
        tiles = min(steps, programs * MOST_STEPS) * at_once
        self.covered = tiles * LANES * lanes_of
        if not tiles:
            return
        with _current(device):
            self._room = launch.room = room = device.room()
            self._tensors = tensors  # until the kernels are done
            launch.stream = device.handle_of(device.index)
            if self.care == "quick":
                launch.quick(programs, atol, rtol, tiles)
            else:
                if histogram:
                    room.parts[5].zero_()
                bits = WIDTHS.get(self.dtype, 0) if self.dtype == test.dtype else 0
                about = self.care == "exact", len(tensors) > 2, histogram, bits
                launch.general(programs, atol, rtol, tiles, about, lanes_of)
            stream = device.stream(launch.stream)
            if not alone:  # meanwhile the next pass may start
                room.begun.record(stream)
                stream = device.side
                stream.wait_event(room.begun)
                launch.stream = stream.cuda_stream
            launch.finish(programs, tiles, first, histogram, lanes_of, at_once, most)
            room.done.record(stream)

    def __del__(self) -> None:
        room = getattr(self, "_room", None)
        if room is not None:  # never read: the kernels must be done with all that they use
            room.done.synchronize()
            self._device.free.append(room)

    def read(self) -> DeviceFigures:
        """Wait for the pass; its figures."""
        room = self._room
        if room is None:
            return DeviceFigures({}, [0] * BINS)
        room.done.synchronize()
        sums: dict[str, float | int] = dict(zip(room.columns, room.unpack(room.integers.data), strict=True))
        if self.care != "exact":  # all were, else the figures do not hold
            sums["finite"] = sums["in_gold"] = self.covered
        worst = worst_of(room.integers[room.width : -BINS])
        histogram = room.integers[-BINS:].tolist() if self.histogram else []
        self._device.free.append(room)
        self._room = None
        del self._tensors
        return DeviceFigures(sums, histogram, worst)


_compiled: dict[Any, Any] = {}
"""What Triton compiled, by kernel and all that makes a difference to it.

Triton looks at every argument at every launch, and the driver at every tensor, which costs the host more than the
launch. Of the arguments only dtypes, the pointers' alignment and the width of integers matter here. So a kernel that is
there is given addresses.
"""


class _Launch:
    """Starts kernels on the current device.

    Attributes:
        stream: handle of the stream to start them on.
        room: of the pass.

    Args:
        index: of the device.
        tensors: of the pass.
    """

    __slots__ = ("_aligned", "_index", "_places", "_tensors", "room", "stream")

    stream: int
    room: _Room

    def __init__(self, index: int, tensors: Sequence[torch.Tensor]) -> None:
        self._index, self._tensors = index, tensors
        self._places = [tensor.data_ptr() for tensor in tensors]
        self._aligned = tuple([place % 16 for place in self._places])

    def quickly(self, atol: float, rtol: float, pairs: bool) -> bool:
        """Whether the quick kernel can; ``pairs``: the device has instructions for pairs of 16-bit integers."""
        dtype = self._tensors[0].dtype
        if dtype not in QUICK or dtype != self._tensors[1].dtype or any(self._aligned):
            return False
        if WIDTHS.get(dtype) != 16:
            return True
        least, most = NARROW_RANGE  # where float32 holds the limit: above zero, or zero everywhere
        return pairs and ((least < atol < most and 0 <= rtol < most) or atol == rtol == 0)

    def quick(self, programs: int, atol: float, rtol: float, tiles: int) -> None:
        kind = QUICK[self._tensors[0].dtype]
        constants = (kind, LANES)
        compiled = _compiled.get((self._index, kind))
        if compiled is not None:
            places = (*self._places, atol, rtol, *self.room.places[:5], tiles, *constants)
            self._start(compiled, programs, places)
            return
        words = [flat(tensor)[:8].view(torch.int32) for tensor in self._tensors]  # only where they are matters
        given = (*words, atol, rtol, *self.room.parts[:5], tiles, *constants)
        self._compile(
            (self._index, kind),
            _kernels().triton_lanes.lanes_kernel,
            programs,
            given,
            num_warps=LANES // 32,
            maxnreg=REGISTERS,
        )

    def general(
        self, programs: int, atol: float, rtol: float, tiles: int, about: tuple[bool, bool, bool, int], lanes_of: int
    ) -> None:
        """``about``: the kernel's EXACT, GOLD, HISTOGRAM and BITS."""
        constants = (*about, LANES, lanes_of, BINS, LOWEST, OCTAVES)
        key = self._index, self._aligned, about, *(tensor.dtype for tensor in self._tensors)
        compiled = _compiled.get(key)
        gold = [] if len(self._places) > 2 else [0]
        if compiled is not None:
            places = [*self._places, *self._places[: len(gold)]]
            arguments = (*places, atol, rtol, *self.room.places[:6], tiles, *constants)
            self._start(compiled, programs, arguments)
            return
        exact, with_gold, histogram, _ = about
        registers = EXACT_REGISTERS if exact else None if with_gold or histogram else REGISTERS
        given = (*self._tensors, *self._tensors[: len(gold)], atol, rtol, *self.room.parts[:6], tiles, *constants)
        self._compile(
            key, _kernels().triton_kernels.figures_kernel, programs, given, num_warps=LANES // 32, maxnreg=registers
        )

    def finish(
        self, programs: int, tiles: int, first: int, histogram: bool, lanes_of: int, at_once: int, most: int
    ) -> None:
        """``most``: what the number of programs does not exceed."""
        room, sides = self.room, self._tensors[:2]
        jobs = room.width + MOST_WORST + histogram
        rows = 1 << (most - 1).bit_length()
        constants = (LANES, lanes_of, at_once, MOST_STEPS * at_once, rows, MOST_WORST, BINS)
        key = self._index, self._aligned[:2], at_once, first >> 31, *(side.dtype for side in sides)
        compiled = _compiled.get(key)
        if compiled is not None:
            arguments = (*self._places[:2], *room.places, programs, tiles, first, *constants)
            self._start(compiled, jobs, arguments)
            return
        self._compile(
            key,
            _kernels().triton_finish.finish_kernel,
            jobs,
            (*sides, *room.parts, programs, tiles, first, *constants),
            num_warps=8,
        )

    def _start(self, compiled: Any, programs: int, arguments: tuple[Any, ...]) -> None:
        """What ``compiled[programs, 1, 1](…)`` does, without asking for hooks and profilers."""
        function, metadata = compiled.function, compiled.packed_metadata
        compiled.run(programs, 1, 1, self.stream, function, metadata, None, None, None, *arguments)

    def _compile(self, key: Any, kernel: Any, programs: int, arguments: tuple[Any, ...], **options: Any) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(self.stream)) if self.stream else contextlib.nullcontext():
            _compiled[key] = kernel[(programs,)](*arguments, **options)


def to_host(tensors: Sequence[torch.Tensor]) -> Callable[[], Sequence[torch.Tensor]]:
    """Queue copies of a device's tensors to the host; what this returns waits for them, and gives them.

    It waits for nothing that is queued later, as a copy made then would.
    """
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
    copied = torch.cuda.Event() if tensors[0].is_cuda else None
    if copied is not None:
        copied.record(torch.cuda.current_stream(tensors[0].device))

    def wait() -> Sequence[torch.Tensor]:
        if copied is not None:
            copied.synchronize()
        return copies

    return wait


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that fills a range of memory, as that."""
    return tensor.as_strided((tensor.numel(),), (1,))


@functools.cache
def _kernels() -> Any:
    """The modules of kernels, which import Triton, by name."""
    from inductor_debug.stages.numerics.device import triton_finish, triton_kernels, triton_lanes

    return SimpleNamespace(triton_finish=triton_finish, triton_kernels=triton_kernels, triton_lanes=triton_lanes)


def _current(device: _Device) -> contextlib.AbstractContextManager[object]:
    """Makes the device the current one, where it is not."""
    return contextlib.nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device.index)


@functools.cache
def _usable() -> bool:
    return torch.version.hip is None and importlib.util.find_spec("triton") is not None
