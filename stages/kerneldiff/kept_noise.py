"""The noise of right computations, measured once for many test sides that one standard judges, here or elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.baseline import AnyNoise, DiscreteNoise, TensorNoise
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.discrete_outputs import DiscreteOutput, is_whole
from inductor_debug.stages.kerneldiff.other_rounding import PATIENCE, noise_of
from inductor_debug.stages.kerneldiff.rounding_floor import RoundingFloor
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.formats import widen
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.baseline import Baseline
from inductor_debug.stages.sides.baseline_store import Floors
from inductor_debug.stages.sides.mirrored import mirrored_gold, one_step
from inductor_debug.stages.sides.rounded import rounded_reference


@dataclass
class KeptNoise:
    """What references that round otherwise tell of every tensor, see :mod:`stages.kerneldiff.other_rounding`.

    A row is excused by as few of them as do it, as :func:`stages.kerneldiff.other_rounding.judged` goes on only while
    it is a defect, so that both give one verdict.

    Attributes:
        gold: results.
        factor: given, outputs of integers and bools are judged too, by this limit of error over floor.
        items: what was gathered of each tensor, by kind and path.
        note: where the runs were made, for the message; empty where it was here.
    """

    gold: sides.Leaves
    factor: float | None
    items: dict[tuple[str, str], RoundingFloor | DiscreteOutput]
    note: str = ""

    @classmethod
    def measured(
        cls,
        base: Case,
        reference: sides.Leaves,
        gold: sides.Leaves,
        config: KernelDiffConfig,
        progress: Callable[[str], None],
    ) -> "KeptNoise | None":
        """By runs of the reference's case; None where the options want none.

        Args:
            base: the reference's case; left bit for bit as found.
            reference, gold: their results.
            config: how many runs, and the limits.
            progress: told of each run.
        """
        if not config.perturbations:
            return None
        kept = cls(gold, _limit(config), {})
        difference = KernelDiff(factor=config.factor, roundoff=base.unit_roundoff, worst=0)
        for kind, leaves in gold.items():
            mine = reference.get(kind, {})
            for row in difference.compare_leaves(mine, mine, leaves, kind=kind):
                item = _item(row, gold, kept.factor)
                if item is not None:
                    kept.items[row.kind, row.place] = item
        ideal = base.to_gold()
        for number in range(config.perturbations):
            if number == PATIENCE and not any(item.jumped for item in kept.items.values()):
                break
            progress(f"reference {number + 1} of at most {config.perturbations} that round otherwise")
            rounded = rounded_reference(base, number, one_step)
            moved = mirrored_gold(base, ideal, number, kept.items)
            if rounded.error:
                break
            for (kind, place), item in kept.items.items():
                item.add(rounded.leaves.get(kind, {}).get(place))
                if moved is not None:
                    item.add_jump(*(leaves.get(kind, {}).get(place) for leaves in moved))
        return kept

    @classmethod
    def stored(cls, baseline: Baseline, gold: sides.Leaves, config: KernelDiffConfig) -> "KeptNoise | None":
        """By the runs that a baseline tells of; None where it tells of none, or the options want none.

        Raises:
            ConfigurationError: see :meth:`stages.sides.baseline.Baseline.floors`.
        """
        records, jumps = baseline.floors()
        if not records or not config.perturbations:
            return None
        found = {(item.kind, item.path): _restored(item, gold, jumps, config.factor) for item in records}
        runs = max((len(item.rms) - 1 for item in records if isinstance(item, TensorNoise)), default=0)
        return cls(gold, _limit(config), found, f"the noise is that of {runs} runs there that round otherwise")

    @property
    def floors(self) -> Floors | None:
        """What a baseline stores of it; None where no run was made."""
        records: list[AnyNoise] = []
        jumps = {}
        for (kind, place), item in self.items.items():
            if isinstance(item, DiscreteOutput):
                if item.noise:
                    records.append(DiscreteNoise(kind, place, *(list(part) for part in zip(*item.noise, strict=True))))
            elif len(item.noise) > 1:
                rms, maximum = (list(part) for part in zip(*item.noise, strict=True))
                records.append(TensorNoise(kind, place, rms, maximum, item.jump_rms, item.jump_max, item.gain))
                if item.branches and item.jumps is not None:
                    jumps[f"{kind}/{place}"] = item.jumps.to(torch.bfloat16)
        return (records, jumps) if records else None

    def judged(self, rows: Sequence[TensorComparison], test: sides.Leaves) -> dict[int, Judgement]:
        """Judge what the floor, or its bits, called a defect.

        Args:
            rows: of a test side.
            test: its results.
        """
        return dict(self._judged(rows, test))

    def _judged(self, rows: Sequence[TensorComparison], test: sides.Leaves) -> Iterator[tuple[int, Judgement]]:
        for index, row in enumerate(rows):
            item, own = self.items.get((row.kind, row.place)), noise_of(row, self.gold, self.factor)
            if item is None or own is None or type(item) is not type(own):
                continue
            if isinstance(item, RoundingFloor) and isinstance(own, RoundingFloor):
                item = replace(item, factor=own.factor, noise=[*own.noise, *item.noise[1:]])
                shorter = (replace(item, noise=item.noise[:runs]) for runs in range(2, len(item.noise)))
                item = next((some for some in shorter if some.explains(row)), item)
            yield index, item.judged(row, test.get(row.kind, {}).get(row.path))


def _limit(config: KernelDiffConfig) -> float | None:
    return config.factor if config.atol is None and config.rtol is None else None


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


def _restored(
    record: AnyNoise, gold: sides.Leaves, jumps: dict[str, torch.Tensor], factor: float
) -> RoundingFloor | DiscreteOutput:
    ideal = gold[record.kind][record.path]
    if isinstance(record, DiscreteNoise):
        noise = list(zip(record.counts, record.rms, record.maximum, strict=True))
        return DiscreteOutput(record.kind, record.path, ideal, factor, noise)
    apart = jumps.get(f"{record.kind}/{record.path}")
    return RoundingFloor(
        record.kind, record.path, widen(ideal), factor, list(zip(record.rms, record.maximum, strict=True)),
        record.jump_rms, record.jump_max, None if apart is None else apart.to(ideal.device, torch.float64), record.gain,
    )  # fmt: skip
