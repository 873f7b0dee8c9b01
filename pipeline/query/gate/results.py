"""Whether a run ended as well as before, and whether the compiler made as little of it: graphs, kernels, lines."""

from inductor_debug.pipeline.query.gate.judgement import Scales
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowering import LoweredFacts
from inductor_debug.stages.artifacts.records import GraphCounts
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.stored_run import StoredRun

STATUSES = ("passed", "skipped", "failed", "timed_out", "crashed")
"""Of a stage and of a run, from best to worst."""


def hold_statuses(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    """Hold the run's verdict, and what became of each of A's stages."""
    limit = scales.limit("stages")
    if limit is None:
        return
    pairs = [("verdict of the run", a.head.verdict, b.head.verdict)]
    for stage in a.head.stages:
        status = b.status(stage.name)
        if status is None:
            fails = stage.status == "passed"
            scales.unknown("stages", f"stage {stage.name}", stage.status, None, "B did not run it", fails=fails)
        else:
            pairs.append((f"stage {stage.name}", stage.status, status))
    worse = [pair for pair in pairs if _rank(pair[2]) > _rank(pair[1])]
    for what, before, now in worse if len(worse) > limit else []:
        scales.worse("stages", what, before, now, headline(b.message(what.removeprefix("stage "))) or "ended worse")
    for what, before, now in pairs:
        if _rank(now) < _rank(before) and now == "skipped":
            scales.unknown("stages", what, before, now, "B did not come to it", fails=False)
        elif _rank(now) < _rank(before):
            scales.better("stages", what, before, now, "ended better")


def hold_compilation(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    """Hold the counts of breaks, guards, nodes and launches, and the share of launches with a source line."""
    counts = [run.head.graphs or GraphCounts() for run in (a, b)]
    for key, what in (("breaks", "graph breaks"), ("guards", "guards"), ("nodes", "nodes of AOTAutograd's graphs")):
        scales.count(key, what, *(getattr(count, key) for count in counts))
    lowered = [_lowered(run) for run in (a, b)]
    scales.count("kernels", "launches of kernels", *map(_launches, lowered))
    before, now = map(_mapped, lowered)
    limit = scales.limit("mapped")
    if limit is None or scales.lacks("mapped", "share of launches with a source line", before, now):
        return
    assert before is not None and now is not None
    if abs(now - before) > (limit if now < before else 0.0):
        keep = scales.worse if now < before else scales.better
        keep("mapped", "share of launches with a source line", before, now, f"{now - before:+.3g}")


def _rank(status: str) -> int:
    return STATUSES.index(status) if status in STATUSES else len(STATUSES)


def _lowered(run: StoredRun) -> list[LoweredFacts]:
    found = files.LOWERING.read(run.artifacts)
    return [] if found is None else list(found.graphs.values())


def _launches(graphs: list[LoweredFacts]) -> int | None:
    """Launches of a step; None where nothing was lowered, or the backend does not tell."""
    told = [graph.launches for graph in graphs if graph.launches is not None]
    return sum(told) if told and len(told) == len(graphs) else None


def _mapped(graphs: list[LoweredFacts]) -> float | None:
    """Share of all graphs' launches that lead to a line of the model's; None where that is not known."""
    told = [(graph.kernels_mapped_share, graph.launches) for graph in graphs]
    known = [(share, launches) for share, launches in told if share is not None and launches]
    launches = sum(launches for _, launches in known)
    return sum(share * count for share, count in known) / launches if launches else None
