"""The profile stage: kernel times joined with provenance, and how close to the device's ceiling they come."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inductor_debug.models.case import Case
from inductor_debug.models.options import check_declared
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.measurements import Ceiling
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case, compiled_case
from inductor_debug.stages.backends.lowering import ToldGraph
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.benchmark.sampling import environment
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.attribution import Part
from inductor_debug.stages.lower.stage import captured_graphs, kernels_of
from inductor_debug.stages.profile.ceiling import doubts, measured_ceiling, named_ceiling
from inductor_debug.stages.profile.declaration import DECLARATION
from inductor_debug.stages.profile.messages import message, summary
from inductor_debug.stages.profile.nodes import RangedNodes, node_work
from inductor_debug.stages.profile.observation import Observation, observe
from inductor_debug.stages.profile.tables import Profile, Timed, tables, timed
from inductor_debug.stages.profile.trace import annotated
from inductor_debug.stages.profile.work import FLOATING, Work, lowered_work
from inductor_debug.stages.torch_internals.generated_ranges import Ranges

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.generated_kernels import Kernel
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph


class ProfileStage(Stage):
    """Where a compiled step's time goes.

    Its findings inform: the stage passes whatever they are. It fails, "not established", where nothing was timed.
    """

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for a number that an option does not take, or a backend that can't be built."""
        check_declared(self.config, "stages.profile")
        build_adapter(context.settings).validate()

    def run(self, context: StageContext) -> StageResult:
        """Compile the case as it is and with ranges, and record steps; the case is left as it was."""
        before = environment()
        uninstrumented = compiled_case(context)
        context.progress("compiling with ranges around what is timed")
        ranged, described = with_ranges(context, uninstrumented)
        described = functools.cache(described)
        context.progress("recording steps")
        observation = observe(
            context.case,
            uninstrumented,
            ranged,
            lambda: {item.range for item in described()[0]},
            lambda: uninstrumented.given + (0 if ranged is uninstrumented else ranged.given),
            steps=self.config.steps,
            warmup=self.config.warmup,
            trace_steps=self.config.trace_steps,
            budget_s=self.config.budget_s,
        )
        work, notes = described()
        names = {item.range: item for item in work}
        notes = [*notes, *unsettled(ranged, observation)]
        if not work:
            work, observation = by_operator(observation)
        times = timed(work, observation)
        notes += observation.not_established + unseen(times, observation.on_device)
        measured = None
        if self.config.ceiling:
            context.progress("measuring the device's ceiling")
            measured, missing = measure(context.case, work)
            notes += missing
        named = named_ceiling(context.settings.accel.peaks, context.settings.accel.name)
        found = Profile(times, observation, measured, named, notes)
        artifacts: dict[str, Any] = dict(tables(found))
        artifacts[files.PROFILE.path] = summary(
            found, uninstrumented.backend, {"before": before, "after": environment()}
        )
        if observation.trace is not None:
            artifacts[files.TRACE.path] = annotated(observation.trace, names)
        training = context.case.mode == "training"
        if not found.longest() and holds_no_kernel(ranged):
            return StageResult(
                "passed", "There is nothing to time: the graphs hold no operation that needs a kernel.", artifacts
            )
        return StageResult("passed" if found.longest() else "failed", message(found, training=training), artifacts)


def holds_no_kernel(compiled: CompiledCase) -> bool:
    """Whether all that was compiled are views, or tensors without elements; False of a backend that does not tell."""
    graphs = compiled.graphs.values()
    return bool(graphs) and not any(
        graph.kernel_nodes or graph.kernel_stacks or (isinstance(graph, ToldGraph) and graph.kernels is None)
        for graph in graphs
    )


Described = tuple[list[Work], list[str]]
"""What ranges cover, and what can't be told."""


def with_ranges(context: StageContext, uninstrumented: CompiledCase) -> tuple[CompiledCase, Callable[[], Described]]:
    """The case compiled again with ranges around what is timed, and what describes all that it was compiled to by then.

    By the same adapter with the same options. A backend that shows no code is profiled as it is, by torch's operators.
    """
    case, adapter = context.case, build_adapter(context.settings)
    if adapter.as_traced:
        nodes = RangedNodes(adapter, case)
        ranged = compile_case(case, nodes)
        graphs, training = nodes.graphs, case.mode == "training"
        return ranged, lambda: ([item for graph in graphs.values() for item in node_work(graph, training=training)], [])
    ranges = Ranges()
    rewriting = adapter.rewriting_backend(ranges.rewrite)
    if rewriting is not None:
        ranged = compile_case(case, adapter, rewriting)
        return ranged, lambda: _lowered(context, uninstrumented, ranged, ranges)
    note = f"modules and source lines: the backend {adapter.name} shows no code whose calls could be told apart"
    return uninstrumented, lambda: ([], [note])


def _lowered(context: StageContext, uninstrumented: CompiledCase, ranged: CompiledCase, ranges: Ranges) -> Described:
    finder = SourceFinder(context.case.module)
    work: list[Work] = []
    notes = [f"the time of {name}: {reason}" for name, reason in ranges.missing.items()]
    for graph_id, lowered in ranged.graphs.items():
        work += lowered_work(lowered, captured_graphs(context.artifacts, graph_id), finder)
        before = uninstrumented.graphs.get(graph_id)
        if before is None or _code(before) != _code(lowered):
            notes.append(f"whether {graph_id} is what runs without the profiler: it was compiled to other kernels")
    return work, notes


def _code(lowered: "LoweredGraph") -> tuple[list["Kernel"], list[str]]:
    """The kernels of a generated module with their sources, and its launches: what is timed."""
    return kernels_of(lowered)[0], list(lowered.kernel_nodes)


def unsettled(ranged: CompiledCase, observation: Observation) -> list[str]:
    """That there is no graph, or that it is not always the same ones."""
    if not ranged.given:
        return ["what was timed: Dynamo gave the backend no graph (no operation, or too many recompilations)"]
    if not observation.compilations:
        return []
    return [
        f"the time of a step that compiles nothing: {counted(observation.compilations, 'graph')} compiled while steps "
        "were timed (more steps before them: stages.profile.warmup)"
    ]


def unseen(times: list[Timed], on_device: bool = False) -> list[str]:
    """Graphs none of whose launches was seen."""
    graphs = dict.fromkeys(item.work.graph for item in times)
    reason = "later steps run another graph, or none"
    if on_device:
        reason += "; CUDA graphs replay kernels without the code that launches them: backend=inductor_no_cudagraphs"
    return [
        f"kernel times of {graph}: none of its launches was seen in the recorded steps ({reason})"
        for graph in graphs
        if all(item.launches == 0 for item in times if item.work.graph == graph)
    ]


def by_operator(observation: Observation) -> tuple[list[Work], Observation]:
    """Torch's operators in the place of launches, where a backend shows nothing else."""
    names = {name: name.replace("::", ".") for name in observation.operators}
    work = [Work("", shown, None, "operator", name, [Part(shown, "", "", "", 1.0)]) for name, shown in names.items()]
    return work, replace(observation, ranges=observation.operators, outside={})


def measure(case: Case, work: list[Work]) -> tuple[Ceiling | None, list[str]]:
    """The device's ceiling in the dtypes of what was timed; None, and why, where the device can't run it."""
    own = str(case.dtype).removeprefix("torch.")
    dtypes = sorted({item.dtype for item in work if item.dtype}) or [own] * (own in FLOATING)
    try:
        found = measured_ceiling(case, dtypes)
        return found, doubts(found, case.device)
    except (RuntimeError, NotImplementedError) as error:
        return None, [f"the ceiling of {case.device}: {str(error).splitlines()[0]}"]
