"""The lower stage: what a backend made of each graph, kernels with their source lines; and what emulation found."""

import dataclasses
from typing import TYPE_CHECKING, Any

from inductor_debug.stages.artifacts.files import AUTOTUNING, FUSIONS, GRAPH, KERNELS, LOWERED, LOWERING, NOT_COMPILED
from inductor_debug.stages.artifacts.lowering import LaunchRecord, LoweredFacts, Lowering, MappedNodes, PrinterRecord
from inductor_debug.stages.backends.adapter import ValuePrinter
from inductor_debug.stages.backends.compiled import CompiledCase, compiled_case
from inductor_debug.stages.backends.lowering import OURS, ToldGraph
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import Artifacts, Stage, StageContext, StageResult
from inductor_debug.stages.formatting import as_sentence, counted, describe_calls, in_lines, in_words
from inductor_debug.stages.graphs.records import GraphRecord, kind_of
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.declaration import DECLARATION
from inductor_debug.stages.lower.not_compiled import not_compiled
from inductor_debug.stages.torch_internals.failed_compilation import failed_graph
from inductor_debug.stages.torch_internals.generated_kernels import Kernel, split_cpp_kernels, split_kernels

if TYPE_CHECKING:
    from inductor_debug.stages.lower.values import ValueObserver
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph


SHARED = ("kernels_mapped_share", "generated_mapped_share", "nodes_mapped_share", "nodes_pre_fusion",
          "nodes_post_fusion", "not_established")  # fmt: skip
"""What ``provenance.json`` and ``summary.json`` say of a graph as a whole."""


class LowerStage(Stage):
    """Compiles the case once and shows every representation on the way to the kernels."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for an unknown backend or adapter, and for options that it does not take."""
        build_adapter(context.settings).validate()

    def run(self, context: StageContext) -> StageResult:
        adapter = build_adapter(context.settings)
        if not (adapter.lowers or adapter.emulates):
            why = "compiles nothing" if adapter.as_traced else "tells nothing of what it compiles (no lowering())"
            return StageResult("skipped", f"The backend {adapter.name} {why}, so there is nothing to show.")
        try:
            compiled = compiled_case(context)
        except Exception as error:
            leave_not_compiled(context, error)
            raise
        result = lowering(context, compiled) if adapter.lowers else None
        emulation = compiled.adapter.emulation()
        if emulation is not None:
            files = emulation.artifacts() | {LOWERING.path: summary(compiled, {})}
            alone = StageResult(emulation.status, emulation.message, files)
            return alone if result is None else emulation.added_to(result, context)
        if result is None:
            told = "does not tell what it emulated: AcceleratorAdapter.emulation gave nothing"
            return StageResult("skipped", f"What was emulated is not established: the backend {adapter.name} {told}.")
        return result


def lowering(context: StageContext, compiled: CompiledCase) -> StageResult:
    """What each graph was lowered to, and what the printer of intermediate values tells where one was asked for."""
    if compiled.given and not compiled.graphs:
        told = f"the backend {compiled.backend} does not tell what it made of the graphs"
        message = f"What was compiled is not established: {told}."
        return StageResult("skipped", message, {LOWERING.path: summary(compiled, {})})
    context.progress("reading what was generated")
    finder = SourceFinder(context.case.module)
    artifacts: dict[str, Any] = {}
    graphs: dict[str, LoweredFacts] = {}
    for graph_id, lowered in compiled.graphs.items():
        files, facts = graph_files(lowered, captured_graphs(context.artifacts, graph_id), finder)
        artifacts |= {LOWERED.at(graph_id, name): content for name, content in files.items()}
        graphs[graph_id] = facts
    stored = summary(compiled, graphs)
    printed, (made, *gaps) = "", message_of(graphs, compiled.backend).split("\n")
    printer = compiled.adapter.value_printer()
    if printer is not None:
        observer, cost = observed(context, printer)
        stored = dataclasses.replace(stored, printer=cost)
        artifacts |= observer.artifacts()
        printed = as_sentence(observer.describe())
    artifacts[LOWERING.path] = stored
    message = in_lines(in_words(made, "" if compiled.given else helping(context), printed), *gaps)
    return StageResult("passed", message, artifacts)


def helping(context: StageContext) -> str:
    """The setting of Dynamo's with which there would be a graph, a sentence; empty for none."""
    from inductor_debug.stages.capture.no_graph import without_graph

    return without_graph(context)


def observed(context: StageContext, printer: ValuePrinter) -> "tuple[ValueObserver, PrinterRecord]":
    """What the printer of intermediate values tells of one step, and what that cost.

    What it told is left where the step raises.
    """
    from inductor_debug.stages.lower.values import ValueObserver, observe

    observer = ValueObserver(printer.level, printer.kernels)
    context.progress("compiling again, with the printer of intermediate values")
    try:
        seconds = observe(context.case, printer, observer)
    except Exception:
        context.leave(observer.artifacts(), {})
        raise
    told = list(printer.kernels), seconds, observer.stored_bytes, observer.silent
    return observer, PrinterRecord(printer.level, *told)


def captured_graphs(artifacts: Artifacts, graph_id: str) -> list[GraphRecord]:
    """The captured graph of that id, then (for a backward, which may recompute it) its forward; [] without capture."""
    wanted = [graph_id]
    if kind_of(graph_id) == "backward":
        wanted.append(graph_id.replace(".backward", ".forward"))
    stored = (GRAPH.read(artifacts, name) for name in wanted)
    return [record for record in stored if record is not None]


def graph_files(
    lowered: "LoweredGraph", captured: list[GraphRecord], finder: SourceFinder
) -> tuple[dict[str, Any], LoweredFacts]:
    """One graph's files by name, and its part of ``lower/summary.json``.

    ``nodes_mapped_share`` is None without a captured graph: nothing could be mapped, which is not a share of 0.
    """
    from inductor_debug.stages.lower.decisions import autotuning, fusions, kernel_rows
    from inductor_debug.stages.lower.kernel_records import describe_kernels, provenance_of, share
    from inductor_debug.stages.lower.picture import draw_post_grad
    from inductor_debug.stages.lower.provenance import map_nodes

    schedule = lowered.schedule
    kernels, problems = kernels_of(lowered)
    nodes = map_nodes(lowered.nodes, captured, finder, lowered.record)
    launches = describe_kernels(lowered, kernels, nodes, finder)
    generated = [record for record in launches if record.kind != "extern"]
    facts = LoweredFacts(
        seconds=lowered.seconds,
        kernels=len(kernels),
        launches=len(launches),
        extern_launches=len(launches) - len(generated),
        kernels_mapped_share=share(sum(record.own for record in launches), len(launches)),
        generated_mapped_share=share(sum(record.own for record in generated), len(generated)),
        nodes_mapped_share=share(sum(bool(record.captured) for record in nodes), len(nodes)) if captured else None,
        nodes_pre_fusion=schedule.nodes_pre_fusion,
        nodes_post_fusion=len(schedule.nodes),
        not_established=lowered.not_established
        + problems
        + without_own_lines(launches)
        + ([] if captured else ["no captured graph of this id: nodes are not mapped"]),
    )
    if isinstance(lowered, ToldGraph):
        facts = dataclasses.replace(facts, nodes_pre_fusion=None, nodes_post_fusion=None)
        if lowered.kernels is None:
            facts = dataclasses.replace(facts, kernels=None, launches=None, extern_launches=None)
    provenance = provenance_of(launches, lowered, finder)
    files: dict[str, Any] = {
        "pre_grad.py": lowered.pre_grad,
        "joint.py": lowered.joint,
        "fx_graph_readable.py": lowered.readable,
        "fx_graph_runnable.py": lowered.runnable,
        "post_grad.py": lowered.post_grad,
        "ir_pre_fusion.txt": schedule.ir_pre_fusion,
        "ir_post_fusion.txt": schedule.ir_post_fusion,
        f"output_code.{lowered.language}": lowered.source_code,
        "kernels.csv": KERNELS.frame(kernel_rows(launches)),
        "fusions.csv": FUSIONS.frame(fusions(schedule)),
        "autotuning.csv": AUTOTUNING.frame(autotuning(schedule)),
        "provenance.json": dataclasses.replace(provenance, **{key: getattr(facts, key) for key in SHARED}),
        "nodes.json": MappedNodes(graph=lowered.id, nodes=nodes),
    }
    absent = [] if lowered.joint else ["joint.py"]
    absent += [] if schedule.autotuning else ["autotuning.csv"]
    if isinstance(lowered, ToldGraph):
        files = {name: files[name] for name in OURS if name in files} | lowered.texts
        absent = [] if lowered.kernels is not None else ["kernels.csv", "provenance.json"]
    files = {name: content for name, content in files.items() if name not in absent}
    files |= draw_post_grad(lowered, provenance.post_grad_nodes, finder)
    return files | {f"kernels/{kernel.file}": kernel.source for kernel in kernels}, facts


def leave_not_compiled(context: StageContext, error: Exception) -> None:
    """Leave what a graph whose compilation failed had become, and at which kernel the compiler stopped."""
    lowered = failed_graph(error)
    if lowered is None:
        return
    captured = captured_graphs(context.artifacts, lowered.id)
    made, _ = graph_files(lowered, captured, SourceFinder(context.case.module))
    provenance, nodes = made.pop("provenance.json"), made["nodes.json"].nodes
    record = not_compiled(lowered.id, provenance, nodes, kernels_of(lowered)[0], str(error))
    artifacts = {LOWERED.at(lowered.id, name): content for name, content in made.items() if name != "kernels.csv"}
    context.leave(artifacts | {NOT_COMPILED.path: record}, {})


def without_own_lines(launches: list[LaunchRecord]) -> list[str]:
    """Why no kernel of a graph leads to a line of the model's own: torch's layers, or another library's code, alone."""
    if any(record.own for record in launches) or not any(record.sources for record in launches):
        return []
    return ["lines of the model's own: all that was compiled is code of libraries; its lines and the modules are named"]


def kernels_of(lowered: "LoweredGraph") -> tuple[list[Kernel], list[str]]:
    """The kernels of the generated module, and why there are none where it can't be taken apart."""
    if isinstance(lowered, ToldGraph):
        return lowered.kernels or [], []
    if lowered.language == "cpp":
        return split_cpp_kernels(lowered.source_code), []
    try:
        return split_kernels(lowered.source_code), []
    except SyntaxError:
        return [], ["kernels one by one: the generated module is not Python, see output_code.py"]


def summary(compiled: CompiledCase, graphs: dict[str, LoweredFacts]) -> Lowering:
    """``lower/summary.json``."""
    return Lowering(
        backend=compiled.backend,
        compile_s=compiled.compile_s,
        caches=compiled.caches,
        inductor_options=compiled.options,
        graphs=graphs,
    )


def message_of(graphs: dict[str, LoweredFacts], backend: str) -> str:
    """What was compiled, in a sentence; below it what is not known of it. ``graphs``: facts by id."""
    if not graphs:
        return "Nothing was compiled: Dynamo captured no operation of the model."
    told = [facts for facts in graphs.values() if facts.kernels is not None]
    noun = "Dynamo graph" if all(kind_of(graph_id) == "dynamo" for graph_id in graphs) else "AOT graph"
    if not told:
        given = counted(len(graphs), noun)
        return f"{backend} compiled {given}. What kernels run is not established: it does not tell."
    kernels, launches = sum(facts.kernels or 0 for facts in told), sum(facts.launches or 0 for facts in told)
    extern = sum(facts.extern_launches or 0 for facts in told)
    missing = sum(bool(facts.not_established) for facts in graphs.values())
    reasons = dict.fromkeys(reason for facts in graphs.values() for reason in facts.not_established)
    return in_lines(
        f"{backend} compiled {counted(len(graphs), noun)} to {describe_calls(kernels, launches, extern)}.",
        f"Parts of {counted(missing, 'graph')} are not established: {'; '.join(reasons)}." if missing else "",
    )
