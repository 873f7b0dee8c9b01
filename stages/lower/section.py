"""The report's section on lowering: the calls of each graph, with the lines that they came from."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import describe_calls
from inductor_debug.stages.report.sections import ReportedRun, ReportSection


class LoweringSection(ReportSection):
    """What did the compiler make of it?"""

    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> list[Row]:
        return _lowering(run.artifacts, run.max_rows)

    def not_established(self, data: list[Row], report: Mapping[str, Any]) -> list[str]:
        return [f"{graph['graph']}, lowering: {note}." for graph in data for note in graph["not_established"]]


def _lowering(artifacts: Artifacts, max_rows: int) -> list[Row]:
    graphs = []
    pictures = files.POST_GRAD_PICTURE.stored(artifacts)
    for name, found in files.PROVENANCE.read_all(artifacts).items():
        graph = name.split("/")[1]
        library = [kernel for kernel in found.kernels if kernel.kind == "extern"]
        generated = {kernel.name for kernel in found.kernels if kernel.kind != "extern"}
        graphs.append({
            "graph": graph,
            "kernels_mapped_share": found.kernels_mapped_share,
            "nodes_mapped_share": found.nodes_mapped_share,
            "calls": describe_calls(len(generated), len(found.kernels), len(library)),
            "kinds": dict(Counter(kernel.kind for kernel in found.kernels)),
            "kernels": [_kernel(kernel) for kernel in found.kernels[:max_rows]],
            "not_established": found.not_established,
            "rows_total": len(found.kernels),
            "file": name,
            "picture": picture if (picture := files.POST_GRAD_PICTURE.at(graph)) in pictures else None,
        })  # fmt: skip
    return graphs


def _kernel(kernel: LaunchRecord) -> Row:
    sources = list(dict.fromkeys(map(str, kernel.sources)))
    return {"name": kernel.name, "kind": kernel.kind, "nodes": kernel.nodes, "sources": sources}
