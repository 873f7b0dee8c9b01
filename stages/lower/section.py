"""The report's section on lowering: the calls of each graph, with the lines that they came from."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, describe_calls
from inductor_debug.stages.report.highlighting import LANGUAGES, highlighted
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, said
from inductor_debug.stages.torch_internals.fused_ir import ir_of_buffers

MOST_CHARACTERS = 400_000
"""Of the kernels' source and of their IR on the page."""
LONGEST_IR = 12_000
"""Characters of one kernel's IR."""


class LoweringSection(ReportSection):
    """What did the compiler make of it?"""

    title = "What did the compiler make of it?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> list[Row]:
        return _lowering(run.artifacts, run.max_rows)

    def answer(self, data: list[Row], report: Mapping[str, Any]) -> Answer | None:
        if not data:
            return None
        calls = sum(graph["rows_total"] for graph in data)
        return Answer("told", counted(calls, "kernel call"), said(report, "lower"))

    def page(self, data: list[Row], artifacts: Artifacts) -> Mapping[str, Any]:
        """``kernel_sources``: graph and name → file and lines, those of the IR that the kernel was made from too."""
        return {"kernel_sources": _kernel_sources(artifacts)}

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
            "kernels": [_kernel(graph, kernel) for kernel in found.kernels[:max_rows]],
            "not_established": found.not_established,
            "rows_total": len(found.kernels),
            "file": name,
            "picture": picture if (picture := files.POST_GRAD_PICTURE.at(graph)) in pictures else None,
        })  # fmt: skip
    return graphs


def _kernel(graph: str, kernel: LaunchRecord) -> Row:
    sources = list(dict.fromkeys(map(str, kernel.sources)))
    return {"graph": graph, "kernel": kernel.name, "kind": kernel.kind, "nodes": kernel.nodes, "sources": sources}


def _kernel_sources(artifacts: Artifacts) -> dict[tuple[str, str], Row]:
    """Graph and name of each generated kernel → its file and source lines, as far as the page has room."""
    shown: dict[tuple[str, str], Row] = {}
    left = MOST_CHARACTERS
    stored = set(artifacts.names("lower/"))
    for path, found in files.PROVENANCE.read_all(artifacts).items():
        graph = path.split("/")[1]
        ir_file = files.LOWERED.at(graph, "ir_post_fusion.txt")
        ir = ir_of_buffers(artifacts.read_text(ir_file)) if ir_file in stored else {}
        for kernel in found.kernels:
            file = files.LOWERED.at(graph, kernel.file) if kernel.file else ""
            if file not in stored or (graph, kernel.name) in shown:
                continue
            text = artifacts.read_text(file).rstrip()
            blocks = "\n\n".join(dict.fromkeys(ir[item.name] for item in kernel.writes if item.name in ir))
            left -= len(text) + min(len(blocks), LONGEST_IR)
            if left < 0:
                return shown
            language = LANGUAGES.get(file.rpartition(".")[2], "text")
            shown[graph, kernel.name] = {
                "file": file,
                "lines": highlighted(text, language),
                "ir": highlighted(blocks[:LONGEST_IR], "python") if blocks else [],
                "ir_cut": len(blocks) > LONGEST_IR,
                "ir_file": ir_file,
            }
    return shown
