"""The capture stage: one compilation of the case, written down."""

from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import GraphCounts
from inductor_debug.stages.capture import breaks
from inductor_debug.stages.capture.compilation import Capture, capture
from inductor_debug.stages.capture.declaration import DECLARATION
from inductor_debug.stages.capture.sources import excerpts
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import because, counted, describe_breaks, in_lines
from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graphs.statistics import statistics
from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions

NODE_COLUMNS = [
    "name", "op", "target", "args", "kwargs", "inputs", "outputs", "role", "module", "source", "flops", "aliases",
    "shares",
]  # fmt: skip
"""Keys of a node that are equal for two captures of the same case on the same versions."""


class CaptureStage(Stage):
    """Graphs before and after AOTAutograd as records, statistics, graph breaks, guards and recompilations."""

    declaration = DECLARATION

    def run(self, context: StageContext) -> StageResult:
        """Capture the context's case; "failed" where torch.compile made no graph of it."""
        context.progress("compiling the case once, without lowering")
        options = CompilationOptions(("dynamo", "functorch"))  # what a backend sets is not in force here
        with options.noted():
            found = capture(context.case, self.config.dynamic)
        if "compiled" not in context.live:
            context.compiled_with(options)
        result = StageResult(
            status="passed" if found.graphs else "failed",
            message=in_lines(_message(found), _traced(self.config.dynamic)),
            artifacts=_artifacts(found),
            summary={"graphs": _counts(found)},
        )
        result.digest = {files.GRAPH.at(graph.id): NODE_COLUMNS for graph in found.graphs}
        return result


def _counts(found: Capture) -> GraphCounts:
    """``nodes`` counts each operation once: those of the AOT forward and backward graphs, without ``getitem``."""
    compiled = [graph for graph in found.graphs if graph.kind in ("forward", "backward")]
    return GraphCounts(
        dynamo=found.count("dynamo"),
        forward=found.count("forward"),
        backward=found.count("backward"),
        breaks=len(found.breaks),
        guards=len(found.guards),
        nodes=sum(node.is_operation for graph in compiled for node in graph.nodes),
    )


def _message(found: Capture) -> str:
    help = breaks.helping_settings(item.detail for item in found.breaks)
    help = f" {help}" if help else ""
    if not found.graphs:
        cause = f" {because('The first break', found.breaks[0].reason)}" if found.breaks else ""
        return f"Nothing was captured: torch.compile made no graph of this model.{cause}{help}"
    counts = _counts(found)
    broken = describe_breaks([item.kind for item in found.breaks])
    made = "it" if counts.dynamo == 1 else "them"
    outside = "; Python runs what lies between" if broken else ""
    return in_lines(
        f"Dynamo captured {counted(counts.dynamo or 0, 'graph')}, with {broken or 'no graph break'}{outside}. "
        f"AOTAutograd turned {made} into {counted(counts.nodes or 0, 'operation')}.{help}",
        f"AOTAutograd: {counts.forward} forward, {counts.backward} backward. {counted(len(found.guards), 'guard')}.",
    )


def _traced(dynamic: bool | None) -> str:
    """Where the sizes are not those that other stages compile with: to say so."""
    if dynamic is None:
        return ""
    return f"Traced with dynamic={dynamic} here alone: stages that compile let torch decide."


def _artifacts(found: Capture) -> dict[str, Any]:
    artifacts: dict[str, Any] = {}
    for graph in found.graphs:
        artifacts[files.GRAPH.at(graph.id)] = graph.to_json()
        artifacts[files.GRAPH_CODE.at(graph.id)] = found.code[graph.id]
        artifacts[files.GRAPH_PICTURE.at(graph.id)] = draw_graph(graph)
    artifacts[files.SOURCES.path] = excerpts(found.graphs)
    artifacts[files.STATISTICS.path] = files.STATISTICS.frame(statistics(found.graphs))
    artifacts[files.BREAKS.path] = found.breaks
    artifacts[files.CAPTURED_GUARDS.path] = found.guards
    artifacts[files.RECOMPILES.path] = found.recompiles
    return artifacts
