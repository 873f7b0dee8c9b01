"""The kerneldiff stage: reference, gold and test from one state, compared, judged and drawn."""

import dataclasses
import functools
import logging
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.comparison import Diagnosis, WorstElements
from inductor_debug.stages.artifacts.localization import Localization
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case, compiled_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import in_lines, in_one_line
from inductor_debug.stages.kerneldiff import extra_runs
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.declaration import DECLARATION
from inductor_debug.stages.kerneldiff.diff import compared
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.standard import Standard, opened_baseline, standard_of
from inductor_debug.stages.kerneldiff.tables import (
    DIGEST_COLUMNS,
    badness,
    diagnosis,
    sentence,
    summary,
    table,
)
from inductor_debug.stages.localize.carried import Carried
from inductor_debug.stages.localize.config import AFTER_DEFECT, NEVER
from inductor_debug.stages.localize.engine import Engine, Localized
from inductor_debug.stages.localize.mended import Judged
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FAILING
from inductor_debug.stages.sides.baseline import Baseline
from inductor_debug.stages.sides.baseline_store import refusal, store
from inductor_debug.stages.sides.running import Leaves

log = logging.getLogger(__name__)

PICTURES = 8
"""Failing tensors that are drawn, worst first."""


class KernelDiffStage(Stage):
    """Compares what the backend computes with the reference. Works without the stages before it."""

    declaration = DECLARATION

    def __init__(self, config: KernelDiffConfig) -> None:
        super().__init__(config)
        self.baseline: Baseline | None = None

    def check(self, context: StageContext) -> None:
        """Open the baseline that the options name, if they do; it must be whole, and of this model and configuration.

        Where it holds weights and they are others than the case's, the whole run's case gets a copy of the module
        with the stored ones.

        Raises:
            ConfigurationError: see :func:`stages.kerneldiff.standard.opened_baseline` and
                :func:`stages.kerneldiff.extra_runs.check`.
        """
        extra_runs.check(self.config, context.settings)
        self._open(context)

    def run(self, context: StageContext) -> StageResult:
        """One step of each side; the user's model, inputs and generators are left as found.

        Returns:
            ``failed`` for a defect and where nothing could be established, else ``passed``.
        """
        baseline = self._open(context)
        standard = standard_of(context, self.config, baseline)
        unstored = self._unstored(context, standard)
        last = bool(unstored)
        comparison = compared(context, self.config, standard, lambda: compiled_case(context), last=last)
        artifacts = {files.COMPARISON_OPTIONS.path: self.config, **self._pictures(comparison)}
        if baseline is not None:
            origin, note = baseline.origin, f"not stored: it is in {baseline.run}"
        else:
            note = unstored
            if not unstored:
                stored, note = self._stored(context, standard, again=comparison.verdict in FAILING)
                artifacts |= stored
            log.info("kerneldiff: the reference is %s", note)
            origin = "run here"
        # last of what uses the device: a kernel may break it for the rest of the process
        result = self._result(context, comparison, self._localized(context, standard, comparison))
        result.artifacts |= artifacts
        _complete(result, origin, note)
        return result

    def _open(self, context: StageContext) -> Baseline | None:
        self.baseline = self.baseline or opened_baseline(context, self.config)
        return self.baseline

    def _unstored(self, context: StageContext, standard: Standard) -> str:
        """Why the reference is not stored; empty where nothing speaks against it yet."""
        if standard.reference.error:
            return "not stored: the reference raised"
        if self.config.store_baseline is False:
            return "not stored: stages.kerneldiff.store_baseline=false"
        if self.config.draw > 1:
            return "not stored: it is of another draw of the inputs than the model's own"
        if self.baseline is not None:
            return ""
        return refusal(standard.case, standard.reference, standard.gold, forced=bool(self.config.store_baseline))

    def _stored(self, context: StageContext, standard: Standard, *, again: bool) -> tuple[dict[str, Any], str]:
        """The reference as files for another run, and what became of it in words; ``again``: it is compared with more.

        What is stored is given up, see :func:`stages.sides.baseline_store.store`.
        """
        ran = standard.reference, standard.gold
        given = [dataclasses.replace(side) for side in ran] if again else ran
        floors = None if standard.noise is None else standard.noise.floors
        return store(context.settings, standard.case, *given, forced=bool(self.config.store_baseline), floors=floors)

    def _localized(self, context: StageContext, standard: Standard, comparison: Comparison) -> Localized | str:
        """The operations at fault, or in words why they were not looked for."""
        options, failed = self.config.localize, comparison.verdict in FAILING
        if options.when == NEVER:
            return "not established: stages.kerneldiff.localize.when=never" if failed else "not needed: nothing failed"
        if options.when == AFTER_DEFECT and comparison.verdict != "defect":
            return "not established: no tensor is a defect" if failed else "not needed: nothing failed"
        adapter = build_adapter(context.settings)
        if comparison.adapter is None:
            return "not established: nothing was compared"
        engine = Engine(standard.case, adapter, options, factor=self.config.factor, progress=context.progress)
        calls = [max(draw, self.config.draw) for draw in comparison.calls or [comparison.draw]]
        test = _of_draw(comparison.test, comparison.draw) if calls[-1] not in calls[:-1] else None
        try:
            worst = max((row.ratio for row in comparison.failed if row.ratio is not None), default=None)
            judge = functools.partial(self._judged, context, standard) if comparison.draw == 1 else None
            carried = self._carried(comparison)
            gold = standard.gold.leaves if comparison.draw == 1 and standard.gold.leaves else None
            return engine.run(
                calls=calls, failed=failed, test=test, floors=worst, judge=judge, carried=carried, gold=gold
            )
        except Exception as error:  # the verdict stands, whatever a backend does when it compiles once more
            log.exception("kerneldiff: localization raised")
            return f"not established: localization raised {in_one_line(error)}"

    def _carried(self, comparison: Comparison) -> Carried | None:
        """The state before the first optimizer step after which the parameters were off by more than their floor."""
        if not any(row.kind == "parameter" for row in comparison.failed) or files.DRIFT.path not in comparison.tables:
            return None
        drift = comparison.tables[files.DRIFT.path]
        off = drift.loc[drift["ratio"] > self.config.factor, "step"]
        before = int(off.min() if len(off) else drift["step"].max()) - 1
        return Carried(before, self.config.optimizer, self.config.learning_rate) if before else None

    def _judged(self, context: StageContext, standard: Standard, adapter: AcceleratorAdapter) -> Judged:
        """The verdict of one run by another adapter."""
        config = dataclasses.replace(self.config, draws=1, repeats=1, steps=0, special=False)
        found = compared(context, config, standard, lambda: compile_case(standard.case, adapter))
        worst = max((row.ratio for row in found.rows if row.ratio is not None), default=None)
        known = found.verdict != "not_established"
        return Judged(found.verdict if known else f"not established: {found.message}", worst)

    def _result(self, context: StageContext, comparison: Comparison, localized: Localized | str) -> StageResult:
        failed = _worst_first(comparison)
        found: Localization | str = localized.localization if isinstance(localized, Localized) else localized
        artifacts: dict[str, Any] = {
            files.OUTPUTS.path: table(comparison.rows),
            files.WORST.path: [
                WorstElements(row.kind, row.path, row.verdict, list(row.worst)) for row in comparison.rows if row.worst
            ],
            files.REVIEWS.path: comparison.reviews.table,
            files.DIAGNOSIS.path: diagnosis(
                comparison, found, worst=failed[0] if failed else None, drawn=self._drawn(failed)
            ),
        }
        if isinstance(localized, Localized):
            artifacts[files.NODES.path] = files.NODES.frame(localized.rows)
        result = StageResult(
            "failed" if comparison.verdict in FAILING else "passed",
            in_lines(
                sentence(comparison, found),
                comparison.message,
                found.message if isinstance(found, Localization) else "",
            ),
            artifacts | comparison.tables,
            {"numerics": summary(comparison, found)},
            {files.OUTPUTS.path: DIGEST_COLUMNS},
        )
        emulation = comparison.adapter.emulation() if comparison.adapter is not None else None
        return result if emulation is None else emulation.added_to(result, context)

    def _pictures(self, comparison: Comparison) -> dict[str, Any]:
        if not self.config.plots or comparison.adapter is None:
            return {}
        from inductor_debug.stages.tensor_pictures.plots import pictures  # matplotlib is slow to import

        return pictures(comparison.rows, _worst_first(comparison)[:PICTURES], comparison.reference, comparison.test)

    def _drawn(self, failed: list[Any]) -> int:
        return min(len(failed), PICTURES) if self.config.plots else 0


def _worst_first(comparison: Comparison) -> list[TensorComparison]:
    return sorted(comparison.failed, key=badness, reverse=True)


def _of_draw(leaves: Leaves, draw: int) -> Leaves:
    """Those of one draw of the inputs, by their paths without it; all of them for the first."""
    suffix = f" (draw {draw})" if draw > 1 else ""
    return {
        kind: {path.removesuffix(suffix): leaf for path, leaf in found.items() if path.endswith(suffix)}
        for kind, found in leaves.items()
    }


def _complete(result: StageResult, reference: str, baseline: str) -> None:
    """Tell where the reference came from, and whether it is stored."""
    found: Diagnosis = result.artifacts[files.DIAGNOSIS.path]
    result.artifacts[files.DIAGNOSIS.path] = dataclasses.replace(found, reference=reference, baseline=baseline)
