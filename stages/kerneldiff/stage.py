"""The kerneldiff stage: reference, gold and test from one state, compared, judged and drawn."""

import copy
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.capture.no_graph import without_graph
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.kerneldiff import bias as systematic
from inductor_debug.stages.kerneldiff import eager_attention, random_draws, storage_floor
from inductor_debug.stages.kerneldiff import extra_runs as further
from inductor_debug.stages.kerneldiff import perturbation as conditioning
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.results import (
    DIAGNOSIS,
    DIGEST_COLUMNS,
    OPTIONS,
    badness,
    conclusion,
    diagnosis,
    nothing,
    summary,
    table,
    unsettled,
    without_gold,
)
from inductor_debug.stages.kerneldiff.running_statistics import accept_statistics
from inductor_debug.stages.kerneldiff.tasks import measure_tasks
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.record import TensorComparison
from inductor_debug.stages.numerics.verdict import FAILING, FLOORS
from inductor_debug.stages.settings import ReferenceConfig
from inductor_debug.stages.sides import matched_draws as other_draws
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.baseline import Golden, open_golden
from inductor_debug.stages.sides.baseline_store import store
from inductor_debug.stages.sides.gold import gold_side

if TYPE_CHECKING:
    from inductor_debug.stages.backends.compiled import CompiledCase

log = logging.getLogger(__name__)

PICTURES = 8
"""Failing tensors that are drawn, worst first."""


@dataclass
class Standard:
    """What a test side is judged by.

    Attributes:
        case: what the test side runs.
        reference, gold: as they ran, or as a golden holds them.
        origin: the case that gave the reference, or the golden that holds it.
        unusable: the result of every judgement, where there is no reference.
    """

    case: Case
    reference: sides.Side
    gold: sides.Side
    origin: Case | Golden
    unusable: StageResult | None = None


class KernelDiffStage(Stage):
    """Compares what the backend computes with the reference. Works without the stages before it."""

    name = "kerneldiff"

    def __init__(self, config: KernelDiffConfig) -> None:
        super().__init__(config)
        self.golden: Golden | None = None

    def check(self, context: StageContext) -> None:
        """Open the golden that the options name, if they do; it must be whole, and of this model and configuration.

        Where it holds weights and they are others than the case's, the whole run's case gets a copy of the module
        with the stored ones.

        Raises:
            ConfigurationError: see :func:`stages.sides.baseline.open_golden`, ``Golden.check``, and
                :func:`stages.kerneldiff.extra_runs.check`.
        """
        further.check(self.config, context.settings)
        self._opened(context)

    def run(self, context: StageContext) -> StageResult:
        """One step of each side; the user's model, inputs and generators are left as found.

        Returns:
            ``failed`` for a defect and where nothing could be established, else ``passed``.
        """
        golden = self._opened(context)
        standard = self.standard(context)
        result = self.judge(context, standard)
        result.artifacts[OPTIONS] = dataclasses.asdict(self.config)
        if golden is not None:
            result.artifacts[DIAGNOSIS] |= {"reference": golden.origin, "golden": f"not stored: it is in {golden.run}"}
            return result
        note = "not stored: stages.kerneldiff.store_golden=false"
        if standard.unusable is not None:
            note = "not stored: the reference raised"
        elif self.config.store_golden is not False:
            ran = standard.case, standard.reference, standard.gold
            stored, note = store(context.settings, *ran, forced=bool(self.config.store_golden))
            result.artifacts |= stored
        log.info("kerneldiff: the reference is %s", note)
        result.artifacts[DIAGNOSIS] |= {"reference": "run here", "golden": note}
        return result

    def standard(self, context: StageContext, right: Case | None = None) -> "Standard":
        """What test sides are judged by, run once: the reference and gold, or those of the golden.

        Args:
            right: a case whose module is right, to be the reference in place of the context's; with the same inputs.
        """
        golden = self._opened(context)
        if golden is not None:
            return self._stored(context, golden)
        context.progress("reference")
        base = sides.reference_case(context) if right is None else right
        reference = sides.run_side("reference", base, lambda: sides.reference_function(context, base))
        if reference.error:
            return Standard(context.case, reference, sides.Side(), base, unsettled("reference", reference))
        context.progress("gold")
        ideal = context.case if right is None else right
        gold = gold_side(ideal, wanted=self._floor_decides, drew=reference.drew and base is ideal)
        return Standard(context.case, reference, gold, base)

    def judge(
        self, context: StageContext, standard: "Standard", compiled: Callable[[], "CompiledCase"] | None = None
    ) -> StageResult:
        """Run one test side and judge it; the standard is left as it was, so that many can be judged by it.

        Args:
            compiled: gives the test side; by default the context's compiled case.
        """
        if standard.unusable is not None:
            return copy.deepcopy(standard.unusable)
        reference, gold = dataclasses.replace(standard.reference), dataclasses.replace(standard.gold)
        return self._compared(context, standard.case, reference, gold, standard.origin, compiled)

    def _stored(self, context: StageContext, golden: Golden) -> "Standard":
        """The standard that a golden holds; neither the reference nor gold is run."""
        foreign = golden.foreign_weights(context.settings, context.case)
        if foreign:
            unusable = nothing(f"not_established: {foreign}", None)
            return Standard(context.case, sides.Side(), sides.Side(), golden, unusable)
        context.progress(f"reference and gold from {golden.origin}: neither is run here")
        case = golden.case_with_inputs(context.case)
        reference, gold = golden.both_sides(case)
        return Standard(case, reference, gold if self._floor_decides else sides.Side(), golden)

    @property
    def _floor_decides(self) -> bool:
        return self.config.atol is None and self.config.rtol is None

    def _compared(
        self,
        context: StageContext,
        case: Case,
        reference: sides.Side,
        gold: sides.Side,
        origin: Case | Golden,
        compile: Callable[[], "CompiledCase"] | None,
    ) -> StageResult:
        """Run the test side and judge it. ``origin``: the case that gave the reference, or the golden that holds it."""
        context.progress("test")
        compiled: list[Any] = []
        test = sides.run_side("test", case, lambda: _compiled(context, compiled, compile))
        if test.error:
            return unsettled("test", test)
        golden = origin if isinstance(origin, Golden) else None
        settings = golden.reference if golden else context.settings.reference
        ran = dataclasses.replace(reference), test, dataclasses.replace(gold)
        context.progress("comparing")
        difference = self._compare(case, settings, reference, test, gold)
        draws = other_draws.Draws(case, test, differ=reference.drew and test.generator != reference.generator)
        if difference.failed and reference.drew and origin is case and settings.backend == "eager":
            context.progress("looking at each random number that the test side draws")
            draws = other_draws.look(case, compiled[0], reference, test)
            if draws.test is not test:
                (reference, _, gold), case, test = ran, draws.case, draws.test
                difference = self._compare(case, settings, reference, test, gold)
        beside = further.Further()
        if isinstance(origin, Case):
            beside = further.further(
                context, self.config, (origin, case), (reference, test, gold), compiled[0], difference
            )
        raised = storage_floor.raise_floors(
            context, compiled[0].adapter, case, difference.rows, (test.leaves, gold.leaves)
        )
        accept_statistics(difference.rows, sides.written_by_one(reference, test) | beside.lost)
        note = self._reconsider(context, difference, case, origin, (reference.leaves, test.leaves, gold.leaves))
        roundoff = max(case.unit_roundoff, raised.roundoff)
        random = random_draws.review(reference, gold, test, roundoff, difference.rows, draws)
        if isinstance(origin, Case) and settings.backend == "eager":
            random = self._repeat(context, origin, reference, roundoff, difference.rows) or random
            self._copy(context, origin, reference, roundoff, difference.rows)
            systematic.review_wide(difference.rows, origin, reference.leaves, gold.leaves, roundoff)
        same = _same_code(context, compiled[0], settings, elsewhere=golden is not None and not golden.same_place(case))
        verdict, message = conclusion(difference, same)
        if golden:
            if self._floor_decides and not gold.leaves and case.dtype != torch.float64:
                note = "no gold is stored there, so the tolerances of the dtype decide"
            message += f"; the reference is that of {golden.origin}{note and f'; {note}'}"
        message += without_gold(gold.error) + beside.note + raised.note
        if isinstance(origin, Case) and settings.backend == "eager":
            message += eager_attention.explain(origin, test.leaves, difference.rows)
        if test.settings:
            message += f"; the test side changed {', '.join(test.settings)}; put back"
        if golden:
            message += golden.foreign_draws(context.settings, difference.rows)
        tasks = measure_tasks(context.settings.model.name, reference.leaves["output"], test.leaves["output"])
        result = self._result(difference, verdict, message, reference.leaves, test.leaves, gold, random)
        result.artifacts[DIAGNOSIS]["tasks"] = [dataclasses.asdict(measures) for measures in tasks]
        result.artifacts |= beside.artifacts
        if compiled[0].adapter.emulates:
            from inductor_debug.stages.backends.emulated import with_findings

            result = with_findings(result, context, compiled[0].adapter)
        return result

    def _reconsider(
        self,
        context: StageContext,
        difference: KernelDiff,
        case: Case,
        origin: Case | Golden,
        leaves: tuple[sides.Leaves, sides.Leaves, sides.Leaves],
    ) -> str:
        """Let perturbed references judge again what the floor called a defect; a note on it where a golden is used.

        Args:
            leaves: of the reference, the test side and gold.
        """
        reference, test, gold = leaves
        factor = self.config.factor if self._floor_decides else None
        suspect = any(
            row.verdict == "defect" and (row.bound in FLOORS or (factor and row.kind == "output" and row.mismatched))
            for row in difference.rows
        )
        if not gold or not suspect or not self.config.perturbations:
            return ""
        base, note = (origin, "") if isinstance(origin, Case) else (None, "")
        if isinstance(origin, Golden):
            context.progress("running eager once, to see whether it gives the stored reference")
            base, note = origin.repeated(case, reference, test, gold)
        elif context.settings.reference.backend != "eager":
            return ""
        if base is not None:
            context.progress("perturbing the reference, to tell a defect from a branch within rounding")
            conditioning.reconsider(difference.rows, base, gold, test, draws=self.config.perturbations,
                                    factor=factor)  # fmt: skip
        return note

    def _repeat(
        self, context: StageContext, base: Case, reference: sides.Side, roundoff: float, rows: list[TensorComparison]
    ) -> str:
        """Run the reference again, where a floor decided; what that found, else nothing."""

        def run() -> sides.Side:
            context.progress("running the reference again, to see whether it repeats its numbers")
            return sides.run_side("repeated reference", base, lambda: base.module)

        return random_draws.review_repeat(reference, run, roundoff, rows)

    def _copy(
        self, context: StageContext, base: Case, reference: sides.Side, roundoff: float, rows: list[TensorComparison]
    ) -> None:
        """Run a copy of the reference, where the floor is so wide that gold may be another model."""

        def run() -> sides.Side:
            context.progress("running a copy of the reference, to see whether gold can be made of one")
            copied = base.copied()
            return sides.run_side("copied reference", copied, lambda: copied.module)

        random_draws.review_copy(reference, run, roundoff, rows)

    def _opened(self, context: StageContext) -> Golden | None:
        if self.config.golden is None:
            return None
        if self.golden is None:
            if self.config.store_golden:
                raise ConfigurationError(
                    "stages.kerneldiff.store_golden: got true with stages.kerneldiff.golden, where no reference is "
                    "run; valid: one of the two.\nTry: stages.kerneldiff.store_golden=null"
                )
            golden = open_golden(self.config.golden)
            golden.check(context.settings, context.case)
            context.live["case"] = golden.case_with_weights(context.case)
            self.golden = golden
        return self.golden

    def _compare(
        self, case: Case, settings: ReferenceConfig, reference: sides.Side, test: sides.Side, gold: sides.Side
    ) -> KernelDiff:
        """The rows of what the sides gave; each side gets leaves for the state that another one wrote into."""
        options = self.config
        difference = KernelDiff(
            atol=options.atol,
            rtol=options.rtol,
            factor=options.factor,
            roundoff=case.unit_roundoff,
            worst=options.worst,
        )
        sides.keep_changed(case, reference, test, gold)
        if settings.dtype or settings.device:
            reference.leaves = sides.round_to(reference.leaves, test.leaves)
        for kind in ("output", "loss", "gradient", *sides.STATE):
            difference.compare_leaves(
                reference.leaves.get(kind, {}), test.leaves.get(kind, {}), gold.leaves.get(kind, {}), kind=kind
            )
        return difference

    def _result(
        self,
        difference: KernelDiff,
        verdict: str,
        message: str,
        reference: sides.Leaves,
        test: sides.Leaves,
        gold: sides.Side,
        random: str,
    ) -> StageResult:
        artifacts: dict[str, Any] = {
            "kerneldiff/outputs.csv": table(difference.rows),
            "kerneldiff/worst.json": [
                {"kind": row.kind, "path": row.path, "verdict": row.verdict, "worst": row.worst}
                for row in difference.rows
                if row.worst
            ],
        }
        failed = sorted(difference.failed, key=badness, reverse=True)
        artifacts[DIAGNOSIS] = diagnosis(
            verdict,
            message,
            gold_error=gold.error,
            random=random,
            worst=failed[0] if failed else None,
            drawn=min(len(failed), PICTURES) if self.config.plots else 0,
            failed=len(failed),
        )
        if self.config.plots:
            from inductor_debug.stages.kerneldiff.plots import pictures  # matplotlib is slow to import

            artifacts |= pictures(difference.rows, failed[:PICTURES], reference, test)
        return StageResult(
            "failed" if verdict in FAILING else "passed",
            message,
            artifacts,
            {"numerics": summary(difference.rows, verdict)},
            {"kerneldiff/outputs.csv": DIGEST_COLUMNS},
        )


def _compiled(context: StageContext, keep: list[Any], compile: Callable[[], "CompiledCase"] | None) -> Any:
    from inductor_debug.stages.backends.compiled import compiled_case

    keep.append(compiled_case(context) if compile is None else compile())
    return keep[0]


def _same_code(context: StageContext, compiled: Any, reference: ReferenceConfig, *, elsewhere: bool) -> str:
    """Why both sides provably ran the same code; empty where they did not, or where that is unknown.

    Args:
        elsewhere: the reference is from another machine, device or version.
    """
    if elsewhere:
        return ""
    same_place = reference.device is None and reference.dtype is None
    if context.settings.backend.adapter == reference.backend == "eager" and same_place:
        return "reference and test are both eager"
    if not compiled.given or (compiled.adapter.lowers and not compiled.graphs):
        told = "" if compiled.given else without_graph(context)
        return f"{compiled.backend} compiled no graph, so all of the model ran in eager{told and f'. {told}'}"
    return ""
