"""The kerneldiff stage: reference, gold and test from one state, compared, judged and drawn."""

import logging
import math
from typing import Any

import pandas as pd
import torch

from models.case import Case
from stages.contract import Stage, StageContext, StageResult
from stages.kerneldiff import conditioning, formats, random_draws, sides
from stages.kerneldiff.comparison import KernelDiff
from stages.kerneldiff.record import COLUMNS, TensorComparison
from stages.kerneldiff.verdict import FAILING, VERDICTS

log = logging.getLogger(__name__)

PICTURES = 8
"""Failing tensors that are drawn, worst first."""

DIGEST_COLUMNS = [
    *("kind", "path", "shape", "dtype", "verdict", "elements", "mismatched", "max_abs", "rmse", "max_ulp"),
    *("reference_rms", "floor_rms", "error_rms"),
]


class KernelDiffStage(Stage):
    """Compares what the backend computes with the reference. Works without the stages before it."""

    name = "kerneldiff"

    def run(self, context: StageContext) -> StageResult:
        """One step of each side; the user's model, inputs and generators are left as found.

        Returns:
            ``failed`` for a defect and where nothing could be established, else ``passed``.
        """
        case = context.case
        context.progress("reference")
        base = sides.reference_case(context)
        reference = sides.run_side("reference", base, lambda: sides.reference_function(context, base))
        context.progress("gold")
        gold = _gold(case, wanted=self.config.atol is None and self.config.rtol is None and not reference.error)
        context.progress("test")
        compiled: list[Any] = []
        test = sides.run_side("test", case, lambda: _compiled(context, compiled))
        for name, side in (("reference", reference), ("test", test)):
            if side.error:
                return _crashed(name, side.error)
        if context.settings.reference.dtype or context.settings.reference.device:
            reference.leaves = sides.round_to(reference.leaves, test.leaves)
        difference = self._difference(case)
        context.progress("comparing")
        sides.keep_changed((base, reference), (case, test))
        for kind in ("output", "loss", "gradient", "buffer", "input"):
            difference.compare_leaves(
                reference.leaves.get(kind, {}), test.leaves.get(kind, {}), gold.leaves.get(kind, {}), kind=kind
            )
        conditioning.accept_statistics(difference.rows)
        if gold.leaves and difference.failed and context.settings.reference.backend == "eager":
            context.progress("perturbing the reference, to tell a defect from a branch within rounding")
            conditioning.reconsider(difference.rows, base, gold.leaves, draws=self.config.perturbations)
        random = random_draws.review(reference, gold, test, case.dtype, difference.rows)
        verdict, message = _conclusion(context, difference, compiled[0])
        return self._result(difference, verdict, message, reference.leaves, test.leaves, gold, random)

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
        artifacts["kerneldiff/diagnosis.json"] = _diagnosis(
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


def _crashed(side: str, error: dict[str, str]) -> StageResult:
    first = next((line.strip() for line in error["message"].splitlines() if line.strip()), "no message")
    message = f"not_established: the {side} side raised {error['type']}: {first}"
    return StageResult(
        "failed",
        message,
        {
            "kerneldiff/outputs.csv": table([]),
            "kerneldiff/worst.json": [],
            "kerneldiff/diagnosis.json": _diagnosis("not_established", message, error={"side": side} | error),
        },
        {"numerics": summary([], "not_established")},
        {"kerneldiff/outputs.csv": DIGEST_COLUMNS},
    )


def _conclusion(context: StageContext, difference: KernelDiff, compiled: Any) -> tuple[str, str]:
    """The run's verdict and one line that says it."""
    verdict = difference.verdict
    rows = difference.rows
    same = _same_code(context, compiled)
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


def _same_code(context: StageContext, compiled: Any) -> str:
    """Why both sides provably ran the same code; empty where they did not, or where that is unknown."""
    settings = context.settings
    same_place = settings.reference.device is None and settings.reference.dtype is None
    if settings.backend.adapter == settings.reference.backend == "eager" and same_place:
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
