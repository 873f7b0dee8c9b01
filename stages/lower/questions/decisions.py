"""What TorchInductor decided, from a stored run: fusions, with why not; candidates that were timed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from inductor_debug.models.errors import DamagedError, UserError
from inductor_debug.models.stored import DIGITS
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.lowered_tables import CandidateRow
from inductor_debug.stages.artifacts.lowering import LaunchRecord, LineRecord, LoweredFacts
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.lower.questions.between import Between
from inductor_debug.stages.lower.questions.graphs import not_found, wanted_graphs
from inductor_debug.stages.lower.questions.kernels import StoredLaunch, is_line, launches_of
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Table, Wanted

COUNT_COLUMNS = ("graph", "nodes_pre_fusion", "nodes_post_fusion", "fused", "refused")
REASON_COLUMNS = ("reason", "pairs", "times")
FUSION_COLUMNS = ("graph", "fused", "reason", "between", "times", "first", "first_source", "second", "second_source",
                  "first_nodes", "second_nodes")  # fmt: skip
"""``between``: the library calls on a path between a refused pair."""
KERNEL_COLUMNS = ("graph", "kernel", "kind", "nodes")
_NAMED = 5
"""Library calls between two lines that are named."""
AUTOTUNING_COLUMNS = ("graph", *(field.name for field in fields(CandidateRow)), "times_the_best", "operations")


def fusion(run: StoredRun, wanted: Wanted) -> Analysis:
    """What was fused, what was not and why; with two lines or nodes, the decisions about the two."""
    graphs = [graph for graph in wanted_graphs(run, wanted) if run.has(files.FUSIONS, graph)]
    if not graphs:
        raise UserError(
            "holds no fusions: its backend tells kernels, and not what it fused",
            key=str(run.folder),
            hint=f"inductor-debug analyze {run.folder} --type kernels",
        )
    facts = run.json(files.LOWERING).graphs
    launches = {graph: launches_of(run, graph) for graph in graphs}
    lines = {graph: _lines(run, graph) for graph in graphs}
    decided = {graph: _decisions(run, graph, lines[graph]) for graph in graphs}
    parted = {graph: Between(run, graph, launches[graph]) for graph in graphs}
    _known(launches, decided, wanted)
    counts, rows, reasons = [], [], Counter[str]()
    times: Counter[str] = Counter()
    kernels: list[StoredLaunch] = []
    for graph, decisions in decided.items():
        refused = [row for row in decisions if not row["fused"]]
        counts.append(vars(facts.get(graph, LoweredFacts()))
                      | {"graph": graph, "fused": len(decisions) - len(refused), "refused": len(refused)})  # fmt: skip
        chosen = [row for row in decisions if _concerns(row, wanted)]
        for row in chosen:
            if not row["fused"]:
                sides = (str(row[f"{side}_nodes"] or "").split() for side in ("first", "second"))
                row["between"] = ", ".join(parted[graph].calls(*sides)) or None
                reasons[row["reason"]] += 1
                times[row["reason"]] += row["times"]
        rows += chosen
        kernels += [launch for launch in launches[graph] if _touches(launch, wanted)]
    tables = [
        Table("graphs", COUNT_COLUMNS, counts),
        Table("reasons", REASON_COLUMNS, [{"reason": reason, "pairs": pairs, "times": times[reason]}
                                          for reason, pairs in reasons.most_common()]),
        Table("decisions", FUSION_COLUMNS, sorted(rows, key=lambda row: bool(row["fused"]))),
    ]  # fmt: skip
    if not wanted.lines and not wanted.nodes:
        return Analysis([], tables)
    where = [{"graph": launch.graph, "kernel": launch.launch, "kind": launch.kind,
              "nodes": " ".join(launch.nodes)} for launch in kernels]  # fmt: skip
    between = {graph: _parting(parted[graph], lines[graph], launches[graph], wanted) for graph in graphs}
    return Analysis(_told(rows, kernels, wanted, between), [*tables[1:], Table("kernels", KERNEL_COLUMNS, where)])


def _lines(run: StoredRun, graph: str) -> dict[str, list[LineRecord]]:
    """The line of each post-grad node that has one."""
    known = {str(line): line for launch in run.json(files.PROVENANCE, graph).kernels for line in launch.sources}
    lines: dict[str, list[LineRecord]] = defaultdict(list)
    for node in run.json(files.POST_GRAD_NODES, graph).nodes:
        if node.source:
            file, _, number = node.source.rpartition(":")
            if not number.isdecimal() or len(number) > DIGITS:
                raise DamagedError(f"a node's source is {node.source!r}", key=str(run.folder), valid="FILE:LINE")
            lines[node.node].append(known.get(node.source) or LineRecord(file, int(number), "", own=False))
    return lines


def _parting(
    between: Between, lines: Mapping[str, list[LineRecord]], launches: Iterable[LaunchRecord], wanted: Wanted
) -> list[str]:
    """The library calls between the two lines or nodes that are asked for."""
    names = {*lines, *(node for launch in launches for node in launch.nodes)}
    sides = [{name for name in names if any(is_line(line, text) for line in lines.get(name, ()))}
             for text in wanted.lines] + [{name} & names for name in wanted.nodes]  # fmt: skip
    return between.calls(*sides) if len(sides) == 2 else []


def _decisions(run: StoredRun, graph: str, lines: Mapping[str, list[LineRecord]]) -> list[Row]:
    """Rows of ``fusions.csv``, with ``first_lines`` and ``second_lines``: the lines of each side's nodes."""
    rows = []
    for row in run.table(files.FUSIONS, graph):
        sides: Row = {}
        for side in ("first", "second"):
            found = [line for node in str(row[f"{side}_nodes"] or "").split() for line in lines.get(node, ())]
            sides |= {f"{side}_lines": found, f"{side}_source": " ".join(dict.fromkeys(map(str, found))) or None}
        rows.append({"graph": graph} | row | sides)
    return rows


def _concerns(row: Row, wanted: Wanted) -> bool:
    """Whether every line and node that is asked for is of the pair; two of them, one of each side."""
    sides = [[_is_of(row, side, wanted, index) for side in ("first", "second")]
             for index in range(len(wanted.lines) + len(wanted.nodes))]  # fmt: skip
    if len(sides) == 2:
        (a, b), (c, d) = sides
        return (a and d) or (b and c)
    return all(any(side) for side in sides)


def _is_of(row: Row, side: str, wanted: Wanted, index: int) -> bool:
    if index < len(wanted.lines):
        return any(is_line(line, wanted.lines[index]) for line in row[f"{side}_lines"])
    name = wanted.nodes[index - len(wanted.lines)]
    return name == row[side] or name in str(row[f"{side}_nodes"] or "").split()


def _touches(launch: LaunchRecord, wanted: Wanted) -> bool:
    """Whether a launch has a line or node that is asked for."""
    lines = any(is_line(line, text) for text in wanted.lines for line in launch.sources)
    return lines or any(name in launch.nodes for name in wanted.nodes)


def _told(
    rows: list[Row], kernels: Sequence[StoredLaunch], wanted: Wanted, between: Mapping[str, list[str]]
) -> list[str]:
    """What the decisions come to, and what else stands between the two.

    Args:
        rows, kernels: decisions and launches of what is asked for.
        wanted: what is asked for.
        between: graph → library calls between the two, told where no kernel of the graph has both.
    """
    told = []
    asked = [*wanted.lines, *wanted.nodes]
    whole = [launch for launch in kernels
             if all(_touches(launch, _alone(wanted, index)) for index in range(len(asked)))]  # fmt: skip
    generated = [launch for launch in whole if launch.kind != "extern"]
    if len(asked) > 1 and generated:
        refused = any(not row["fused"] and _together(row, generated) for row in rows)
        how = "; a pair below that was refused came together through others" if refused else ""
        told.append(f"in one kernel: {', '.join(launch.launch for launch in generated)}{how}")
    library = Counter(launch.name for launch in kernels if launch.kind == "extern")
    if library:
        calls = ", ".join(f"{name} ({counted(times, 'launch', 'launches')})" for name, times in library.items())
        told.append(f"library calls, which nothing is fused into: {calls}")
    joined = {launch.graph for launch in generated}
    parting = [call for graph, calls in between.items() if graph not in joined for call in calls]
    if parting:
        more = f" and {len(parting) - _NAMED} more" if len(parting) > _NAMED else ""
        named = ", ".join(parting[:_NAMED])
        told.append(f"library calls from one to the other, over which nothing is fused: {named}{more}")
    alone = [[launch for launch in kernels if _touches(launch, _alone(wanted, index))] for index in range(len(asked))]
    graphs = [{launch.graph for launch in found} for found in alone]
    if len(asked) > 1 and all(graphs) and not set.intersection(*graphs):
        named = " and ".join(", ".join(sorted(each)) for each in graphs)
        told.append(f"they are of different graphs, {named}: nothing is fused over the border of a graph")
    elif not (rows or parting or generated) and not any(
        found and all(launch.kind == "extern" for launch in found) for found in alone
    ):
        told.append("not established: torch recorded no decision here; it does not consider each pair")
    return told


def _together(row: Row, launches: Sequence[StoredLaunch]) -> bool:
    """Whether one kernel computes both nodes of a decision."""
    both = {*str(row["first_nodes"]).split(), *str(row["second_nodes"]).split()}
    return any(launch.graph == row["graph"] and both <= {*launch.nodes} for launch in launches)


def _alone(wanted: Wanted, index: int) -> Wanted:
    if index < len(wanted.lines):
        return Wanted(lines=[wanted.lines[index]])
    return Wanted(nodes=[wanted.nodes[index - len(wanted.lines)]])


def _known(launches: Mapping[str, Sequence[LaunchRecord]], decided: Mapping[str, list[Row]], wanted: Wanted) -> None:
    """UserError for the first line or node that neither a kernel nor a decision has."""
    every = [launch for found in launches.values() for launch in found]
    decisions = [row for found in decided.values() for row in found]
    for index, given in enumerate([*wanted.lines, *wanted.nodes]):
        alone = _alone(wanted, index)
        if any(_touches(launch, alone) for launch in every) or any(_concerns(row, alone) for row in decisions):
            continue
        nodes = dict.fromkeys(node for launch in every for node in launch.nodes)
        lines = {line.code: None for launch in every for line in launch.sources if line.own}
        option, known = ("--node", nodes) if alone.nodes else ("--line", lines)
        raise not_found(option, given, known, ", of which no fusion was decided")


def autotuning(run: StoredRun, wanted: Wanted) -> Analysis:
    """One row a candidate, the fastest of each operation first; ``times_the_best`` says how close it came.

    Operations alike in inputs, candidates and times are one: ``operations`` counts them, ``choice`` is the first's.
    """
    rows = []
    for graph in wanted_graphs(run, wanted):
        best: float | None = None
        for row in run.table(files.AUTOTUNING, graph):
            spent = row["milliseconds"]
            best = spent if row["fastest"] else best
            ratio = spent / best if spent is not None and best else None
            rows.append({"graph": graph} | row | {"times_the_best": ratio})
    if not rows:
        tuned = run.json(files.LOWERING).inductor_options.get("max_autotune")
        tried = "max_autotune was on, but no operation had a second candidate" if tuned else "max_autotune was off"
        raise run.lacks("autotuning", "lower", *_autotuning_options(run), because=f"no candidate was timed, {tried}")
    fastest = [row for row in rows if row["fastest"]]
    kinds = Counter(_family(str(row["choice"])) for row in fastest)
    told = f"{counted(len(fastest), 'operation')} timed, {counted(len(rows), 'candidate')}; fastest: " + ", ".join(
        f"{kind} {count}" for kind, count in kinds.most_common()
    )
    return Analysis([told], [Table("candidates", AUTOTUNING_COLUMNS, _alike(rows))])


def _alike(rows: list[Row]) -> list[Row]:
    """Candidates that differ in the number in their names alone, as one row."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        same = {key: value for key, value in row.items() if key != "choice"}
        key = (_family(str(row["choice"])), *map(str, same.values()))
        found.setdefault(key, row | {"operations": 0})["operations"] += 1
    return list(found.values())


def _autotuning_options(run: StoredRun) -> Iterable[str]:
    """What to type: on the CPU a template wants weights that are constants."""
    yield "backend=inductor_max_autotune"
    if run.head.run.device in (None, "cpu"):
        yield "backend.inductor.freezing=true"


def _family(choice: str) -> str:
    """``triton_mm_12`` and ``triton_mm_13`` are of one family."""
    return choice.rstrip("0123456789").rstrip("_")
