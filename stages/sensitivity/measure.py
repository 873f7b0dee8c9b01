"""Which error in one weight, one activation or one gradient a comparison calls a defect, by planting such errors."""

from collections.abc import Callable, Sequence

from inductor_debug.models.case import Case
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS
from inductor_debug.stages.sensitivity import planting, sites
from inductor_debug.stages.sensitivity.records import ANY, Measured, Sensitivity
from inductor_debug.stages.sensitivity.search import LARGEST, Search, Shown, Trial
from inductor_debug.stages.sensitivity.sites import Site
from inductor_debug.stages.sides.running import Side

Judge = Callable[[Side], Sequence[TensorComparison]]
"""Gives the rows of a test side, judged as the comparison judges."""


def measure(case: Case, judge: Judge, count: int, progress: Callable[[str], None]) -> Sensitivity:
    """Plant faults in a case's eager steps and find the smallest that the comparison calls a defect.

    Args:
        case: run in eager; left bit for bit as found.
        judge: of the comparison.
        count: places of each kind of fault.
        progress: told of each place.
    """
    dtype = str(case.dtype).removeprefix("torch.")
    found = Sensitivity(dtype=dtype, roundoff=case.unit_roundoff)
    progress("planting faults: looking for places")
    side, operations = planting.observed(case)
    if side.error:
        found.note = f"eager raised {side.error['type']}"
        return found
    clean = _trial(judge(side))
    wrong = [path for (_, path), shown in clean.items() if shown.defect]
    if wrong:
        found.note = f"eager without a fault fails here too ({wrong[0]})"
        return found
    known = {"weight": sites.weights(case)} | {fault: operations.of(fault) for fault in ("activation", "gradient")}
    drawn = [sites.spread(all_of_it, count, f"{case.seed} {fault}") for fault, all_of_it in known.items()]
    places = [site for part in drawn for site in part]
    exact = planting.InFloat64(case)
    for number, site in enumerate(places, 1):
        progress(f"planting faults: place {number} of {len(places)} ({site.fault} {site})")
        found.measured.append(_measured(case, judge, site, clean, exact))
    if not places:
        found.note = "the case has neither weights nor operations of floating-point numbers"
    return found


def _measured(case: Case, judge: Judge, site: Site, clean: Trial, exact: planting.InFloat64) -> Measured:
    def plant(error: float) -> Trial:
        side = planting.planted(case, site, error)
        assert side is not None, site  # eager runs the same operations each time
        return {ANY: Shown(defect=True)} if side.error else _trial(judge(side))

    search = Search(plant, clean, case.unit_roundoff)
    search.run()
    verdict = search.threshold(None)
    tensors = {key: search.threshold(key) for key in clean}
    effect = verdict.error is not None or exact.shows(site, LARGEST) is not False
    return Measured(site, verdict, tensors, effect)


def _trial(rows: Sequence[TensorComparison]) -> Trial:
    return {(row.kind, row.path): Shown(row.failed, *_levels(row), row.bound == "bits") for row in rows}


def _levels(row: TensorComparison) -> tuple[float | None, float | None]:
    """Error over floor and its limit, where a floor decides."""
    return (row.ratio, row.factor) if row.bound in (*FLOORS, "bits") else (None, None)
