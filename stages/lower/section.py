"""The report's section on lowering: the calls of each graph, with the lines that they came from."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import calls_in_words
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
    for name in files.PROVENANCE.stored(artifacts):
        graph = name.split("/")[1]
        found = artifacts.read_json(name)
        kernels = found.get("kernels", [])
        library = [kernel for kernel in kernels if kernel.get("kind") == "extern"]
        generated = {kernel.get("name") for kernel in kernels if kernel.get("kind") != "extern"}
        graphs.append({
            "graph": graph,
            "kernels_mapped_share": found.get("kernels_mapped_share"),
            "nodes_mapped_share": found.get("nodes_mapped_share"),
            "calls": calls_in_words(len(generated), len(kernels), len(library)),
            "kinds": dict(Counter(str(kernel.get("kind")) for kernel in kernels)),
            "kernels": [_kernel(kernel) for kernel in kernels[:max_rows]],
            "not_established": [str(note) for note in found.get("not_established") or []],
            "rows_total": len(kernels),
            "file": name,
            "picture": picture if (picture := files.POST_GRAD_PICTURE.at(graph)) in pictures else None,
        })  # fmt: skip
    return graphs


def _kernel(kernel: Mapping[str, Any]) -> Row:
    lines = kernel.get("sources") or []
    return {
        "name": kernel.get("name"),
        "kind": kernel.get("kind"),
        "nodes": [str(node) for node in kernel.get("nodes") or []],
        "sources": list(dict.fromkeys(_line(line) for line in lines)),
    }


def _line(line: Any) -> str:
    return f"{line.get('file')}:{line.get('line')}" if isinstance(line, Mapping) else str(line)
