"""Guards, fit, numbers, printed values, bisection and time of a stored run."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from inductor_debug.models.errors import UserError, closest_first
from inductor_debug.pipeline.query import kernels
from inductor_debug.pipeline.query.kernels import NEAREST
from inductor_debug.pipeline.query.stored import Analysis, Row, StoredRun, Table, Wanted, parsed
from inductor_debug.stages.formatting import breaks_in_words, counted
from inductor_debug.stages.guards.suggestions import for_break
from inductor_debug.stages.lower.buffer_contents import held_rows
from inductor_debug.stages.lower.first_nonfinite import launches_in, place_of, to_learn
from inductor_debug.stages.report import bisection, fit, numbers

GUARD_COLUMNS = ("graph", "type", "guards", "example", "source")
DYNAMIC_COLUMNS = ("graph", "function", "file", "line", "guards", "kept", "relaxed", "gone")
CAPTURED_BREAK_COLUMNS = ("graph", "kind", "reason", "suggestion", "file", "line", "code")
NUMBER_COLUMNS = ("kind", "path", "verdict", "bound", "ratio", "max_abs", "max_rel", "rmse", "max_ulp", "nan_reference",
                  "nan_test", "message")  # fmt: skip
VALUE_COLUMNS = ("graph", "launch", "kernel", "when", "buffer", "written", "holds", "writer", "state", "born", "shape",
                 "dtype", "mean", "min", "max", "file", "note")  # fmt: skip
PROFILED = ("lines", "kernels", "modules", "operations")


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
        tables.append(_whole(run, name, f"guards/{name}.csv"))
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


def constraints(run: StoredRun, wanted: Wanted) -> Analysis:
    """What the findings come to by rule and effect, the lines that would repay a change, and every finding."""
    stored = fit.violations(run.artifacts, run.summary, 0)
    if stored is None:
        raise run.lacks("violations", "constrain", "stages=[capture,constrain,report]", "accel=strict16")
    if stored["total"] is None:
        reason = run.message("constrain") or "the profile has no rules"
        raise UserError(
            f"{run.folder}: holds no violations: {reason}.\nTry: inductor-debug check {run.folder} accel=strict16"
        )
    lines = [dict(line) for line in stored["top_lines"]]
    return Analysis([run.message("constrain")], [
        _whole(run, "rules", fit.SUMMARY),
        Table("lines", list(lines[0]) if lines else ["source"], lines),
        _whole(run, "violations", fit.TABLE),
    ])  # fmt: skip


def numerics(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, and every compared tensor, the worst first."""
    stored = numbers.numerics(run.artifacts, run.summary, 0)
    if stored is None:
        raise run.lacks("compared numbers", "kerneldiff", "stages=[capture,lower,kerneldiff,report]")
    rows = numbers.read_table(run.artifacts, numbers.TABLE) or []
    worst = [{key: parsed(value) for key, value in row.items()} for row in sorted(rows, key=numbers.worst_first)]
    told = [run.message("kerneldiff"), stored["tally"] or "", stored["summary"].get("verdict") or ""]
    diagnosis = stored["diagnosis"] or {}
    if (stored["summary"].get("failed") or 0) and not run.has(bisection.FACTS):
        told.append(f"which part of the compiler? Try: {run.rerun('stages=[kerneldiff,bisect,report]')}")
    tables = [Table("outputs", NUMBER_COLUMNS, worst, numbers.TABLE)]
    for name in ("drift", "jitter"):
        if run.has(f"kerneldiff/{name}.csv"):
            tables.append(_whole(run, name, f"kerneldiff/{name}.csv"))
    if diagnosis.get("error"):
        told.append(f"the {diagnosis['error'].get('side')} side raised {diagnosis['error'].get('type')}")
    return Analysis([line for line in dict.fromkeys(told) if line], tables)


def values(run: StoredRun, wanted: Wanted) -> Analysis:
    """What the printer told of each launch; the first NaN and infinity above."""
    rows = run.table("lower/values.csv")
    if not rows:
        how = "backend=aot_inductor", "backend.options.print_values=2"
        raise run.lacks(
            "intermediate values",
            "lower",
            *how,
            "stages=[lower,report]",
            because=f"they are what {' and '.join(how)} tell",
        )
    chosen = _chosen_values(rows, wanted)
    held = list(held_rows(chosen))
    unjudged = sum(bool(row["buffer"]) and not row["state"] and row.get("value") is None and row.get("elements") != 0
                   for row in held)  # fmt: skip
    told = []
    for state, word in (("nan", "NaN"), ("inf", "infinity")):
        first = next((row for row in held if row["state"] == state), None)
        if first is not None:
            told.append(f"the first {word}: {place_of(first)}")
            suspects = launches_in(first)
            certain = "from" if len(suspects) == 1 else "perhaps from"
            told += [f"  {certain} {line}" for line in _lines_of(run, str(first["graph"]), suspects)]
            option = to_learn(first, *_printer(run))
            told += [f"  to learn where it was born, type {run.rerun(option)}"] if option else []
        elif any(row["state"] for row in held):
            told.append(f"no {word} in what was printed")
    if unjudged:
        told.append(
            f"not established: {counted(unjudged, 'value')} in which nothing could be looked for (state is empty)"
        )
    return Analysis(told, [Table("values", VALUE_COLUMNS, chosen, "lower/values.csv")])


def _chosen_values(rows: list[Row], wanted: Wanted) -> list[Row]:
    """The values of a graph and of kernels that are asked for; UserError where one has none.

    The printer knows no handles: of ``NAME:HANDLE`` all of the kernel's launches are taken.
    """
    graphs = list(dict.fromkeys(str(row["graph"]) for row in rows))
    if wanted.graph is not None and wanted.graph not in graphs:
        raise UserError(f"--graph: got {wanted.graph!r}; valid: {', '.join(graphs)}.\nTry: --graph {graphs[0]}")
    names = dict.fromkeys(str(row["kernel"]) for row in rows if row["kernel"])
    asked = [re.sub(r":\d+$", "", name) for name in wanted.kernels]
    for name in asked:
        if not any(name in known for known in names):
            near = closest_first(name, names)[:NEAREST]
            hint = f"\nTry: --kernel {near[0]}" if near else ""
            raise UserError(f"--kernel: got {name!r}, of which no value is told; valid: {', '.join(near)}, ….{hint}")
    return [row for row in rows if all(name in str(row["kernel"] or "") for name in asked)
            and wanted.graph in (None, row["graph"])]  # fmt: skip


def _printer(run: StoredRun) -> tuple[list[str], int]:
    """The printer's ``kernels`` and ``print_values``; no kernel and 0 where the run does not say."""
    facts = run.json("lower/summary.json") if run.has("lower/summary.json") else {}
    printer = facts.get("printer", {"kernels": [], "level": 0})
    return printer["kernels"], printer["level"]


def _lines_of(run: StoredRun, graph: str, launches: Collection[str]) -> list[str]:
    """The model's lines behind some of a graph's launches, ``kernel:handle``; none where that is not known."""
    if graph not in run.graphs:
        return []
    known = {f"{each['name']}:{each['handle']}": each for each in kernels.launches_of(run, graph)}
    lines = [line for name in launches for line in known.get(name, {"sources": []})["sources"] if line["own"]]
    return list(dict.fromkeys(f"{kernels.place(line)}: {line['code']}" for line in lines))


def bisect(run: StoredRun, wanted: Wanted) -> Analysis:
    """Which part of the compiler it takes, where in the model, what to type to be rid of it, and every probe."""
    found = bisection.bisection(run.artifacts, 0)
    if found is None:
        because = run.message("bisect")
        raise run.lacks("bisection", "bisect", "stages=[kerneldiff,bisect,report]", because=because)
    remedy = [f"remedy ({found['remedy']['kind']}): {found['remedy']['text']}"] if found["remedy"] else []
    nodes = found["nodes"]
    columns = list(dict.fromkeys(key for row in nodes for key in row)) or ["name"]
    return Analysis([found["answer"], *remedy], [
        Table("nodes", columns, nodes, bisection.FACTS),
        _whole(run, "probes", bisection.TABLE),
    ])  # fmt: skip


def profile(run: StoredRun, wanted: Wanted) -> Analysis:
    """Where the time goes: by line of the model, kernel, module and operation, the longest first."""
    stored = [name for name in PROFILED if run.has(f"profile/{name}.csv")]
    if not stored:
        raise run.lacks("profile", "profile", "+stages=profile")
    tables = [_whole(run, name, f"profile/{name}.csv") for name in stored]
    return Analysis([run.message("profile")], [replace(table, rows=sorted(table.rows, key=_time)) for table in tables])


def _time(row: Row) -> float:
    return -float(row.get("time_us") or 0.0)


def _whole(run: StoredRun, name: str, file: str) -> Table:
    """A stored table as it is."""
    rows = run.table(file)
    columns: Any = list(rows[0]) if rows else (run.text(file).splitlines()[:1] or [""])[0].split(",")
    return Table(name, columns, rows, file)


def summary(run: StoredRun, wanted: Wanted) -> Analysis:
    """The verdict, each stage, the main findings, and what else can be asked of this run."""
    from inductor_debug.pipeline.query import TYPES

    about = run.summary["run"]
    report = run.json("report/report.json") if run.has("report/report.json") else {}
    name = ", ".join(str(about.get(key)) for key in ("model", "accel", "backend", "dtype", "mode"))
    told = [f"{name}: {run.summary['verdict']}", *report.get("findings", [])]
    stages = run.summary["stages"]
    files = Counter(name.split("/")[0] for name in run.names if "/" in name)
    asked = [{"type": name, "question": kind.question, **_answered(run, name)}
             for name, kind in TYPES.items() if name != "summary"]  # fmt: skip
    folders = [{"folder": name, "files": count} for name, count in sorted(files.items()) if not name.startswith(".")]
    return Analysis(told, [
        Table("stages", ("name", "status", "seconds", "message"), stages, "summary.json"),
        Table("types", ("type", "held", "question", "otherwise"), asked),
        Table("folders", ("folder", "files"), folders),
    ])  # fmt: skip


def _answered(run: StoredRun, name: str) -> Row:
    """Whether the run holds what a type tells of, and what to type where it does not."""
    from inductor_debug.pipeline.query import TYPES

    try:
        TYPES[name].read(run, Wanted())
    except UserError as error:
        return {"held": False, "otherwise": str(error).rpartition("Try: ")[2]}
    return {"held": True, "otherwise": None}
