"""The report's section on the model's source: what each line broke, got wrong, and takes."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, percent, times
from inductor_debug.stages.report.highlighting import highlighted
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection

BESIDE = ("findings", "error", "share", "kernels")
"""What may stand beside a line; of an excerpt without any such there is no column."""
KERNELS = 3
"""Kernels named beside a line."""


def source(artifacts: Artifacts) -> Row | None:
    """The section's data; None where no source was stored.

    ``excerpts`` are functions of the model's. ``lines`` has, by ``file:line``, ``findings`` (how many of the profile's,
    waived ones left out) with their ``rules``, ``wrong`` and ``error`` (of an operation that is wrong by itself, and
    its error over its own floor), ``stopped`` (of one in the kernel that did not compile), ``share`` (of a step's time)
    and ``kernels`` (graph and name of those that compute something of the line). ``unplaced`` counts the wrong values
    for which no line is named.
    """
    excerpts = files.SOURCES.read(artifacts)
    if not excerpts:
        return None
    lines: dict[str, Row] = defaultdict(dict)
    _add_findings(lines, artifacts)
    unplaced = _add_errors(lines, artifacts)
    _add_stop(lines, artifacts)
    _add_times(lines, artifacts)
    _add_kernels(lines, artifacts)
    return {"excerpts": [vars(excerpt) for excerpt in excerpts], "lines": dict(lines), "unplaced": unplaced}


def _add_findings(lines: dict[str, Row], artifacts: Artifacts) -> None:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for number, row in enumerate(files.VIOLATIONS.records(artifacts) or []):
        if row.source and row.severity != "waived":
            found[row.source][row.rule].add(row.finding or str(number))
    for line, rules in found.items():
        lines[line] |= {"findings": sum(map(len, rules.values())), "rules": sorted(rules)}


def _add_errors(lines: dict[str, Row], artifacts: Artifacts) -> int:
    """Note the lines of operations that are wrong by themselves; how many wrong values none of them made.

    A value that several operations of one kernel computed tells of none of them that it is the wrong one: localization
    does, where it looked.
    """
    diagnosis = files.DIAGNOSIS.read(artifacts)
    culprits = [] if diagnosis is None or diagnosis.localized is None else diagnosis.localized.culprits
    named = {(item.place.graph, node) for item in culprits for node in item.place.operations}
    found = [(source, item.ratio) for item in culprits for source in item.place.sources or [item.place.source]]
    unplaced = 0
    for row in files.NODES.read(artifacts) or []:
        operations = str(row["operations"] or row["node"]).split()
        if row["state"] not in ("wrong", "slope") or any((row["graph"], node) in named for node in operations):
            continue
        if len(operations) == 1:
            found.append((row["source"], row["ratio"]))
        else:
            unplaced += 1
    for source, ratio in found:
        if source:
            worst = [value for value in (lines[source].get("error"), ratio) if isinstance(value, (int, float))]
            lines[source] |= {"error": max(worst, default=None), "wrong": True}
    return unplaced


def _add_stop(lines: dict[str, Row], artifacts: Artifacts) -> None:
    stopped = files.NOT_COMPILED.read(artifacts)
    for line in [] if stopped is None else stopped.sources:
        lines[str(line)]["stopped"] = True


def _add_times(lines: dict[str, Row], artifacts: Artifacts) -> None:
    for row in files.PROFILE_TABLES["lines"].read(artifacts) or []:
        if row.get("source"):
            lines[row["source"]]["share"] = row.get("share")


def _add_kernels(lines: dict[str, Row], artifacts: Artifacts) -> None:
    for path, lowered in files.PROVENANCE.read_all(artifacts).items():
        graph = path.split("/")[1]
        for line, launches in lowered.lines.items():
            known = lines[line].setdefault("kernels", [])
            known += [[graph, name] for name in dict.fromkeys(launch.partition(":")[0] for launch in launches)]


class SourceSection(ReportSection):
    """Where in the model's source?"""

    title = "Where in the source?"
    template = Path(__file__).with_name("source.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return source(run.artifacts)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        counts = {
            what: sum(key in line for line in data["lines"].values())
            for what, key in (
                ("with findings", "findings"),
                ("with wrong operations", "wrong"),
                ("in the kernel that did not compile", "stopped"),
                ("timed", "share"),
            )
        }
        told = [f"{count} {what}" for what, count in counts.items() if count]
        total = sum(excerpt["text"].count("\n") + 1 for excerpt in data["excerpts"])
        marked = len({line for line, known in data["lines"].items() if known.keys() & {"findings", "wrong", "stopped"}})
        lines = counted(total, "line of the model's source is shown", "lines of the model's source are shown")
        text = f"{lines}{': ' + ', '.join(told) if told else ''}."
        if data["unplaced"]:
            more = counted(data["unplaced"], "more value is", "more values are")
            text += (
                f" {more} wrong, for which no line is marked: several operations of a kernel made each, and which is "
            )
            text += "at fault was not looked at, or not found."
        wrong = sum("wrong" in line for line in data["lines"].values())
        stopped = sum("stopped" in line for line in data["lines"].values())
        words = ((wrong, "wrong"), (stopped, "not compiled"), (marked, "with findings"))
        word = next((f"{counted(count, 'line')} {what}" for count, what in words if count), "nothing found wrong")
        return Answer("bad" if wrong or stopped else "told", word, text)

    def page(self, data: Row | None, artifacts: Artifacts) -> Mapping[str, Any]:
        """``source_files``: short name, and the lines of each excerpt as the page shows them."""
        shown = [_excerpt(excerpt, data["lines"]) for excerpt in (data or {}).get("excerpts", [])] if data else []
        return {"source_excerpts": shown}


def _excerpt(excerpt: Mapping[str, Any], known: Mapping[str, Row]) -> Row:
    code = highlighted(excerpt["text"], "python")
    rows = []
    for number, text in enumerate(code, start=excerpt["first"]):
        place = f"{excerpt['file']}:{number}"
        rows.append({"number": number, "place": place, "code": text, **_beside(known.get(place, {}))})
    marked = sum(bool(row["findings"] or row["error"]) for row in rows)
    beside = [name for name in BESIDE if any(row[name] for row in rows)]
    return {"file": excerpt["file"], "first": excerpt["first"], "last": excerpt["first"] + len(rows) - 1,
            "rows": rows, "marked": marked, "beside": beside}  # fmt: skip


def _beside(line: Row) -> Row:
    """What stands beside a line, as text."""
    findings = f"{line['findings']} × {', '.join(line['rules'])}" if line.get("findings") else ""
    error = "in the kernel that did not compile" if line.get("stopped") else ""
    if line.get("wrong"):
        error = "wrong" if line["error"] is None else f"{times(line['error'])} × floor"
    kernels = list(line.get("kernels", []))
    return {
        "findings": findings,
        "error": error,
        "share": percent(line["share"]) if line.get("share") is not None else "",
        "kernels": kernels[:KERNELS],
        "more": len(kernels) - KERNELS if len(kernels) > KERNELS else 0,
    }
