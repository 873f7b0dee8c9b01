"""The report's pictures of graphs, with what the profile objects to outlined."""

from collections.abc import Iterable
from dataclasses import dataclass

from inductor_debug.models.errors import DamagedError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.tables import ViolationRow
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graph_pictures.labels import rank

KINDS = ("forward", "backward", "dynamo")
"""Graphs shown, in this order; the joint graph shows the same again."""
LARGEST = 300_000
"""Bytes of a picture on the page; a larger one is in its file alone."""
TOTAL = 1_500_000
"""Bytes of all pictures on the page."""


@dataclass(frozen=True)
class Picture:
    """A graph's picture, or why the page has none.

    Attributes:
        graph: the graph's id. file: the stored picture.
        findings: nodes of it that the profile objects to.
        svg: the picture, None where the page has none. note: why.
    """

    graph: str
    file: str
    findings: int = 0
    svg: str | None = None
    note: str = ""


def pictures(artifacts: Artifacts) -> list[Picture]:
    """One for each stored graph but the joint ones, by number and :data:`KINDS`."""
    rows = files.VIOLATIONS.records(artifacts) or []
    stored = files.GRAPH.stored(artifacts)
    names = sorted((name for name in stored if _place(name)[1] in KINDS), key=lambda name: _order(*_place(name)))
    found: list[Picture] = []
    used = 0
    for name in names:
        picture = _picture(artifacts, name, [row for row in rows if files.GRAPH.at(row.graph) == name])
        if picture.svg is not None and used + len(picture.svg.encode()) > TOTAL:
            picture = Picture(picture.graph, picture.file, picture.findings, note="the page has enough pictures")
        used += len((picture.svg or "").encode())
        found.append(picture)
    return found


def _place(name: str) -> tuple[str, str]:
    """``capture/graphs/g0.forward.json`` → (``g0``, ``forward``)."""
    number, _, kind = name.removeprefix(files.GRAPH.folder).removesuffix(".json").partition(".")
    return number, kind


def _order(number: str, kind: str) -> tuple[int, str, int]:
    return len(number), number, KINDS.index(kind)


def _picture(artifacts: Artifacts, name: str, rows: Iterable[ViolationRow]) -> Picture:
    id, file = ".".join(_place(name)), name.removesuffix("json") + "svg"
    try:
        record = files.GRAPH.read(artifacts, id)
        assert record is not None, "its path is stored"
    except DamagedError as error:
        return Picture(id, file, note=f"the graph can't be read ({error})")
    findings = _findings(rows)
    svg = draw_graph(record, findings, page=True)
    if len(svg.encode()) > LARGEST:
        return Picture(id, file, len(findings), note="it is too large for this page")
    return Picture(id, file, len(findings), svg)


def _findings(rows: Iterable[ViolationRow]) -> dict[str, tuple[str, str]]:
    """Node name → (its worst effect, every message); waived rows are left out."""
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        if row.severity == "waived":
            continue
        before = found.get(row.node)
        worst = row.effect if before is None else min(before[0], row.effect, key=rank)
        found[row.node] = (worst, row.message if before is None else f"{before[1]}; {row.message}")
    return found
