"""The page of ``compare --page``: two results side by side, in the hand of a run's report."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.comparison import Compared
from inductor_debug.pipeline.query.gate.limits import IN_WORDS
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.report.html import environment_of, write_page
from inductor_debug.stages.report.sections import State
from inductor_debug.stages.stored_run import Row, Table

MOST = 2_000
"""Rows of a table that the page has."""
LONGEST = 240
"""Characters of a cell."""
TITLES = {
    "worse": "What got worse?",
    "better": "What got better?",
    "not_established": "What could not be compared?",
    "runs": "Which runs?",
    "compiled_by": "What differs in what compiled them?",
    "settings": "What differs in the settings?",
    "results": "What differs in the results?",
    "kernels": "What differs in the kernels?",
    "outputs": "What differs in the tensors?",
}
_FIRST = ("worse", "not_established", "better")
_COUNTED = {
    "case": ("setting of the case", "settings of the case"),
    "stages": ("stage or verdict", "stages or verdicts"),
    "findings": ("finding of the profile", "findings of the profile"),
    "cost_bytes": ("cost of a rule", "costs of rules"),
    "verdict": ("tensor's verdict", "tensors' verdicts"),
    "error": ("tensor's error", "tensors' errors"),
    "local_error": ("kind of value inside the graphs", "kinds of values inside the graphs"),
    "": ("job", "jobs"),
}
"""Key of a limit → what is held to it, where there are several of a run."""
_NAMED = {
    "breaks": "graph breaks",
    "guards": "guards",
    "nodes": "operations of the graphs",
    "kernels": "kernel calls",
    "mapped": "kernels with a source line",
    "compile_s": "compile time",
    "latency": "latency",
    "peak_memory": "peak memory",
}
"""The same where a run has one."""


def comparison_page(folders: Sequence[Path], compared: Compared, page: Path) -> str:
    """The page.

    Args:
        folders: as they were typed, the accepted one first.
        compared: what was found.
        page: where it will lie; links to the runs' reports start from there.
    """
    tables = {table.name: table for table in compared.found.tables}
    judged = bool(compared.about)
    ordered = [name for name in (*_FIRST, *TITLES) if name in tables]
    names = _names(folders, tables) if judged else {}
    sections = [_section(tables[name], names) for name in dict.fromkeys(ordered)]
    ids = [run_id(folder) for folder in folders]
    verdict = ("failed" if compared.exit_code else "passed") if judged else "not_established"
    variables = {
        "title": f"{ids[1]} compared with {ids[0]}" if judged else f"{counted(len(ids), 'result')} side by side",
        "verdict": verdict,
        "word": ("Worse" if compared.exit_code else "No worse") if judged else "Nothing held to anything",
        "sentence": _sentence(tables) if judged else "What differs stands below. Two runs, or two sweeps, are judged.",
        "told": compared.found.told,
        "reason": compared.reason,
        "then": _then(folders, tables) if judged else [],
        "sections": sections,
        "reports": [_report(folder, page) for folder in folders],
        "ids": ids,
    }
    return write_page(str(Path(__file__).with_name("comparison.html")), environment_of(), variables)


def _names(folders: Sequence[Path], tables: Mapping[str, Table]) -> dict[str, str]:
    """Columns of runs: where they are the two that are judged, and no jobs of sweeps, they are A and B."""
    runs = tables["runs"].rows if "runs" in tables else []
    judged = [row["id"] for row in runs] == [run_id(folder) for folder in folders]
    return dict(zip((str(row["run"]) for row in runs), "AB", strict=True)) if judged else {}


def _section(table: Table, names: Mapping[str, str]) -> dict[str, Any]:
    columns = [names.get(column, column) for column in table.columns]
    rows = [_row(table, row, names) for row in table.rows]
    parted = (str(row.get("limit") or "").partition(": ") for row in table.rows)
    limits = {key: IN_WORDS[key].format(value) for key, _, value in parted if key in IN_WORDS}
    state, word = _state(table)
    return {"key": table.name, "title": TITLES[table.name], "state": state, "word": word, "columns": columns,
            "rows": rows[:MOST], "total": len(rows), "limits": limits}  # fmt: skip


def _row(table: Table, row: Row, names: Mapping[str, str]) -> Row:
    found = {names.get(column, column): _short(row.get(column)) for column in table.columns}
    if table.name == "runs":
        found["run"] = names.get(str(row["run"]), row["run"])
    return found


def _short(value: Any) -> Any:
    """A cell's value; of a long text its beginning, for the reports have all of it."""
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value


def _state(table: Table) -> tuple[State, str]:
    count = len(table.rows)
    if table.name == "worse":
        return ("bad", str(count)) if count else ("good", "nothing")
    if table.name == "not_established":
        fails = sum(bool(row.get("fails")) for row in table.rows)
        return (
            ("bad", f"{fails} of {count} fail") if fails else ("unknown" if count else "good", str(count or "nothing"))
        )
    if table.name == "better":
        return ("good", str(count)) if count else ("told", "nothing")
    return ("told", str(count) if count else "nothing")


def _sentence(tables: Mapping[str, Table]) -> str:
    worse, better, unknown = (tables[name].rows for name in ("worse", "better", "not_established"))
    fails = [row for row in unknown if row.get("fails")]
    case = [*dict.fromkeys(str(row["what"]) for row in fails if str(row.get("limit")).startswith("case:"))]
    said = []
    if case:
        more = f" and {len(case) - 3} more" if len(case) > 3 else ""
        said.append(f"A and B are not the same case: {', '.join(case[:3])}{more} differ. Little of one can be held to "
                    "the other.")  # fmt: skip
    fails = [row for row in fails if not str(row.get("limit")).startswith("case:")]
    if worse:
        said.append(f"B is worse than A in {_counts(worse)}.")
    if fails:
        said.append(f"Not shown to be as good as in A: {_counts(fails)}.")
    if not said:
        said.append("B is no worse than A in anything that was compared.")
    if better:
        said.append(f"Better: {_counts(better)}.")
    open_ = sum(not row.get("fails") for row in unknown)
    if open_:
        said.append(f"{counted(open_, 'thing')} could not be compared, which fails nothing.")
    return " ".join(said)


def _counts(rows: Sequence[Row]) -> str:
    """``3 findings of the profile and latency``."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row.get("limit") or "").partition(":")[0], []).append(row)
    words = [
        _counted(key, len({row.get("job") for row in each} if key in _NAMED else each)) for key, each in found.items()
    ]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _counted(key: str, count: int) -> str:
    if key in _NAMED:
        return _NAMED[key] + (f" of {counted(count, 'job')}" if count > 1 else "")
    return counted(count, *_COUNTED.get(key, (key, None)))


def _then(folders: Sequence[Path], tables: Mapping[str, Table]) -> list[str]:
    """Commands that tell more of what is worse, or that make up for what B did not run."""
    second = shlex.quote(str(folders[1]))
    failing = [*tables["worse"].rows, *(row for row in tables["not_established"].rows if row.get("fails"))]
    if any(row.get("job") for row in failing):
        return [f"inductor-debug list {second}"]
    limits = {str(row["limit"]).partition(":")[0] for row in tables["worse"].rows}
    remedy = _remedy(folders[1]) if tables["worse"].rows else ""
    commands = [f"inductor-debug rerun {second} {remedy}"] if remedy else []
    if limits & {"verdict", "error", "local_error"}:
        commands.append(_smallest(folders[1], second))
    if limits & {"findings", "cost_bytes"}:
        commands.append(f"inductor-debug analyze {second} --type constraints")
    missing = [str(row["what"]).removeprefix("stage ") for row in tables["not_established"].rows
               if row.get("fails") and str(row["what"]).startswith("stage ")]  # fmt: skip
    if missing:
        added = missing[0] if len(missing) == 1 else f"[{','.join(missing)}]"
        commands.append(f"inductor-debug rerun {second} +stages={added}")
    return commands or ([f"inductor-debug show {second}"] if tables["worse"].rows else [])


def _smallest(folder: Path, run: str) -> str:
    """The command that shows the smallest program of a run's failure, or that looks for it."""
    repros = open_run(folder).head.repros or []
    found = next((Path(item.path).name for item in repros if item.verified and not item.violations), "")
    return f"inductor-debug repro {run} {found} --run" if found else f"inductor-debug minify {run}"


def _remedy(folder: Path) -> str:
    """The option with which the run's fault goes away, where it was bisected to one."""
    run = open_run(folder)
    found = run.json(files.BISECTION) if run.has(files.BISECTION) else None
    return found.remedy.text if found is not None and found.remedy is not None and found.remedy.kind == "option" else ""


def _report(folder: Path, page: Path) -> str:
    """The link from the page to a run's report, or to a sweep's page; "" where there is none."""
    for name in (files.REPORT_PAGE.path, "sweep.html"):
        if (folder / name).is_file():
            return Path(os.path.relpath(folder / name, page.parent)).as_posix()
    return ""
