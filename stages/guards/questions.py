"""What the guards stage answers: where the graph breaks, and what recompiles. Free of torch."""

from collections import defaultdict

from inductor_debug.stages.formatting import breaks_in_words, counted
from inductor_debug.stages.guards.suggestions import for_break
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Table, Wanted, whole_table

GUARD_COLUMNS = ("graph", "type", "guards", "example", "source")
DYNAMIC_COLUMNS = ("graph", "function", "file", "line", "guards", "kept", "relaxed", "gone")
CAPTURED_BREAK_COLUMNS = ("graph", "kind", "reason", "suggestion", "file", "line", "code")


def guards(run: StoredRun, wanted: Wanted) -> Analysis:
    """What recompiles and why, where the stage ``guards`` ran; else what capture saw of one compilation."""
    if not run.has("guards/guards.json"):
        return _captured_guards(run)
    facts = run.json("guards/guards.json")
    graphs = [{key: graph[key] for key in DYNAMIC_COLUMNS[:4]} | {"guards": len(graph["guards"])}
              | graph["dynamic_shapes"] for graph in facts["graphs"]]  # fmt: skip
    held = [guard | {"graph": graph["graph"]} for graph in facts["graphs"] for guard in graph["guards"]]
    tables = [Table("graphs", DYNAMIC_COLUMNS, graphs, "guards/guards.json")]
    for name in ("variations", "recompiles", "breaks"):
        tables.append(whole_table(run, name, f"guards/{name}.csv"))
    if facts["limits"]:
        tables.append(Table("limits", list(facts["limits"][0]), facts["limits"], "guards/guards.json"))
    tables.append(_by_type(held, "guards/guards.json"))
    return Analysis([run.message("guards"), *(f"not established: {note}" for note in facts["not_established"])], tables)


def _captured_guards(run: StoredRun) -> Analysis:
    if not run.has("capture/guards.json"):
        raise run.lacks("guards", "guards", "stages=[guards,report]")
    breaks, again = run.json("capture/breaks.json"), run.json("capture/recompiles.json")
    advised = [item | {"suggestion": for_break(item.get("detail") or item["reason"])} for item in breaks]
    told = [
        f"{breaks_in_words(breaks) or 'no graph break'}; {counted(len(again), 'recompilation')} in the one step",
        f"not established: what recompiles when inputs vary. Try: {run.rerun('stages=[guards,report]')}",
    ]
    columns = list(again[0]) if again else ["reason"]
    return Analysis(told, [
        Table("breaks", CAPTURED_BREAK_COLUMNS, advised, "capture/breaks.json"),
        Table("recompiles", columns, again, "capture/recompiles.json"),
        _by_type(run.json("capture/guards.json"), "capture/guards.json"),
    ])  # fmt: skip


def _by_type(held: list[Row], file: str) -> Table:
    """Guards of one graph and type together, those on tensors first."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for guard in held:
        groups[guard["graph"], guard["type"]].append(guard)
    rows = [{"graph": graph, "type": kind, "guards": len(found), "example": " and ".join(found[0]["code"][:1]),
             "source": found[0]["source"]} for (graph, kind), found in groups.items()]  # fmt: skip
    return Table(
        "guards", GUARD_COLUMNS, sorted(rows, key=lambda row: (row["graph"], row["type"] != "TENSOR_MATCH")), file
    )
