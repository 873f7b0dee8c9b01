"""Values of a run, kept in a file and not in memory.

All that the operations of a step gave is several times what the step itself needs at once.
"""

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Container, Hashable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.nested import extent, is_strided
from inductor_debug.stages.localize.runs.regions import lies_in, memory_of_inputs

log = logging.getLogger(__name__)

LEFT = 4 << 30
"""Bytes of the disk that are left to others."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk without room raises."""

SMALL = 1 << 14
"""Bytes up to which a tensor is copied in memory."""

ALIGNED = 64
"""Bytes; where a tensor begins in the file is a multiple of that."""

Key = TypeVar("Key", bound=Hashable)


class Store:
    """A file without a name in ``tempfile.gettempdir()``, which is gone as soon as nothing that it holds is known.

    Attributes:
        full: whether the disk has no more room than :data:`LEFT`; from then on tensors stay in memory.
    """

    def __init__(self) -> None:
        self.full = False
        self._file: Any = None
        self._end = 0
        self._free: dict[int, list[int]] = {}  # by bytes, where something lay that nothing knows any more

    def keep(self, value: Any) -> Any:
        """A copy of a tensor, in the file where it is large and there is room; anything else as it is.

        Raises:
            OSError: the file can't be written.
        """
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        if not _is_plain(value) or not value.numel():
            return value.clone()
        memory = value.as_strided((_extent(value),), (1,))
        if memory.nbytes <= SMALL:
            return memory.clone().as_strided(value.shape, value.stride(), 0)
        held = memory.cpu().view(torch.uint8)
        place: Range | torch.Tensor | None = None if self.full else self._written(held.numpy())
        if place is None:
            place = held.clone() if value.device.type == "cpu" else held
        return Stored(place, 0, memory.nbytes, value.shape, value.stride(), value.dtype, value.device)

    def release(self, start: int, nbytes: int) -> None:
        """Write something else where nothing knows what is there."""
        self._free.setdefault(nbytes, []).append(start)

    def _written(self, memory: numpy.ndarray[Any, Any]) -> "Range | None":
        """Where in the file bytes are; None where it has no room for them."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="inductor_debug_", buffering=0)  # noqa: SIM115
        free = self._free.get(memory.nbytes)
        if not free and shutil.disk_usage(tempfile.gettempdir()).free < LEFT + memory.nbytes:
            self._stop("little space is left on the device")
            return None
        start = free.pop() if free else -(-self._end // ALIGNED) * ALIGNED
        left = memoryview(memory)  # type: ignore[arg-type]
        try:
            while left:
                left = left[os.pwrite(self._file.fileno(), left, start + memory.nbytes - len(left)) :]
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._stop(str(error.strerror))
            return None
        self._end = max(self._end, start + memory.nbytes)
        return Range(self, self._file, start, memory.nbytes)

    def _stop(self, why: str) -> None:
        log.warning("localize: %s in %s; further values stay in memory", why, tempfile.gettempdir())
        self.full = True


class Range:
    """Bytes of a store's file, which something else may take when this is gone.

    Args:
        store: whose file it is.
        file: open.
        start, nbytes: where in the file.
    """

    def __init__(self, store: Store, file: Any, start: int, nbytes: int) -> None:
        self._store, self._file, self._start, self._nbytes = store, file, start, nbytes

    def __del__(self) -> None:
        self._store.release(self._start, self._nbytes)

    def read(self, start: int, nbytes: int) -> torch.Tensor:
        """Some of the bytes, uint8 [nbytes]."""
        found = torch.empty(nbytes, dtype=torch.uint8)
        left = memoryview(found.numpy())  # type: ignore[arg-type]
        while left:
            done = os.preadv(self._file.fileno(), [left], self._start + start + nbytes - len(left))
            assert done, "the file has what was written"
            left = left[done:]
        return found


@dataclass(frozen=True)
class Stored:
    """A tensor that is kept.

    Attributes:
        place: of a file, or on the host, a tensor of bytes.
        start, nbytes: where in it the tensor is.
        shape, strides, dtype, device: of the tensor.
    """

    place: Range | torch.Tensor
    start: int
    nbytes: int
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def read(self) -> torch.Tensor:
        """The tensor as it was, not to be written into."""
        if isinstance(self.place, Range):
            memory = self.place.read(self.start, self.nbytes)
        else:
            memory = self.place[self.start : self.start + self.nbytes]
        return memory.view(self.dtype).to(self.device).as_strided(self.shape, self.strides)

    def stand_in(self) -> torch.Tensor:
        """A tensor laid out alike, which holds anything: to ask what a view of this would be, without reading it."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)


def read(entry: Any) -> Any:
    """The value that an entry stands for."""
    return entry.read() if isinstance(entry, Stored) else entry


def entry_of(values: Mapping[Key, Any], key: Key) -> Any:
    """What stands for a value in what it is kept in, if that is a store, else the value."""
    return values.entries[key] if isinstance(values, Kept) else values[key]


class Standing:
    """Tensors that a case has before a step, and again after it: no copies of them are needed. Its inputs are none,
    which hold other values in another draw.

    Args:
        case: as it stands before the step.
    """

    def __init__(self, case: Case) -> None:
        self._versions = {tensor.data_ptr(): _version(tensor) for tensor in case.state().values()}
        self._inputs = memory_of_inputs(case)

    def __contains__(self, value: object) -> bool:
        """Whether a tensor is one of them, and nothing wrote into it yet."""
        if not isinstance(value, torch.Tensor) or lies_in(value, self._inputs):
            return False
        version = _version(value)
        return version is not None and self._versions.get(value.data_ptr()) == version


def _version(tensor: torch.Tensor) -> int | None:
    """How often a tensor was written into; None where that is not counted."""
    return None if tensor.is_inference() else tensor._version


@dataclass
class Kept(MutableMapping[Key, Any]):
    """Values of which the tensors are copies, read anew whenever they are asked for.

    Args:
        store: where they are kept.
        entries: values, and what stands for those that are in a store.
    """

    store: Store = field(default_factory=Store)
    entries: dict[Key, Any] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> Any:
        return read(self.entries[key])

    def __setitem__(self, key: Key, value: Any) -> None:
        self.entries[key] = self.store.keep(value)

    def __delitem__(self, key: Key) -> None:
        del self.entries[key]

    def keep(self, key: Key, value: Any, standing: Container[object]) -> None:
        """Keep a value, and no copy of it if it stands."""
        if value in standing:
            self.entries[key] = value.detach()
        else:
            self[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def look(self, key: Key, view: torch.Tensor, of: Key, source: torch.Tensor) -> bool:
        """Keep a view of a tensor that is kept, or what may be one.

        Args:
            key: whose value it is.
            view: any shape and dtype.
            of: key of the tensor that it may be a view of.
            source: that tensor, or what stands in for it.

        Returns:
            Whether it is one.
        """
        entry = self.entries[of]
        if _is_plain(view) and _is_plain(source) and view.numel() and _share_memory(view, source):
            start, nbytes = view.data_ptr() - source.data_ptr(), _extent(view) * view.itemsize
            if source is entry:
                self.entries[key] = view
                return True
            if isinstance(entry, Stored) and 0 <= start <= entry.nbytes - nbytes:
                self.entries[key] = replace(entry, start=entry.start + start, nbytes=nbytes, shape=view.shape,
                                            strides=view.stride(), dtype=view.dtype)  # fmt: skip
                return True
        self[key] = view
        return False


def has_tensor(values: Mapping[Key, Any], key: Key) -> bool:
    """Whether a value is there and a tensor, which is not read for that."""
    return key in values and isinstance(entry_of(values, key), (Stored, torch.Tensor))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what its memory holds."""
    return is_strided(tensor) and not tensor.is_conj() and not tensor.is_neg()


def _share_memory(view: torch.Tensor, source: torch.Tensor) -> bool:
    return view.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()


def _extent(tensor: torch.Tensor) -> int:
    """Elements of the memory from the first to the last one."""
    return extent(tensor) - int(tensor.storage_offset())
