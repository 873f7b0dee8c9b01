"""Rounded weights, kept for as long as the weights have the values that were rounded."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from inductor_debug.stages.accelerators.number_formats import Format
from inductor_debug.stages.emulation.rounding import Loss, round_

Key = tuple[object, ...]


@dataclass
class WeightCache:
    """Rounded copies of parameters, of views of them, and of what was made from their rounded copies.

    The weights are held, so that their memory is not given to another tensor meanwhile. An entry is valid at one
    version counter of its source; every in-place write raises that, an optimizer's step too. A write through ``.data``
    raises none and is not seen.

    Attributes:
        hits, misses: look-ups of weights that found an entry, and that had to round.
    """

    hits: int = 0
    misses: int = 0
    _known: list[Tensor] = field(default_factory=list)
    _storages: set[int] = field(default_factory=set)
    _entries: dict[Key, tuple[int, Tensor, Tensor, Loss]] = field(default_factory=dict)

    def know(self, tensor: Tensor) -> None:
        """Keep rounded copies of this tensor and of its views from now on, if it is a parameter."""
        if isinstance(tensor, torch.nn.Parameter) and tensor.untyped_storage().data_ptr() not in self._storages:
            self._known.append(tensor)
            self._storages.add(tensor.untyped_storage().data_ptr())

    def rounded(
        self, tensor: Tensor, format: Format, container: torch.dtype, *, saturate: bool
    ) -> tuple[Tensor, Loss | None]:
        """A rounded copy, and what rounding lost; None where it had been rounded before.

        Args:
            tensor: floating-point, of any shape.
            format: that it is rounded to.
            container: dtype of the copy, which holds every value of the format.
            saturate: True makes values beyond the largest finite one that one; False makes them infinite.
        """
        if tensor.is_inference() or tensor.untyped_storage().data_ptr() not in self._storages:  # no version counter
            copy = tensor.detach().to(container, copy=True)
            return copy, round_(copy, format, saturate=saturate)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, format, container)
        entry = self._entries.get(key)
        if entry is not None and entry[0] == tensor._version:
            self.hits += 1
            return entry[2], None
        if entry is not None:
            self._forget(entry[2])
        self.misses += 1
        copy = tensor.detach().to(container, copy=True)
        loss = round_(copy, format, saturate=saturate)
        self._storages.add(copy.untyped_storage().data_ptr())
        self._entries[key] = (tensor._version, tensor.detach(), copy, loss)
        return copy, loss

    def _forget(self, copy: Tensor) -> None:
        """Drop what was made from a copy that is about to be replaced; its memory may be another tensor's then."""
        storage = copy.untyped_storage().data_ptr()
        self._storages.discard(storage)
        for key in [key for key, entry in self._entries.items() if entry[1].untyped_storage().data_ptr() == storage]:
            self._forget(self._entries.pop(key)[2])
