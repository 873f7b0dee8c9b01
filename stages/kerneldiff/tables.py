"""What the kerneldiff stage says: tables, the diagnosis, the summary, and one line for a person."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from inductor_debug.stages.artifacts.comparison import Diagnosis
from inductor_debug.stages.artifacts.localization import Localization
from inductor_debug.stages.artifacts.records import Numerics
from inductor_debug.stages.formatting import because, counted, headline, times
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.section import COARSE, is_coarse, where
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.metrics import metrics
from inductor_debug.stages.numerics.records import COLUMNS, TensorComparison
from inductor_debug.stages.numerics.verdict import FAILING, VERDICTS

DIGEST_COLUMNS = [
    *("kind", "path", "shape", "dtype", "verdict", "elements", "mismatched", "max_abs", "rmse", "max_ulp"),
    *("reference_rms", "floor_rms", "error_rms"),
]


def conclusion(difference: KernelDiff, same: str) -> tuple[str, str]:
    """The run's verdict and one line that says it; ``same``: why both sides ran the same code, if they did."""
    verdict = difference.verdict
    rows = difference.rows
    if verdict == "exact" and same:
        return "not_exercised", f"not_exercised: {same}{_non_numbers(rows)}"
    counts = {name: sum(row.verdict == name for row in rows) for name in VERDICTS}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    told += _how_finely(rows) + _non_numbers(rows)
    if verdict in FAILING and difference.failed:
        worst = max(difference.failed, key=badness)
        return verdict, f"{verdict}: {told}; worst {worst.kind} {worst.path}: {worst.message}"
    if verdict == "not_established" and rows:
        told += "; no element of any tensor was compared"
    return verdict, f"{verdict}: {told or 'no tensor was compared'}"


_RIGHT = {
    "exact": "{they} equal to the reference bit for bit",
    "within_floor": "no error in {them} is larger than rounding explains",
    "within_tolerance": "no error in {them} is larger than the tolerance",
}


_FEW = 12
"""Tensors that a message names."""
_LARGE = {"within_floor": "rounding noise", "within_tolerance": "the tolerance"}


def sentence(comparison: Comparison, localized: Localization | str) -> str:
    """Whether the numbers are right, for someone who knows none of the words of a comparison.

    Args:
        comparison: what was compared.
        localized: what was found of the operations, or in words why nothing was looked for.
    """
    verdict, count = comparison.verdict, len(comparison.rows)
    reason = comparison.message.partition(": ")[2].partition("; ")[0]
    if verdict == "not_exercised":
        return because("The numbers were not put to the test", reason)
    if verdict in _RIGHT:
        words = {"they": "all the results are", "them": f"the {count} results"}
        if count == 1:
            words = {"they": "the result is", "them": "the result"}
        coarse = [row for row in comparison.rows if is_coarse(row.verdict, row.resolution)]
        large = " or ".join(text for name, text in _LARGE.items() if any(row.verdict == name for row in coarse))
        hidden = _hidden(coarse, large, count) if coarse else ""
        return f"The numbers are right for the inputs that were tried: {_RIGHT[verdict].format(**words)}.{hidden}"
    if verdict == "defect":
        wrong = "the only result" if count == 1 else f"{counted(len(comparison.failed), 'result')} of {count}"
        found = where(first_divergence(localized) or {})
        if not found:
            unknown = "Which operation is wrong is not established."
            found = headline(localized.message) if isinstance(localized, Localization) else unknown
        return f"The numbers are wrong in {wrong}. {found}"
    return because("Whether the numbers are right is not established", _unknown(comparison, reason))


def _hidden(coarse: Sequence[TensorComparison], large: str, count: int) -> str:
    """What a pass does not show: how large an error would pass, and in how many of ``count`` results."""
    found = [float(row.resolution or 0.0) for row in coarse]
    sizes = dict.fromkeys(map(times, (min(found), max(found))))
    where, whose = ("An", "its") if count == 1 else (f"In {len(coarse)} of them an", "the tensor's")
    return f" {where} error of {' to '.join(sizes)} times {whose} size would not be seen, so large is {large}."


def _unknown(comparison: Comparison, reason: str) -> str:
    """Why the verdict is not established: the worst tensor's reason, where there is one."""
    if not comparison.failed:
        return reason
    worst = max(comparison.failed, key=badness)
    return f"{worst.kind} {worst.path}: {worst.message}"


def _how_finely(rows: list[TensorComparison]) -> str:
    """What a pass does not show: tensors that a branch's jump excused, and those in which no fault would show."""
    jumped = sum(row.verdict == "within_floor" and row.bound == "conditioning" for row in rows)
    coarse = [row for row in rows if is_coarse(row.verdict, row.resolution)]
    noisy = sum(row.verdict == "within_floor" for row in coarse)
    loose = sum(row.verdict == "within_tolerance" for row in coarse)
    hidden = [f"in {noisy} the noise of this dtype"] * bool(noisy) + [f"in {loose} the tolerance"] * bool(loose)
    told = f"; {jumped} of these by a jump of float64 itself within rounding (conditioning)" if jumped else ""
    if hidden:
        names = [f"{row.kind} {row.path}" for row in sorted(coarse, key=lambda row: -float(row.resolution or 0.0))]
        few = ", ".join(names[:_FEW]) + (", …" if len(names) > _FEW else "")
        told += f"; {', '.join(hidden)} hides errors of {100 * COARSE:g} % and more of the tensor (column resolution): "
        told += few
    return told


def _non_numbers(rows: list[TensorComparison]) -> str:
    """NaN on both sides is equal, but whoever reads "exact" wants to know of it; so for infinities."""
    parts = []
    for name, counts in (("NaN", "nan_reference"), ("infinite", "inf_reference")):
        found = sum(getattr(row, counts) or 0 for row in rows)
        if found:
            parts.append(f"{found} of {sum(row.elements or 0 for row in rows)} reference elements are {name}")
    return "".join(f"; {part}" for part in parts)


def badness(row: TensorComparison) -> tuple[int, float]:
    ratio = row.ratio if row.ratio is not None else row.max_rel
    size = math.inf if ratio is None or math.isnan(ratio) else float(ratio)
    return VERDICTS.index(row.verdict), size


def diagnosis(
    comparison: Comparison, localized: Localization | str, *, worst: TensorComparison | None, drawn: int
) -> Diagnosis:
    """``kerneldiff/diagnosis.json``.

    Args:
        comparison: what was compared.
        localized: what was found, or in words why nothing was looked for.
        worst: the worst row that failed; None where none did.
        drawn: how many rows have a plot.
    """
    bad = comparison.verdict in FAILING
    found = None if isinstance(localized, str) else localized
    return Diagnosis(
        verdict=comparison.verdict,
        kind=found.kind if found else None if bad else "none",  # which kind of fault, only localization can tell
        message=comparison.message,
        first_divergence=first_divergence(localized),
        localization=localized if isinstance(localized, str) else localized.message,
        localized=found,
        error=comparison.error,
        gold_error=comparison.gold_error,
        random=comparison.random,
        worst=None if worst is None else {"kind": worst.kind, "path": worst.path, "message": worst.message},
        failed=len(comparison.failed),
        drawn=drawn,
        draw=comparison.draw,
        execution=comparison.execution,
        tasks=None if comparison.adapter is None else comparison.tasks,
    )


def first_divergence(localized: Localization | str) -> dict[str, str] | None:
    """Graph, node, target, source and kernel of the first operation that is wrong by itself; None for none."""
    if isinstance(localized, str) or not localized.culprits:
        return None
    place = localized.culprits[0].place
    return {name: getattr(place, name) for name in ("graph", "node", "target", "source", "kernel")}


def without_gold(error: dict[str, str] | None) -> str:
    """What the message of a run adds where gold raised ``error``, or what its ``who`` names."""
    who = (error or {}).get("who", "float64")
    return f"; no gold, so a tolerance decides: {who} raised {describe_error(error)}" if error else ""


def describe_error(error: dict[str, str]) -> str:
    """Type and first line of what was raised."""
    first = next((line.strip() for line in error["message"].splitlines() if line.strip()), "no message")
    return f"{error['type']}: {first}"


def table(rows: list[TensorComparison]) -> pd.DataFrame:
    """Rows as the table of ``outputs.csv``. Columns hold objects, so that large integers stay exact."""
    columns = [*COLUMNS, *(metric.name for metric in metrics())]
    return pd.DataFrame([row.row() for row in rows], columns=columns, dtype=object)


def summary(comparison: Comparison, localized: Localization | str = "") -> Numerics:
    """``summary.json``'s ``numerics``; ``rmse`` is over all compared elements together. None where nothing was."""
    rows = comparison.rows
    compared = [row for row in rows if row.rmse is not None]
    elements = sum(row.elements for row in compared)
    ulps = [row.max_ulp for row in compared if row.max_ulp is not None]
    broken = [row.rmse for row in compared if not _finite(row.rmse)]
    most = max((row.rmse for row in compared if row.rmse and not broken), default=1.0)  # a large one's square overflows
    squares = math.fsum((row.rmse / most) ** 2 * row.elements for row in compared if row.rmse and not broken)
    return Numerics(
        compared=len(compared),
        failed=sum(row.failed for row in rows),
        max_abs=_largest([row.max_abs for row in compared]),
        max_rel=_largest([row.max_rel for row in compared]),
        rmse=broken[0] if broken else (most * math.sqrt(squares / elements) if elements else None),
        max_ulp=max(ulps, default=None),
        verdict=comparison.verdict,
        first_divergence=first_divergence(localized),
        execution=comparison.execution,
    )


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _largest(values: list[Any]) -> Any:
    """The largest value, NaN where there is one, None for none."""
    nan = [value for value in values if isinstance(value, float) and math.isnan(value)]
    return nan[0] if nan else max(values, default=None)
