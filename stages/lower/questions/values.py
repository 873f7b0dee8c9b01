"""Printed values of a stored run: where the first NaN and the first infinity came from."""

from collections.abc import Collection

from inductor_debug.models.errors import UserError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import shown
from inductor_debug.stages.artifacts.lowered_tables import ValueRow
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.lower.buffer_contents import held_rows
from inductor_debug.stages.lower.first_nonfinite import is_unjudged, launches_in, place_of, to_learn
from inductor_debug.stages.lower.questions import kernels
from inductor_debug.stages.lower.questions.graphs import lowered_graphs, not_found
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted
from inductor_debug.stages.torch_internals.generated_launches import kernel_of

VALUE_COLUMNS = ("graph", "launch", "kernel", "when", "buffer", "written", "holds", "writer", "state", "born", "shape",
                 "dtype", "mean", "min", "max", "file", "note")  # fmt: skip


def values(run: StoredRun, wanted: Wanted) -> Analysis:
    """What the printer told of each launch; the first NaN and infinity above."""
    rows = files.VALUES.records(run.artifacts)
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
    unjudged = sum(map(is_unjudged, held))
    told = []
    for state, word in (("nan", "NaN"), ("inf", "infinity")):
        first = next((row for row in held if row.state == state), None)
        if first is not None:
            told.append(f"the first {word}: {place_of(first)}")
            candidates = launches_in(first)
            certain = "from" if len(candidates) == 1 else "perhaps from"
            told += [f"  {certain} {line}" for line in _lines_of(run, first.graph, candidates)]
            option = to_learn(first, *_printer(run))
            told += [f"  to learn where it was born, type {run.rerun(option)}"] if option else []
        elif any(row.state for row in held):
            told.append(f"no {word} in what was printed")
    if unjudged:
        told.append(
            f"not established: {counted(unjudged, 'value')} in which nothing could be looked for (state is empty)"
        )
    return Analysis(told, [Table("values", VALUE_COLUMNS, [*map(shown, chosen)], files.VALUES.path)])


def _chosen_values(rows: list[ValueRow], wanted: Wanted) -> list[ValueRow]:
    """The values of a graph and of kernels that are asked for; UserError where one has none.

    The printer knows no handles: of ``NAME:HANDLE`` all of the kernel's launches are taken.
    """
    graphs = list(dict.fromkeys(row.graph for row in rows))
    if wanted.graph is not None and wanted.graph not in graphs:
        raise UserError(f"got {wanted.graph!r}", key="--graph", valid=", ".join(graphs), hint=f"--graph {graphs[0]}")
    names = dict.fromkeys(row.kernel for row in rows if row.kernel)
    asked = [kernel_of(name) for name in wanted.kernels]
    for name in asked:
        if not any(name in known for known in names):
            raise not_found("--kernel", name, names, ", of which no value is told")
    return [row for row in rows if all(name in row.kernel for name in asked)
            and wanted.graph in (None, row.graph)]  # fmt: skip


def _printer(run: StoredRun) -> tuple[list[str], int]:
    """The printer's ``kernels`` and ``print_values``; no kernel and 0 where the run does not say."""
    printer = run.json(files.LOWERING).printer if run.has(files.LOWERING) else None
    return ([], 0) if printer is None else (printer.kernels, printer.level)


def _lines_of(run: StoredRun, graph: str, launches: Collection[str]) -> list[str]:
    """The model's lines behind some of a graph's launches, ``kernel:handle``; none where that is not known."""
    if graph not in lowered_graphs(run):
        return []
    known = {each.launch: each.sources for each in kernels.launches_of(run, graph)}
    lines = [line for name in launches for line in known.get(name, ()) if line.own]
    return list(dict.fromkeys(f"{line}: {line.code}" for line in lines))
