"""The noise of right computations, measured once for many test sides that one standard judges."""

from collections.abc import Callable, Sequence

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff.discrete_outputs import DiscreteOutput, is_whole
from inductor_debug.stages.kerneldiff.other_rounding import PATIENCE, noise_of
from inductor_debug.stages.kerneldiff.rounding_floor import RoundingFloor
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.mirrored import mirrored_gold, one_step
from inductor_debug.stages.sides.rounded import rounded_reference


class KeptNoise:
    """What references that round otherwise tell of every row, see :mod:`stages.kerneldiff.other_rounding`.

    A row is judged by all of them, not by as few as would excuse it.

    Args:
        rows: of a test side that is the reference itself.
        base: the reference's case; left bit for bit as found.
        gold: its results.
        draws: references, and pairs of moved golds.
        factor: given, outputs of integers and bools are judged too, by this limit of error over floor.
        progress: told of each.
    """

    def __init__(
        self,
        rows: Sequence[TensorComparison],
        base: Case,
        gold: sides.Leaves,
        *,
        draws: int,
        factor: float | None,
        progress: Callable[[str], None],
    ) -> None:
        self._gold, self._factor = gold, factor
        self._items = {(row.kind, row.place): item for row in rows if (item := _item(row, gold, factor)) is not None}
        ideal = base.to_gold()
        for number in range(draws):
            if number == PATIENCE and not any(item.jumped for item in self._items.values()):
                break
            progress(f"reference {number + 1} of at most {draws} that round otherwise, for all planted faults")
            reference = rounded_reference(base, number, one_step)
            moved = mirrored_gold(base, ideal, number, one_step)
            if reference.error:
                break
            for (kind, place), item in self._items.items():
                item.add(reference.leaves.get(kind, {}).get(place))
                if moved is not None:
                    item.add_jump(*(leaves.get(kind, {}).get(place) for leaves in moved))

    def judged(self, rows: Sequence[TensorComparison], test: sides.Leaves) -> dict[int, Judgement]:
        """Judge what the floor, or its bits, called a defect.

        Args:
            rows: of a test side.
            test: its results.
        """
        found = {}
        for index, row in enumerate(rows):
            item = self._items.get((row.kind, row.place))
            if item is not None and noise_of(row, self._gold, self._factor) is not None:
                found[index] = item.judged(row, test.get(row.kind, {}).get(row.path))
        return found


def _item(row: TensorComparison, gold: sides.Leaves, factor: float | None) -> RoundingFloor | DiscreteOutput | None:
    """What gathers the noise of a row, whatever its verdict; None where none is known to judge by."""
    ideal = gold.get(row.kind, {}).get(row.place)
    if not isinstance(ideal, torch.Tensor):
        return None
    if row.floor_rms is not None and row.floor_max is not None and row.factor is not None:
        return RoundingFloor.of(row, ideal)
    if factor is not None and row.kind == "output" and is_whole(ideal):
        return DiscreteOutput(row.kind, row.place, ideal, factor)
    return None
