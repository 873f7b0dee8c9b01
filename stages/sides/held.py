"""What a call left, looked at again after the next: a backend may put results where its next call overwrites them."""

import torch

from inductor_debug.models.contents import same_bits
from inductor_debug.models.nested import is_strided
from inductor_debug.models.torch_text import is_overwritten_graph_output
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.structure import flatten
from inductor_debug.stages.sides.running import Side
from inductor_debug.stages.torch_internals.cuda_graphs import in_graph_memory

ROW = 64
"""Words of 8 bytes in a row."""


class Held:
    """What a call of either side left, outputs and gradients, to be looked at again after the side's next call.

    Args:
        number: of the draw of the inputs.
        reference, test: eager's call and the test side's.
    """

    def __init__(self, number: int, reference: Side, test: Side) -> None:
        self.number = number
        self._eager, self._test = _Left(reference), _Left(test)

    def look_at_eager(self) -> None:
        """Look at what eager's call left, and let go of it."""
        self._eager.look()

    def overwritten(self) -> tuple[list[TensorComparison], bool]:
        """What of the test side holds something else now, where eager's holds what it held.

        And whether something lay in a CUDA graph's memory: its contract lets the next replay overwrite it.
        """
        eager, test = self._eager.look(), self._test.look()
        rows = []
        for place in test:
            if test[place] and not eager.get(place):
                row = TensorComparison(*place, verdict="defect", bound="value")
                row.message = "a later call overwrote what this one had left"
                rows.append(row)
        return rows, None in test.values()


class _Left:
    """What one call left."""

    def __init__(self, side: Side) -> None:
        self._now = _left(side)
        self._then = {place: _content(leaf) for place, leaf in self._now.items()}
        self._changed: dict[tuple[str, str], bool | None] | None = None

    def look(self) -> dict[tuple[str, str], bool | None]:
        """Whether each tensor holds something else now, as :func:`_changed` tells; looked at once, then let go of."""
        if self._changed is None:
            self._changed = _changed(self._now, self._then)
            self._now, self._then = {}, {}
        return self._changed


def _left(side: Side) -> dict[tuple[str, str], torch.Tensor]:
    """The tensors that a side's call left, not copied, by kind and path."""
    outputs = {("output", path): leaf for path, leaf in flatten(side.returned).items()}
    gradients = {("gradient", path): leaf for path, leaf in side.leaves.get("gradient", {}).items()}
    return {place: leaf.detach() for place, leaf in (outputs | gradients).items() if isinstance(leaf, torch.Tensor)}


def _content(tensor: torch.Tensor) -> torch.Tensor:
    """What tells a tensor's bits from others: the sum of each row of them as integers, or a copy where it has no rows.

    It takes a tenth of a copy's time, and 1/64 of its memory.
    """
    plain = type(tensor) is torch.Tensor and is_strided(tensor) and not (tensor.is_meta or tensor.is_quantized)
    if plain and tensor.is_contiguous() and not tensor.is_conj():
        flat = tensor.reshape(-1)
        aligned = flat.storage_offset() * flat.element_size() % 8 == 0
        if aligned and flat.numel() and flat.numel() * flat.element_size() % (8 * ROW) == 0:
            return flat.view(torch.int64).view(-1, ROW).sum(1)
    return tensor.clone()


def _changed(
    now: dict[tuple[str, str], torch.Tensor], then: dict[tuple[str, str], torch.Tensor]
) -> dict[tuple[str, str], bool | None]:
    """Whether each tensor holds other bits than it held; None where a CUDA graph's next replay took its memory."""
    found: dict[tuple[str, str], bool | None] = {}
    for place, tensor in now.items():
        try:
            found[place] = not same_bits(_content(tensor), then[place])
        except RuntimeError as error:
            if not is_overwritten_graph_output(str(error)):
                raise
            found[place] = None
    replayed = in_graph_memory(
        {place: now[place] for place, changed in found.items() if changed and is_strided(now[place])}
    )
    return found | dict.fromkeys(replayed)
