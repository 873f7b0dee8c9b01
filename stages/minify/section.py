"""The report's part on the smallest program that shows a failure."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.artifacts.minimization import MinifiedRecord
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, headline, stage_note
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection

PROGRAM = ("inputs", "program", "compiled")
"""Functions of a script that say what fails; the others measure it."""
ENDED_BADLY = ("failed", "crashed", "timed_out")


def minified(artifacts: Artifacts, max_lines: int) -> Row | None:
    """The section's data; None where no script was stored.

    Args:
        artifacts: of the run.
        max_lines: of each source that is shown.
    """
    found = files.MINIFIED.read(artifacts)
    if found is None:
        return None
    text = artifacts.read_text(found.path)
    tree = ast.parse(text)
    functions = {item.name: item for item in tree.body if isinstance(item, ast.FunctionDef)}
    parts = [ast.get_source_segment(text, functions[name]) or "" for name in PROGRAM if name in functions]
    after = [_source(artifacts, found.kernel, max_lines)] if found.kernel else []
    return vars(found) | {
        "command": f"python {found.path}",
        "head": ast.get_docstring(tree) or "",
        "program": "\n\n\n".join(parts),
        "before_it": [_kernel(artifacts, found, launch, max_lines) for launch in _launches(artifacts, found)],
        "after_it": after,
    }


def _launches(artifacts: Artifacts, found: MinifiedRecord) -> list[LaunchRecord]:
    """The run's launches that compute the node, as lower stored them."""
    lowered = files.PROVENANCE.read(artifacts, found.graph)
    if lowered is None:
        return []
    place = (found.graph, found.node)
    computing = [launch for launch in lowered.kernels if place in [(node.graph, node.node) for node in launch.captured]]
    return computing or [launch for launch in lowered.kernels if found.node in launch.nodes]


def _kernel(artifacts: Artifacts, found: MinifiedRecord, launch: LaunchRecord, max_lines: int) -> Row:
    if launch.file is None:
        return {"name": launch.launch, "file": "", "text": "", "lines": 0}
    path = files.LOWERED.at(found.graph, launch.file)
    return _source(artifacts, path, max_lines) | {"name": launch.launch}


def _source(artifacts: Artifacts, path: str, max_lines: int) -> Row:
    lines = artifacts.read_text(path).splitlines()
    return {"name": "", "file": path, "text": "\n".join(lines[:max_lines]), "lines": len(lines)}


class MinifiedSection(ReportSection):
    """What is the smallest program that shows it?"""

    title = "What is the smallest program that shows it?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return minified(run.artifacts, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        command = f"inductor-debug repro RUN {Path(data['path']).name} --run"
        return Answer("told", counted(data["operations"], "operation"), headline(data["message"]), then=(command,))

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        statuses = {stage.get("name"): stage.get("status") for stage in report["stages"]}
        if data is not None or statuses.get("minify") not in ENDED_BADLY:
            return []
        return [f"The smallest program that shows the failure: {stage_note(report['stages'], 'minify')}."]
