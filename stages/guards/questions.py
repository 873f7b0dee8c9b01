"""What the guards stage answers: where the graph breaks, and what recompiles."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from inductor_debug.models.shapes import fields_of
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.guards import Guard
from inductor_debug.stages.artifacts.records import CapturedGuard
from inductor_debug.stages.formatting import counted, describe_breaks
from inductor_debug.stages.guards.suggestions import for_break
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, whole_table

GUARD_COLUMNS = ("graph", "type", "guards", "example", "source")
DYNAMIC_COLUMNS = ("graph", "function", "file", "line", "guards", "kept", "relaxed", "gone")
CAPTURED_BREAK_COLUMNS = ("graph", "kind", "reason", "suggestion", "file", "line", "code")


def guards(run: StoredRun, wanted: Wanted) -> Analysis:
    """What recompiles and why, where the stage ``guards`` ran; else what capture saw of one compilation."""
    if not run.has(files.GUARDS):
        return _captured_guards(run)
    facts = run.json(files.GUARDS)
    graphs = [vars(graph) | {"guards": len(graph.guards)} | graph.dynamic_shapes for graph in facts.graphs]
    held = [(graph.graph, guard) for graph in facts.graphs for guard in graph.guards]
    tables = [Table("graphs", DYNAMIC_COLUMNS, graphs, files.GUARDS.path)]
    tables.append(whole_table(run, "variations", files.GUARD_VARIATIONS))
    tables.append(whole_table(run, "recompiles", files.GUARD_RECOMPILES))
    tables.append(whole_table(run, "breaks", files.GUARD_BREAKS))
    if facts.limits:
        tables.append(Table("limits", list(vars(facts.limits[0])), [*map(vars, facts.limits)], files.GUARDS.path))
    tables.append(_by_type(held, files.GUARDS.path))
    return Analysis([run.message("guards"), *(f"not established: {note}" for note in facts.not_established)], tables)


def _captured_guards(run: StoredRun) -> Analysis:
    if not run.has(files.CAPTURED_GUARDS):
        raise run.lacks("guards", "guards", "stages=[guards,report]")
    held, breaks, again = run.json(files.CAPTURED_GUARDS), run.json(files.BREAKS), run.json(files.RECOMPILES)
    advised = [vars(item) | {"suggestion": for_break(item.detail or item.reason)} for item in breaks]
    broken = describe_breaks([item.kind for item in breaks]) or "no graph break"
    told = [
        f"{broken}; {counted(len(again), 'recompilation')} in the one step",
        f"not established: what recompiles when inputs vary. Try: {run.rerun('stages=[guards,report]')}",
    ]
    columns = [key for key, _ in fields_of(again[0])] if again else ["reason"]
    return Analysis(told, [
        Table("breaks", CAPTURED_BREAK_COLUMNS, advised, files.BREAKS.path),
        Table("recompiles", columns, [*map(vars, again)], files.RECOMPILES.path),
        _by_type(((guard.graph, guard) for guard in held), files.CAPTURED_GUARDS.path),
    ])  # fmt: skip


def _by_type(held: Iterable[tuple[str | None, Guard | CapturedGuard]], file: str) -> Table:
    """Guards of one graph and type together, those on tensors first; those of frames without a graph last."""
    groups: dict[tuple[str | None, str], list[Guard | CapturedGuard]] = defaultdict(list)
    for graph, guard in held:
        groups[graph, guard.type].append(guard)
    rows = [{"graph": graph, "type": kind, "guards": len(found), "example": " and ".join(found[0].code[:1]),
             "source": found[0].source} for (graph, kind), found in groups.items()]  # fmt: skip

    def place(row: Mapping[str, Any]) -> tuple[bool, str, bool]:
        return row["graph"] is None, row["graph"] or "", row["type"] != "TENSOR_MATCH"

    return Table("guards", GUARD_COLUMNS, sorted(rows, key=place), file)
