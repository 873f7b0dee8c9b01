"""The guards stage: what torch.compile holds the case to, and what varied inputs make of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from inductor_debug.models.build import SIZES
from inductor_debug.models.case import Case, inputs_by_name
from inductor_debug.models.nested import named_tensors
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.capture.breaks import helping_settings
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import because, counted, describe_breaks, in_lines, in_words
from inductor_debug.stages.guards import tables
from inductor_debug.stages.guards.config import SIZED, check_options, named_dims
from inductor_debug.stages.guards.declaration import DECLARATION
from inductor_debug.stages.guards.inspection import inspect_guards
from inductor_debug.stages.guards.records import NOT_ESTABLISHED, REFUSED_BY_MODEL, GuardReport
from inductor_debug.stages.guards.variations import Rebuilder, check_named
from inductor_debug.stages.settings import Settings


class GuardsStage(Stage):
    """Guards of each graph, graph breaks, and what recompiles when the inputs vary.

    Its findings inform: the stage passes whatever they are. It fails, "not established", where torch.compile makes no
    graph, or where variations were asked for and not one could be called.
    """

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for an unknown variation or compiler, or dimensions that the case lacks."""
        check_options(self.config.vary, self.config.dims, self.config.compiler)
        if "case" in context.live:  # else it could not be built, and each stage meets that again
            for kind, named in self._dims().items():
                check_named(context.case, kind, named)
        if self.config.compiler == "backend":
            build_adapter(context.settings).validate()

    def run(self, context: StageContext) -> StageResult:
        """Inspect the context's case, which is left as it was; what an earlier stage compiled is dropped."""
        report = inspect_guards(
            context.case,
            vary=self.config.vary,
            dims=self._dims(),
            rebuilder=rebuilder(context.settings),
            backend=self._backend(context),
            progress=context.progress,
        )
        context.live.pop("compiled", None)  # Dynamo's caches are empty: it would compile again in the midst of a timing
        return StageResult(
            "passed" if established(report) else "failed",
            in_lines(message(report), unvaried(context.case)),
            artifacts=tables.artifacts(report),
            summary={"guards": tables.summary(report)},
        )

    def _dims(self) -> dict[str, dict[str, Any]]:
        return {kind: named_dims(self.config.dims[kind]) for kind in SIZED if kind in self.config.dims}

    def _backend(self, context: StageContext) -> Any:
        if self.config.compiler != "backend":
            return None
        return build_adapter(context.settings).dynamo_backend()


def rebuilder(settings: Settings) -> Rebuilder:
    """Builds the run's case in other sizes. Inputs are made, where a file gave them, for a file has one size."""

    def build(sizes: Mapping[str, int]) -> Case:
        changes: dict[str, Any] = {"inputs": None, **sizes}
        model = dataclasses.replace(settings.model, **changes)
        return dataclasses.replace(settings, model=model).build_case()

    return Rebuilder({name: getattr(settings.model, name) for name in SIZES}, build)


def established(report: GuardReport) -> bool:
    """Whether anything could be looked at: a graph, and a variation where there were any to call."""
    asked = [item for item in report.variations if item.kind != "repeat"]
    return bool(report.graphs) and (not asked or any(item.calls for item in asked))


def unvaried(case: Case) -> str:
    """The inputs that hold no tensor: another value of one may recompile too, and none is called."""
    named = inputs_by_name(case.module, case.args, case.kwargs)
    names = [name for name, value in named.items() if not any(True for _ in named_tensors(value, name))]
    return f"Not varied: {', '.join(names)} (no tensor; its guards are in guards.json)." if names else ""


def message(report: GuardReport) -> str:
    """What makes it compile again, in a sentence; below it the figures."""
    if not report.graphs:
        breaks = report.bases["automatic"].breaks
        cause = f" {because('The first break', breaks[0].reason)}" if breaks else ""
        help = helping_settings(" ".join(item.hints) for item in breaks)
        told = f"What makes it compile again is not established: torch.compile made no graph of this model.{cause}"
        return in_words(told, help)
    counts = tables.summary(report)
    parts = [
        counted(len(report.graphs), "graph") + " with " + counted(counts.guards or 0, "guard"),
        describe_breaks([item.kind for item in report.bases["automatic"].breaks]) or "no graph break",
    ]
    again = [f"{kind} ({', '.join(policies)})" for kind, policies in report.recompiling().items() if policies]
    told = f"It recompiles when these vary: {'; '.join(again)}" if again else "Nothing that was varied recompiles"
    limits = f"; {counted(counts.limits_hit, 'call')} reached a limit on compilations" if counts.limits_hit else ""
    changes = report.changes()
    if changes.kept is not None:
        parts.append(f"dynamic shapes relax {counted(changes.relaxed or 0, 'guard')} and remove {changes.gone}")
    if counts.refused_by_compiler:
        parts.append(f"{counted(counts.refused_by_compiler, 'call')} that eager accepts the compiled model refuses")
    outcomes = [item.outcome("automatic") for item in report.variations if not item.calls]
    refused, missing = (outcomes.count(outcome) for outcome in (REFUSED_BY_MODEL, NOT_ESTABLISHED))
    if refused:
        parts.append(f"{counted(refused, 'variation')} that the model itself refuses")
    if missing:
        parts.append(f"{counted(missing, 'variation')} not established")
    if not established(report):
        told = "What makes it compile again is not established: no variation could be called"
    return in_lines(f"{told}{limits}.", f"{', '.join(parts)}.")
