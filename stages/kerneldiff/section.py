"""What the report and ``analyze`` tell of the comparison: its table, the worst first, and its counts."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import fields_of
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.records import Numerics
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import because, counted, headline, place, times
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, whole_table

NUMBER_COLUMNS = ("kind", "path", "verdict", "bound", "ratio", "max_abs", "max_rel", "rmse", "max_ulp", "nan_reference",
                  "nan_test", "message")  # fmt: skip
VERDICT_DESCRIPTIONS = {
    "exact": "equal bit for bit",
    "within_floor": "within noise",
    "within_tolerance": "within the tolerance",
    "defect": "a defect",
    "not_established": "not established",
    "not_exercised": "not exercised",
}
BOUNDS = {
    "bits": "equal bit for bit",
    "floor_rms": "the error in the mean (RMS) over the noise floor's",
    "floor_max": "the largest error over the noise floor's",
    "conditioning": "a jump of float64 itself within rounding: a branch or an index that rounding may turn",
    "tolerance": "atol and rtol, since there is no noise floor",
    "nonfinite": "NaN or infinity on one side alone",
    "shape": "other shapes",
    "dtype": "other dtypes",
    "structure": "on one side alone, or of another type",
    "value": "a value that is no tensor",
    "random": "random numbers, drawn differently on the two sides",
}
"""What decided of a tensor, in words."""
_FAILING = ("defect", "not_established")
COARSE = 0.5
"""A tensor whose resolution is this or more passed a comparison that shows little."""
_RIGHT = ("exact", "within_floor", "within_tolerance")


def numerics(artifacts: Artifacts, stored: Numerics | None, max_rows: int) -> Row | None:
    """The section's data; ``tally`` says what became of the results, tensors and others apart."""
    rows = files.OUTPUTS.cells(artifacts)
    diagnosis = files.DIAGNOSIS.read(artifacts)
    if rows is None and (stored is None or stored.verdict is None) and diagnosis is None:
        return None
    return {
        "summary": jsonable(stored or {}),
        "tally": failure_counts(stored or Numerics(), rows or []),
        "coarse": _coarse(rows or []),
        "diagnosis": None if diagnosis is None else dict(fields_of(diagnosis)) | executed(diagnosis.execution),
        "table": capped(rows, files.OUTPUTS, max_rows, order=worst_first),
        "nodes": capped(files.NODES.cells(artifacts), files.NODES, max_rows, order=wrong_first),
        "sensitivity": capped(_by_place(files.SENSITIVITY.cells(artifacts)), files.SENSITIVITY, max_rows),
        "bounds": {name: told for name, told in BOUNDS.items() if any(row.get("bound") == name for row in rows or [])},
        "plots": files.PLOT.stored(artifacts),
    }


def executed(execution: Execution | None) -> Row:
    """Who executed the test side, as a row of the diagnosis; what is not known is left out."""
    if execution is None:
        return {}
    return {"execution": {key: value for key, value in vars(execution).items() if value is not None}}


def is_coarse(verdict: str, resolution: Any) -> bool:
    """Whether noise, or the tolerance, hides a large error of a tensor that passed."""
    return verdict in _RIGHT and resolution not in (None, "") and float(resolution) >= COARSE


def _coarse(rows: Sequence[Row]) -> list[Row]:
    """Tensors that passed and in which a large error would pass, with its size over theirs; the largest first.

    Those that differ in a number of their names alone, as of the layers of a model, are one row.
    """
    found: dict[tuple[str, str], list[str]] = {}
    coarse = [row for row in rows if is_coarse(row["verdict"], row.get("resolution"))]
    for row in sorted(coarse, key=lambda row: -float(row["resolution"])):
        path = ".".join("*" if part.isdigit() else part for part in str(row["path"]).split("."))
        named = found.setdefault((f"{row['kind']} {path}", times(row["resolution"])), [])
        named.append(f"{row['kind']} {row['path']}")
    return [{"tensor": name if len(named) > 1 else named[0], "tensors": len(named), "would_pass": size}
            for (name, size), named in found.items()]  # fmt: skip


def _by_place(rows: Sequence[Row] | None) -> list[Row] | None:
    """Of planted faults what the run's verdict shows, one row a place; None where none were planted."""
    return None if rows is None else [row for row in rows if row.get("kind") == "any"]


def failure_counts(stored: Numerics, rows: list[Row]) -> str | None:
    """``0 of 9 results failed: 8 tensors, 1 value that is no tensor``; None where nothing was compared.

    A verdict stands for every row; ``summary.json`` counts as compared the tensors whose elements were.
    """
    compared, failed = stored.compared or 0, stored.failed or 0
    values = sum(row.get("bound") == "value" for row in rows)
    differing = sum(row.get("bound") in ("shape", "structure") for row in rows)
    if not compared and not rows:
        return None
    if not values and not differing:
        return f"{failed} of {counted(compared, 'compared tensor')} failed"
    parts = [counted(compared, "compared tensor")]
    if values:
        parts.append(counted(values, "value that is no tensor", "values that are no tensors"))
    if differing:
        parts.append(f"{differing} of another shape or structure on the two sides")
    return f"{failed} of {counted(compared + values + differing, 'result')} failed: {', '.join(parts)}"


def worst_first(row: Row) -> tuple[int, float]:
    """Failures, what passed coarsely, then the rest, each by how far beyond its bound.

    Without a ratio a failure is the worst of its kind (another shape, a NaN), and what passed the best.
    """
    verdict, ratio = row.get("verdict"), row.get("ratio")
    passed = len(_FAILING) + (not is_coarse(str(verdict), row.get("resolution")))
    rank = _FAILING.index(verdict) if verdict in _FAILING else passed
    unknown = float("-inf") if rank < len(_FAILING) else float("inf")
    return rank, unknown if ratio in (None, "", "nan") else -float(ratio)


def wrong_first(row: Row) -> tuple[int, float]:
    """Values that are wrong for what they received, then those off in one direction, each by size."""
    states = ("wrong", "slope", "not_checked")
    state, ratio = row.get("state"), row.get("ratio")
    return states.index(state) if state in states else len(states), -float(0 if ratio in (None, "", "nan") else ratio)


class NumericsSection(ReportSection):
    """Is it right?"""

    title = "Is it right?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return numerics(run.artifacts, None if run.head is None else run.head.numerics, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        verdict = (data or {}).get("summary", {}).get("verdict")
        if data is None or not verdict:
            return None
        told = VERDICT_DESCRIPTIONS.get(verdict, verdict)
        status = next((row.get("status") for row in report["stages"] if row.get("name") == "kerneldiff"), None)
        text = said(report, "kerneldiff")
        if data["tally"] is None and status not in ("passed", "failed"):
            return None
        if verdict in _RIGHT:
            coarse = _tensors(data)
            large = f", which is large in {counted(coarse, 'tensor')}" if coarse else ""
            word = f"yes, coarsely in {counted(coarse, 'tensor')}" if coarse else "yes"
            return Answer("good", word, text, f"computes right numbers ({told}{large})")
        if verdict != "defect":
            return Answer("unknown", told, text)
        return Answer("bad", "no", text,
                      f"computes wrong numbers{_first_wrong(data['diagnosis'] or {})}",
                      then=_next(report["repros"], report.get("bisection") is not None))  # fmt: skip

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        stored = (data or {}).get("summary", {})
        diagnosis = (data or {}).get("diagnosis") or {}
        notes = []
        if stored.get("failed") and diagnosis and diagnosis.get("first_divergence") is None:
            looked = headline(str(diagnosis.get("localization")))
            notes.append(because("Where the numbers first go wrong", looked))
        if (data or {}).get("coarse"):
            tensors = counted(_tensors(data), "tensor")
            ends = (data or {})["coarse"][-1], (data or {})["coarse"][0]
            sizes = " to ".join(dict.fromkeys(row["would_pass"] for row in ends))
            notes.append(f"Whether {tensors} are right: an error of {sizes} times their size would not be seen there "
                         "(column resolution).")  # fmt: skip
        localized = diagnosis.get("localized")
        notes += [f"Localization did not look at {what}." for what in (localized.missing if localized else ())]
        ended = {stage.get("name"): stage.get("status") for stage in report["stages"]}.get("kerneldiff")
        if stored.get("verdict") in ("not_established", "not_exercised") and ended in ("passed", "failed"):
            reason = Execution(**found).elsewhere if (found := diagnosis.get("execution")) else ""
            notes.append(f"The comparison's verdict is {stored['verdict']}{reason and f': {reason}'}.")
        return notes

    def page(self, data: Row | None, artifacts: Artifacts) -> Mapping[str, Any]:
        """``images``: the plots' PNG, embedded."""
        plots = {name: base64.b64encode(artifacts.read_bytes(name)).decode() for name in (data or {}).get("plots", [])}
        return {"images": {name: f"data:image/png;base64,{content}" for name, content in plots.items()}}


def _tensors(data: Row | None) -> int:
    """How many tensors passed in which a large error would pass."""
    return sum(row["tensors"] for row in (data or {}).get("coarse", ()))


def where(found: Mapping[str, Any]) -> str:
    """The first operation that is wrong, as a sentence; empty where none is known.

    Args:
        found: ``first_divergence`` of the diagnosis.
    """
    if not found.get("node"):
        return ""
    line = f" at {place(found['source'])}" if found.get("source") else ""
    kernel = f", computed by {found['kernel']}" if found.get("kernel") else ""
    return (
        f"The first wrong operation is {found.get('target')} ({found['node']} of {found.get('graph')}){line}{kernel}."
    )


def _first_wrong(diagnosis: Mapping[str, Any]) -> str:
    found = diagnosis.get("first_divergence")
    if not isinstance(found, Mapping) or not found.get("target"):
        return ""
    line = f" at {place(found['source'])}" if found.get("source") else ""
    return f" (first in {found['target']}{line})"


def _next(repros: Sequence[Mapping[str, Any]], bisected: bool) -> tuple[str, ...]:
    """What to type where the numbers are wrong: run what shows it, else look for what does; then bisect."""
    shown = next((row["path"] for row in repros if row.get("verified") and not row.get("violations")), None)
    smallest = f"inductor-debug repro RUN {Path(shown).name} --run" if shown else "inductor-debug minify RUN"
    return (smallest,) if bisected else (smallest, "inductor-debug rerun RUN 'stages=[kerneldiff,bisect,report]'")


def answer(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, and every compared tensor, the worst first."""
    stored = numerics(run.artifacts, run.head.numerics, 0)
    if stored is None:
        raise run.lacks("compared numbers", "kerneldiff", "stages=[capture,lower,kerneldiff,report]")
    worst = sorted(files.OUTPUTS.read(run.artifacts) or [], key=worst_first)
    told = [run.message("kerneldiff"), stored["tally"] or "", stored["summary"].get("verdict") or ""]
    diagnosis = stored["diagnosis"] or {}
    if (stored["summary"].get("failed") or 0) and not run.has(files.BISECTION):
        told.append(f"which part of the compiler? Try: {run.rerun('stages=[kerneldiff,bisect,report]')}")
    tables = [Table("outputs", NUMBER_COLUMNS, worst, files.OUTPUTS.path)]
    for file in (files.NODES, files.DRIFT, files.JITTER, files.SENSITIVITY):
        if run.has(file):
            tables.append(whole_table(run, Path(file.path).stem, file))
    if diagnosis.get("error"):
        told.append(f"the {diagnosis['error'].get('side')} side raised {diagnosis['error'].get('type')}")
    return Analysis([line for line in dict.fromkeys(told) if line], tables)
