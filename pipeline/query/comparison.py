"""What differs between stored runs: what compiled them, settings, results, kernels, and verdicts of tensors."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.pipeline.live import tracked
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.run.compiled_by import NOT_KNOWN, differ, side_by_side
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.lower.questions.graphs import lowered_graphs
from inductor_debug.stages.lower.questions.kernels import launches_of
from inductor_debug.stages.stored_run import Analysis, Row, StoredRun, Table

COMPILING = {"lower", "kerneldiff", "benchmark", "profile", "bisect", "minify"}
"""Stages that have the backend compile the case."""
TECHNICAL = ("hydra.", "runner.")
"""How the keys begin that say how a run is made, and change no result that it comes to."""
NAMED = 3
"""Differences that a sentence names."""
LONGEST = 24
"""Characters of a value in it."""
APART = ("run", "schema", "stages", "repros", "compiled_by")
"""Parts of ``summary.json`` that differ in every pair of runs, or are read otherwise."""


@dataclass(frozen=True)
class Compared:
    """What ``compare`` found.

    Attributes:
        found: sentences and tables.
        about: of the gate, for JSON: exit code, reason and limits; empty where nothing was judged.
        reason: why the exit code is what it is; empty where nothing was judged.
        exit_code: 1 where B is worse than A.
    """

    found: Analysis
    about: dict[str, Any]
    reason: str
    exit_code: int


def runs_of(folders: Sequence[Path]) -> list[StoredRun]:
    """The runs of the folders, those below a sweep's each; UserError for fewer than two."""
    found: list[StoredRun] = []
    for folder in map(store.existing, folders):
        below = [folder] if StoredFolder(folder).has(SUMMARY) else store.find_runs(folder)
        with tracked(below or [folder], "reading runs") as runs:
            found += map(open_run, runs)
    if len(found) < 2:
        raise UserError(
            f"compare: got {counted(len(found), 'run')}; valid: two runs or more, or a sweep's folder.\n"
            "Try: inductor-debug list"
        )
    return found


def compare(runs: Sequence[StoredRun]) -> Analysis:
    """A row for each thing in which the runs differ, a column for each run, called by its number from 1."""
    names = [str(number) for number in range(1, len(runs) + 1)]
    about = [{"run": name, "id": run_id(run.folder), "verdict": run.head.verdict}
             for name, run in zip(names, runs, strict=True)]  # fmt: skip
    stages = [{stage.name for stage in run.head.stages} for run in runs]
    every = set.intersection(*stages) if stages else set()
    parts: dict[str, Callable[[StoredRun], Mapping[str, Any]]] = {
        "settings": lambda run: _of_stages(settings_of(run.folder), every),
        "results": _results, "kernels": _kernels, "outputs": _outputs}  # fmt: skip
    tables = [Table("runs", ("run", "id", "verdict"), about)]
    compiled = side_by_side([run.head.compiled_by for run in runs]).items()
    found = {"compiled_by": [{"key": key} | dict(zip(names, values, strict=True))
                             for key, values in compiled if differ(values)]}  # fmt: skip
    found |= {part: differing([read(run) for run in runs], names) for part, read in parts.items()}
    for part, rows in found.items():
        tables.append(Table(part, (part, *names), [{part: row.pop("key")} | row for row in rows]))
    lowered = [bool(lowered_graphs(run)) for run in runs]
    told = []
    unknown = [name for name, run in zip(names, runs, strict=True) if run.head.compiled_by is None]
    if unknown:
        told.append(f"compiled_by: not established of {', '.join(unknown)}, which did not record it")
    if any(lowered) and not all(lowered):
        without = ", ".join(name for name, has in zip(names, lowered, strict=True) if not has)
        told.append(f"kernels: not established of {without}, where nothing was lowered")
    return Analysis(told, tables)


def in_a_sentence(tables: Sequence[Table], a: StoredRun, b: StoredRun) -> str:
    """In which settings, and in what of what compiled them, two runs differ; the values of as many as one can read.

    Empty where they differ in nothing that is recorded, and not all is. A run that compiled nothing has no options of a
    compiler to differ in.

    Args:
        tables: of :func:`compare` of the two runs.
        a, b: the runs.
    """
    first, second = ({stage.name for stage in run.head.stages} for run in (a, b))
    by_name = {table.name: table.rows for table in tables}
    rows = sorted(by_name["settings"], key=lambda row: None in (row["1"], row["2"]))  # a version may add a key
    settings = {str(row["settings"]): (row["1"], row["2"]) for row in rows}
    compiled = {str(row["compiled_by"]): (row["1"], row["2"]) for row in by_name["compiled_by"]}
    without = not (COMPILING & first and COMPILING & second)
    compiled = {key: value for key, value in compiled.items() if not any(
        name.endswith(key.removeprefix("options.")) for name in settings)
        and not (without and key.startswith("options"))}  # fmt: skip
    wholes = (settings, "setting", "settings"), (compiled, "part of what compiled them", "parts of what compiled them")
    parts = [f"{counted(len(found), one, more)} ({_named(found)})" for found, one, more in wholes if found]
    told = [f"A and B differ in {' and in '.join(parts)}."] if parts else []
    if not parts and all(settings_of(run.folder) and run.head.compiled_by is not None for run in (a, b)):
        told = ["A and B have the same settings and versions."]
        every = side_by_side([run.head.compiled_by for run in (a, b)])
        parts_of = dict.fromkeys(key.partition(".")[0] for key, values in every.items() if NOT_KNOWN in values)
        unknown = [part for part in parts_of if not (without and part.startswith("options"))]
        told += [f"Of what compiled them, one of the two did not record: {', '.join(unknown)}."] if unknown else []
    for side, only in (("A", first - second), ("B", second - first)):
        told += [f"{side} alone ran {', '.join(sorted(only))}."] if only else []
    return " ".join(told)


def _of_stages(settings: Mapping[str, Any], stages: Collection[str]) -> dict[str, Any]:
    """Settings without the options of other stages: a stage that a run did not have differs as such."""
    return {key: value for key, value in settings.items()
            if not key.startswith("stages.") or key.split(".")[1] in stages}  # fmt: skip


def _named(found: Mapping[str, tuple[Any, Any]]) -> str:
    """The first of what differs, with both values."""
    told = [f"{key}: {_value(a)} in A, {_value(b)} in B" for key, (a, b) in list(found.items())[:NAMED]]
    return "; ".join([*told, *(["…"] if len(found) > NAMED else [])])


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    return text if len(text := str(value)) <= LONGEST else f"{text[:LONGEST]}…"


def differing(runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Row]:
    """Keys whose values are not the same in all, in the order in which they come; a run without a key has None."""
    keys = dict.fromkeys(key for run in runs for key in run)
    rows = [{"key": key} | {name: run.get(key) for name, run in zip(names, runs, strict=True)} for key in keys]
    return [row for row in rows if any(row[name] != row[names[0]] for name in names)]


def settings_of(folder: Path) -> dict[str, Any]:
    """A run's settings by dotted key, without Hydra's and the runner's own."""
    return without_technical(every_setting_of(folder))


def without_technical(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted key, without those that say how a run is made."""
    return {key: value for key, value in settings.items() if not key.startswith(TECHNICAL)}


def every_setting_of(folder: Path) -> dict[str, Any]:
    """A run's settings by dotted key; empty for a run of this package's own runner, without Hydra.

    An interpolation has the value that it had for the run; one that names a secret is text.
    """
    stored = StoredFolder(folder)
    try:
        texts = dict(_flat(stored.read_yaml(store.HYDRA, dict[str, Any])))
    except FileNotFoundError:
        return {}
    known = stored.read_yaml(store.RESOLVED, dict[str, Any]) if stored.has(store.RESOLVED) else {}
    return {key: text for key, text in texts.items() if key not in known} | dict(_flat(known))


def _results(run: StoredRun) -> dict[str, Any]:
    """The answers of ``summary.json``, what became of each stage, and what lowering counted."""
    facts = {key: value for key, value in run.summary.items() if key not in APART}
    found = dict(_flat(facts)) | {f"stages.{stage.name}": stage.status for stage in run.head.stages}
    if run.has(files.LOWERING):
        lowered = run.json(files.LOWERING)
        graphs = {graph: vars(facts) for graph, facts in lowered.graphs.items()}
        found |= dict(_flat({"lower": {"compile_s": lowered.compile_s, **graphs}}))
    return found


def _kernels(run: StoredRun) -> dict[str, Any]:
    """By graph and kernel how often it is launched, and the beginning of a digest of its code."""
    launches = [(graph, launch) for graph in lowered_graphs(run) for launch in launches_of(run, graph)]
    code = {
        f"{graph} {launch.name}: code": _digest(run.text(launch.file))
        for graph, launch in launches
        if launch.file and run.has(launch.file)
    }
    return dict(Counter(f"{graph} {launch.name}" for graph, launch in launches)) | code


def _digest(code: str) -> str:
    """Of what a kernel does: without the lines that include a header by its path on the machine."""
    lines = (line for line in code.splitlines() if not line.startswith("#include"))
    return f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:8]}"


def _outputs(run: StoredRun) -> dict[str, Any]:
    """Verdicts by tensor."""
    return {f"{row.kind} {row.path}": row.verdict for row in files.OUTPUTS.records(run.artifacts) or []}


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a mapping holds by dotted key; an empty one holds nothing."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _flat(value, f"{prefix}{key}.")
    else:
        yield prefix[:-1], node
