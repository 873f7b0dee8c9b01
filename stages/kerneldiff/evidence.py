"""What may be asked of a comparison before its verdicts stand. What costs a run is run when it is first asked for."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import Judgement
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.baseline import Baseline
from inductor_debug.stages.sides.matched_draws import Draws

ANSWERS = ("output", "loss")
"""Kinds of leaves by which a further run of the reference is compared with the first. Its gradients are not kept."""


class StorageAlone:
    """The test side with an adapter's storage formats and nothing else of it, compiled once for all draws.

    Compiled again for each, it would meet Dynamo's limit of recompilations, and then be eager.
    """

    def __init__(self, adapter: AcceleratorAdapter) -> None:
        self._adapter = adapter
        self._compiled: CompiledCase | None = None

    @cached_property
    def adapter(self) -> AcceleratorAdapter | None:
        """What emulates the formats; None where the adapter emulates none."""
        return self._adapter.storage_rounding()

    def run(self, case: Case) -> sides.Side:
        """One step of ``case``."""
        return sides.run_side("storage rounding", case, lambda: self._function(case))

    def _function(self, case: Case) -> CompiledCase:
        if self._compiled is None:
            assert self.adapter is not None
            self._compiled = compile_case(case, self.adapter)
        return self._compiled


class Noise(Protocol):
    """What runs that round otherwise showed, measured before any test side was judged.

    Attributes:
        note: where they ran, for the message; empty where it was here.
    """

    note: str

    def judged(self, rows: Sequence[TensorComparison], test: sides.Leaves) -> Mapping[int, Judgement]:
        """Judgements of what the floor, or its bits, called a defect, by the index of their row."""
        ...


@dataclass
class Evidence:
    """The sides as they ran, and further runs of them.

    Attributes:
        context: of the stage, or made in memory; told of each further run.
        options: how to judge.
        case: what the test side ran.
        origin: the case that gave the reference, or the baseline that holds it.
        reference, test, gold: one step of each; gold is empty where a tolerance decides.
        storage: of the test side's adapter.
        draws: what is known of the random numbers that the test side drew.
        noise: of runs that were made before, for several test sides; None: runs are made when a row asks for them.
        storage_roundoff: unit roundoff of the coarsest format that the adapter stores numbers in, once that was run.
    """

    context: StageContext
    options: KernelDiffConfig
    case: Case
    origin: Case | Baseline
    reference: sides.Side
    test: sides.Side
    gold: sides.Side
    storage: StorageAlone
    draws: Draws
    noise: Noise | None = None
    storage_roundoff: float = 0.0

    @property
    def floor_decides(self) -> bool:
        """No tolerance was set."""
        return self.options.atol is None and self.options.rtol is None

    @property
    def eager(self) -> Case | None:
        """The reference's case where it ran here and in eager, so that it can be run again; else None."""
        here = isinstance(self.origin, Case) and self.context.settings.reference.uncompiled
        return self.origin if here else None  # type: ignore[return-value]

    @property
    def roundoff(self) -> float:
        """Unit roundoff of the format that the case computes in."""
        return max(self.case.unit_roundoff, self.storage_roundoff)

    @cached_property
    def rounded_alone(self) -> sides.Side | None:
        """The test side with the adapter's storage formats and nothing else of it; None where it emulates none."""
        if self.storage.adapter is None:
            return None
        self.context.progress("storage rounding alone, for the floor")
        side = self.storage.run(self.case)
        self.storage_roundoff = 0.0 if side.error else self.storage.adapter.roundoff
        return side

    @cached_property
    def perturbable(self) -> tuple[Case | None, str]:
        """The case from which other rounding may judge, None where none is; and a note where a baseline is used."""
        if isinstance(self.origin, Baseline):
            self.context.progress("running eager once, to see whether it gives the stored reference")
            return self.origin.repeated(self.case, self.reference.leaves, self.test.leaves, self.gold.leaves)
        return self.eager, ""

    @cached_property
    def repeated(self) -> sides.Side:
        """The reference, run again; of its leaves those of :data:`ANSWERS`."""
        self.context.progress("running the reference again, to see whether it repeats its numbers")
        base = self.eager
        assert base is not None
        return _answers(sides.run_side("repeated reference", base, lambda: base.module))

    @cached_property
    def copied(self) -> sides.Side:
        """A copy of the reference that is made as gold's is and in gold's modes, in the reference's own dtypes.

        Of its leaves those of :data:`ANSWERS`.
        """
        self.context.progress("running a copy of the reference, to see whether gold can be made of one")
        assert self.eager is not None
        case = self.eager.copied()
        return _answers(sides.run_side("copied reference", case, lambda: case.module))


def _answers(side: sides.Side) -> sides.Side:
    return dataclasses.replace(side, leaves={kind: side.leaves[kind] for kind in ANSWERS if kind in side.leaves})
