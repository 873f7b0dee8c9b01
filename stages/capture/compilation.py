"""Capture a case: one compilation, all its graphs as records."""

from dataclasses import dataclass, field
from typing import Any

from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.artifacts.records import BreakRecord, CapturedGuard, RecompileRecord
from inductor_debug.stages.capture.breaks import setting_in
from inductor_debug.stages.graphs.records import GraphRecord, SourceLine
from inductor_debug.stages.torch_internals import aot, dynamo
from inductor_debug.stages.torch_internals.fx_records import RecordContext, graph_record

KINDS = ("dynamo", "joint", "forward", "backward")


@dataclass
class Capture:
    """What one ``torch.compile`` of a case made.

    Attributes:
        graphs: by number, then dynamo, joint (training), forward, backward (training).
        code: graph id → readable FX code, with shapes and source lines as comments.
        breaks, guards, recompiles: as they are stored.
    """

    graphs: list[GraphRecord] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)
    breaks: list[BreakRecord] = field(default_factory=list)
    guards: list[CapturedGuard] = field(default_factory=list)
    recompiles: list[RecompileRecord] = field(default_factory=list)

    def graph(self, id: str) -> GraphRecord:
        """The graph of that id; KeyError, naming those there are, where there is none."""
        for graph in self.graphs:
            if graph.id == id:
                return graph
        raise KeyError(f"no graph {id!r}; captured: {', '.join(graph.id for graph in self.graphs) or 'none'}")

    def count(self, kind: str) -> int:
        """How many graphs of a kind there are."""
        return sum(graph.kind == kind for graph in self.graphs)


class _Recorder:
    """The torch.compile backend: numbers Dynamo graphs and records each, then hands it to AOTAutograd."""

    def __init__(self, context: RecordContext) -> None:
        self.context = context
        self.numbers: dict[Any, int] = {}
        self.records: dict[str, GraphRecord] = {}
        self.code: dict[str, str] = {}

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        key = dynamo.current_compile_key()
        number = self.numbers.setdefault(key, len(self.numbers))
        for kind in KINDS:  # a compilation that was restarted: only what it ends with counts
            self.records.pop(f"g{number}.{kind}", None)
            self.code.pop(f"g{number}.{kind}", None)
        placeholders = dynamo.dynamo_placeholders(gm, self.context)
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        known = dict(zip(names, placeholders, strict=True))
        context = self.context.for_graph()
        self.store(graph_record(gm.graph, id=f"g{number}.dynamo", context=context, placeholders=known), gm)
        return aot.recording_backend(number, placeholders, context, self.store)(gm, example_inputs)

    def store(self, record: GraphRecord, gm: fx.GraphModule) -> None:
        self.records[record.id] = record
        self.code[record.id] = gm.print_readable(print_output=False)

    def id_of(self, key: Any) -> str | None:
        number = self.numbers.get(key)
        return None if number is None else f"g{number}.dynamo"


def _break(event: dynamo.BreakEvent, graph: str | None) -> BreakRecord:
    source = event.source or SourceLine("", 0)
    return BreakRecord(
        graph=graph,
        kind=event.kind,
        reason=event.reason,
        detail=event.detail,
        setting=setting_in(event.detail),
        file=source.file or None,
        line=source.line or None,
        function=source.function or None,
        code=source.code or None,
        stack=[str(frame) for frame in event.stack],
    )


def capture(case: Case, dynamic: bool | None = None) -> Capture:
    """Compile a case once and record every graph on the way. The graphs run in eager mode, nothing is lowered.

    One step (in training with its backward) is run from the case's seed; module, inputs and generators are left as
    found. Dynamo's caches are reset before and after.

    Args:
        case: the case.
        dynamic: None lets torch decide, True traces with symbolic sizes, False never.

    Returns:
        The graphs, in the order of the ids, with breaks and guards. Empty where nothing was captured.

    Raises:
        Whatever the model or torch raises while it is traced or run.
    """
    context = RecordContext.of(case.module)
    recorder, log = _Recorder(context), dynamo.CompilationLog(context.sources)
    dynamo.reset()
    try:
        with case.preserved(), dynamo.recorded_breaks(log):
            seed_everything(case.seed)
            case.step(dynamo.compile_recorded(case.module, recorder, log, dynamic))
    finally:
        dynamo.reset()
    ids = [f"g{number}.{kind}" for number in range(len(recorder.numbers)) for kind in KINDS]
    ids = [id for id in ids if id in recorder.records]
    return Capture(
        graphs=[recorder.records[id] for id in ids],
        code={id: recorder.code[id] for id in ids},
        breaks=[_break(event, recorder.id_of(event.key)) for event in log.breaks],
        guards=[
            CapturedGuard(
                graph=recorder.id_of(event.key),
                type=event.type,
                name=event.name,
                scope=event.scope,
                code=event.code,
                source=str(event.source) if event.source else None,
            )
            for event in log.guards
        ],
        recompiles=[RecompileRecord(event.reason, event.function, event.file, event.line) for event in log.recompiles],
    )
