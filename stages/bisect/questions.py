"""What the bisect stage answers: which part of the compiler a fault takes."""

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.bisect import section
from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted, whole_table


def bisect(run: StoredRun, wanted: Wanted) -> Analysis:
    """Which part of the compiler it takes, where in the model, what to type to be rid of it, and every probe."""
    found = section.bisection(run.artifacts, 0)
    if found is None:
        because = run.message("bisect")
        raise run.lacks("bisection", "bisect", "stages=[kerneldiff,bisect,report]", because=because)
    remedy = [f"remedy ({found['remedy'].kind}): {found['remedy'].text}"] if found["remedy"] else []
    nodes = found["nodes"]
    columns = list(dict.fromkeys(key for row in nodes for key in row)) or ["name"]
    return Analysis([found["answer"], *remedy], [
        Table("nodes", columns, nodes, files.BISECTION.path),
        whole_table(run, "probes", files.PROBES),
    ])  # fmt: skip
