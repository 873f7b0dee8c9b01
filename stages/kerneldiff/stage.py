"""The kerneldiff stage: reference, gold and test from one state, compared, judged and drawn."""

import dataclasses
import logging
import math
from typing import Any

import pandas as pd
import torch

from models.case import Case
from models.errors import ConfigurationError
from stages.contract import ReferenceConfig, Stage, StageContext, StageResult
from stages.kerneldiff import conditioning, formats, random_draws, sides
from stages.kerneldiff.comparison import KernelDiff
from stages.kerneldiff.config import KernelDiffConfig
from stages.kerneldiff.golden import Golden, open_golden, store
from stages.kerneldiff.record import COLUMNS, TensorComparison
from stages.kerneldiff.verdict import FAILING, VERDICTS

log = logging.getLogger(__name__)

PICTURES = 8
"""Failing tensors that are drawn, worst first."""

DIAGNOSIS = "kerneldiff/diagnosis.json"

DIGEST_COLUMNS = [
    *("kind", "path", "shape", "dtype", "verdict", "elements", "mismatched", "max_abs", "rmse", "max_ulp"),
    *("reference_rms", "floor_rms", "error_rms"),
]


class KernelDiffStage(Stage):
    """Compares what the backend computes with the reference. Works without the stages before it."""

    name = "kerneldiff"

    def __init__(self, config: KernelDiffConfig) -> None:
        super().__init__(config)
        self.golden: Golden | None = None

    def check(self, context: StageContext) -> None:
        """Open the golden that the options name, if they do; it must be whole, and of this model and configuration.

        Raises:
            ConfigurationError: see :func:`stages.kerneldiff.golden.open_golden` and ``Golden.check``.
        """
        self._opened(context)

    def run(self, context: StageContext) -> StageResult:
        """One step of each side; the user's model, inputs and generators are left as found.

        Returns:
            ``failed`` for a defect and where nothing could be established, else ``passed``.
        """
        golden = self._opened(context)
        if golden is not None:
            result = self._against(context, golden)
            result.artifacts[DIAGNOSIS] |= {"reference": golden.origin, "golden": f"not stored: it is in {golden.run}"}
            return result
        case = context.case
        context.progress("reference")
        base = sides.reference_case(context)
        reference = sides.run_side("reference", base, lambda: sides.reference_function(context, base))
        if reference.error:
            result, note = _unsettled("reference", reference), "not stored: the reference raised"
        else:
            context.progress("gold")
            gold = _gold(case, wanted=self._floor_decides)
            ran = dataclasses.replace(reference), dataclasses.replace(gold)  # comparing rounds and strips the leaves
            result = self._compared(context, case, reference, gold, base)
            note = "not stored: stages.kerneldiff.store_golden=false"
            if self.config.store_golden is not False:
                stored, note = store(context.settings, case, *ran, forced=bool(self.config.store_golden))
                result.artifacts |= stored
        log.info("kerneldiff: the reference is %s", note)
        result.artifacts[DIAGNOSIS] |= {"reference": "run here", "golden": note}
        return result

    def _against(self, context: StageContext, golden: Golden) -> StageResult:
        """The test side against a stored reference; neither the reference nor gold is run."""
        foreign = golden.foreign_weights(context.settings, context.case)
        if foreign:
            return _nothing(f"not_established: {foreign}", None)
        context.progress(f"reference and gold from {golden.origin}: neither is run here")
        case = golden.case_with_inputs(context.case)
        reference, gold = golden.both_sides(case)
        return self._compared(context, case, reference, gold if self._floor_decides else sides.Side(), golden)

    @property
    def _floor_decides(self) -> bool:
        return self.config.atol is None and self.config.rtol is None

    def _compared(
        self, context: StageContext, case: Case, reference: sides.Side, gold: sides.Side, origin: Case | Golden
    ) -> StageResult:
        """Run the test side and judge it. ``origin``: the case that gave the reference, or the golden that holds it."""
        context.progress("test")
        compiled: list[Any] = []
        test = sides.run_side("test", case, lambda: _compiled(context, compiled))
        if test.error:
            return _unsettled("test", test)
        golden = origin if isinstance(origin, Golden) else None
        settings = golden.reference if golden else context.settings.reference
        difference = self._difference(case)
        context.progress("comparing")
        sides.keep_changed(reference, test)
        if settings.dtype or settings.device:
            reference.leaves = sides.round_to(reference.leaves, test.leaves)
        for kind in ("output", "loss", "gradient", "buffer", "input"):
            difference.compare_leaves(
                reference.leaves.get(kind, {}), test.leaves.get(kind, {}), gold.leaves.get(kind, {}), kind=kind
            )
        conditioning.accept_statistics(difference.rows)
        note = self._reconsider(context, difference, case, origin, (reference.leaves, test.leaves, gold.leaves))
        random = random_draws.review(reference, gold, test, case.dtype, difference.rows)
        same = _same_code(context, compiled[0], settings, elsewhere=golden is not None and not golden.same_place(case))
        verdict, message = _conclusion(difference, same)
        if golden:
            if self._floor_decides and not gold.leaves and case.dtype != torch.float64:
                note = "no gold is stored there, so the tolerances of the dtype decide"
            message += f"; the reference is that of {golden.origin}{note and f'; {note}'}"
        return self._result(difference, verdict, message, reference.leaves, test.leaves, gold, random)

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
        suspect = any(row.verdict == "defect" and row.bound in conditioning.BOUNDS for row in difference.rows)
        if not gold or not suspect or not self.config.perturbations:
            return ""
        base, note = (origin, "") if isinstance(origin, Case) else (None, "")
        if isinstance(origin, Golden):
            context.progress("running eager once, to see whether it gives the stored reference")
            base, note = origin.repeated(case, reference, test)
        elif context.settings.reference.backend != "eager":
            return ""
        if base is not None:
            context.progress("perturbing the reference, to tell a defect from a branch within rounding")
            conditioning.reconsider(difference.rows, base, gold, draws=self.config.perturbations)
        return note

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
            self.golden = golden
        return self.golden

    def _difference(self, case: Case) -> KernelDiff:
        options = self.config
        return KernelDiff(
            atol=options.atol,
            rtol=options.rtol,
            factor=options.factor,
            roundoff=formats.unit_roundoff(case.dtype),
            worst=options.worst,
        )

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
        failed = sorted(difference.failed, key=_badness, reverse=True)
        artifacts[DIAGNOSIS] = _diagnosis(
            verdict,
            message,
            gold_error=gold.error,
            random=random,
            worst=failed[0] if failed else None,
            drawn=min(len(failed), PICTURES) if self.config.plots else 0,
            failed=len(failed),
        )
        if self.config.plots:
            artifacts |= _pictures(failed[:PICTURES], reference, test)
        return StageResult(
            "failed" if verdict in FAILING else "passed",
            message,
            artifacts,
            {"numerics": summary(difference.rows, verdict)},
            {"kerneldiff/outputs.csv": DIGEST_COLUMNS},
        )


def _compiled(context: StageContext, keep: list[Any]) -> Any:
    from stages.lower import compiled_case

    keep.append(compiled_case(context))
    return keep[0]


def _gold(case: Case, *, wanted: bool) -> sides.Side:
    """The gold side; empty where a tolerance decides, or where float64 is the case's own dtype."""
    if not wanted or case.dtype == torch.float64:
        return sides.Side()
    golden = case.to_gold()
    return sides.run_side("gold", golden, lambda: golden.module)


def _unsettled(name: str, side: sides.Side) -> StageResult:
    """The result where a side raised."""
    assert side.error is not None
    first = next((line.strip() for line in side.error["message"].splitlines() if line.strip()), "no message")
    message = f"not_established: the {name} side raised {side.error['type']}: {first}"
    return _nothing(message, {"side": name} | side.error)


def _nothing(message: str, error: dict[str, str] | None) -> StageResult:
    """The result where nothing was compared."""
    return StageResult(
        "failed",
        message,
        {
            "kerneldiff/outputs.csv": table([]),
            "kerneldiff/worst.json": [],
            DIAGNOSIS: _diagnosis("not_established", message, error=error),
        },
        {"numerics": summary([], "not_established")},
        {"kerneldiff/outputs.csv": DIGEST_COLUMNS},
    )


def _conclusion(difference: KernelDiff, same: str) -> tuple[str, str]:
    """The run's verdict and one line that says it; ``same``: why both sides ran the same code, if they did."""
    verdict = difference.verdict
    rows = difference.rows
    if verdict == "exact" and same:
        return "not_exercised", f"not_exercised: {same}{_non_numbers(rows)}"
    counts = {name: sum(row.verdict == name for row in rows) for name in VERDICTS}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    words += _non_numbers(rows)
    if verdict in FAILING and difference.failed:
        worst = max(difference.failed, key=_badness)
        return verdict, f"{verdict}: {words}; worst {worst.kind} {worst.path}: {worst.message}"
    return verdict, f"{verdict}: {words or 'no tensor was compared'}"


def _non_numbers(rows: list[TensorComparison]) -> str:
    """NaN on both sides is equal, but whoever reads "exact" wants to know of it; so for infinities."""
    parts = []
    for name, counts in (("NaN", "nan_reference"), ("infinite", "inf_reference")):
        found = sum(getattr(row, counts) or 0 for row in rows)
        if found:
            parts.append(f"{found} of {sum(row.elements or 0 for row in rows)} reference elements are {name}")
    return "".join(f"; {part}" for part in parts)


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
    if compiled.adapter.lowers and not compiled.graphs:
        return f"{compiled.backend} compiled no graph, so all of the model ran in eager"
    return ""


def _badness(row: TensorComparison) -> tuple[int, float]:
    ratio = row.ratio if row.ratio is not None else row.max_rel
    size = math.inf if ratio is None or math.isnan(ratio) else float(ratio)
    return VERDICTS.index(row.verdict), size


def _diagnosis(
    verdict: str,
    message: str,
    *,
    error: dict[str, str] | None = None,
    gold_error: dict[str, str] | None = None,
    random: str = "",
    worst: TensorComparison | None = None,
    drawn: int = 0,
    failed: int = 0,
) -> dict[str, Any]:
    bad = verdict in FAILING
    return {
        "verdict": verdict,
        "kind": None if bad else "none",  # which kind of fault it is, only localization can tell
        "message": message,
        "first_divergence": None,
        "localization": "not established: localization did not run" if bad else "not needed: nothing failed",
        "error": error,
        "gold_error": gold_error,
        "random": random,
        "worst": None if worst is None else {"kind": worst.kind, "path": worst.path, "message": worst.message},
        "failed": failed,
        "drawn": drawn,
        "reference": None,
        "golden": None,
    }


def _pictures(rows: list[TensorComparison], reference: sides.Leaves, test: sides.Leaves) -> dict[str, bytes]:
    from stages.kerneldiff.plots import draw, file_name

    pictures = {}
    for index, row in enumerate(rows):
        left, right = reference.get(row.kind, {}).get(row.path), test.get(row.kind, {}).get(row.path)
        if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or left.shape != right.shape:
            continue
        pictures[f"kerneldiff/plots/{file_name(index, row)}"] = draw(left, right, row)
    return pictures


def table(rows: list[TensorComparison]) -> pd.DataFrame:
    """Rows as the table of ``outputs.csv``. Columns hold objects, so that large integers stay exact."""
    return pd.DataFrame([row.row() for row in rows], columns=COLUMNS, dtype=object)


def summary(rows: list[TensorComparison], verdict: str) -> dict[str, Any]:
    """``summary.json``'s ``numerics``; ``rmse`` is over all compared elements together. None where nothing was."""
    compared = [row for row in rows if row.rmse is not None]
    elements = sum(row.elements for row in compared)
    ulps = [row.max_ulp for row in compared if row.max_ulp is not None]
    squares = math.fsum(row.rmse**2 * row.elements for row in compared if row.rmse is not None and _finite(row.rmse))
    broken = [row.rmse for row in compared if not _finite(row.rmse)]
    return {
        "compared": len(compared),
        "failed": sum(row.failed for row in rows),
        "max_abs": _largest([row.max_abs for row in compared]),
        "max_rel": _largest([row.max_rel for row in compared]),
        "rmse": broken[0] if broken else (math.sqrt(squares / elements) if elements else None),
        "max_ulp": max(ulps, default=None),
        "verdict": verdict,
        "first_divergence": None,
    }


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _largest(values: list[Any]) -> Any:
    """The largest value, NaN where there is one, None for none."""
    nan = [value for value in values if isinstance(value, float) and math.isnan(value)]
    return nan[0] if nan else max(values, default=None)
