"""What a report says, as data: read from what the stages stored, with what is missing named. Free of torch."""

import csv
import io
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from stages.contract import Artifacts, Settings

ALL_STAGES = ("capture", "constrain", "lower", "kerneldiff", "benchmark")
VERDICTS = {
    "passed": "Passed",
    "failed": "Failed",
    "crashed": "Crashed",
    "not_established": "Not established",
}
LINES = 20
NUMERIC_WORDS = {
    "exact": "equal bit for bit",
    "within_floor": "within the noise floor",
    "within_tolerance": "within the tolerance",
    "defect": "a defect",
    "not_established": "not established",
    "not_exercised": "not exercised",
}
Row = dict[str, Any]


def collect(artifacts: Artifacts, settings: Settings, *, title: str | None, max_rows: int) -> dict[str, Any]:
    """Everything the report shows.

    Args:
        artifacts: what the run's stages stored; ``summary.json`` in its preliminary form, if the runner gave one.
        settings: the run's settings, used where ``summary.json`` does not tell.
        title: heading; made from the run where it is None.
        max_rows: rows kept of each table; ``rows_total`` says how many there are and ``file`` where.

    Returns:
        A JSON-able dict: ``title, verdict, sentence, findings, run, versions, stages, graphs, violations, lowering,
        numerics, benchmark, repros, not_established, reproduce, files``.
    """
    summary = _json(artifacts, "summary.json") or {}
    manifest = _json(artifacts, "manifest.json") or {}
    run = {**_run_of(settings), **summary.get("run", {})}
    if "seconds" in run:  # the run isn't over: summary.json's final figure has the report's time in it too
        run["seconds_before_report"] = run.pop("seconds")
    stages = [stage for stage in summary.get("stages", []) if stage.get("name") != "report"]
    data: dict[str, Any] = {
        "title": title or f"{run['model']} on {run['accel']}, {run['backend']}",
        "verdict": _verdict(summary, stages),
        "run": run,
        "versions": _versions(manifest),
        "stages": stages,
        "graphs": _graphs(artifacts, summary, max_rows),
        "violations": _violations(artifacts, summary, max_rows),
        "lowering": _lowering(artifacts, max_rows),
        "numerics": _numerics(artifacts, summary, max_rows),
        "benchmark": summary.get("benchmark") or None,
        "repros": summary.get("repros") or [],
        "reproduce": reproduce(run),
        "files": artifacts.names(),
    }
    data["findings"] = _findings(data)
    data["not_established"] = not_established(data)
    data["sentence"] = _sentence(data)
    return data


def reproduce(run: Mapping[str, Any]) -> list[str]:
    """Commands that make this run again: as it was typed, and from its stored configuration."""
    overrides = [str(item) for item in run.get("overrides") or []]
    commands = [shlex.join(["python", "-m", "pipeline", *overrides])]
    if run.get("id"):
        commands.append(shlex.join(["inductor-debug", "rerun", str(run["id"])]))
    return commands


def stage_note(stages: Iterable[Mapping[str, Any]], name: str) -> str:
    """Why a section is empty: what became of the stage that fills it."""
    for stage in stages:
        if stage.get("name") == name:
            reason = f": {stage['message']}" if stage.get("message") else ""
            return f"the stage {name} {_was(str(stage.get('status')))}{reason}"
    return f"the stage {name} was not selected, or left no record"


def not_established(data: Mapping[str, Any]) -> list[str]:
    """What this run can't say, and why, one sentence each."""
    notes = []
    sections = {"capture": "graphs", "constrain": "violations", "lower": "lowering", "kerneldiff": "numerics",
                "benchmark": "benchmark"}  # fmt: skip
    what = {"capture": "What was captured", "constrain": "Whether the model fits", "lower": "What the compiler made",
            "kerneldiff": "Whether the numbers are right", "benchmark": "How fast it is"}  # fmt: skip
    statuses = {stage.get("name"): stage.get("status") for stage in data["stages"]}
    for name in ALL_STAGES:
        if statuses.get(name) not in ("passed", "failed"):
            notes.append(f"{what[name]}: {stage_note(data['stages'], name)}.")
        elif statuses[name] == "passed" and _empty(data[sections[name]]):
            notes.append(f"{what[name]}: the stage {name} passed but stored nothing that this report can show.")
    undecided = (data["violations"] or {}).get("by_severity", {}).get("undecided", 0)
    if undecided:
        notes.append(f"{undecided} checks against the profile could not be decided (severity undecided).")
    for graph in data["lowering"]:
        notes.extend(f"{graph['graph']}, lowering: {note}." for note in graph["not_established"])
    numerics = data["numerics"] or {}
    localization = str((numerics.get("diagnosis") or {}).get("localization") or "")
    if numerics.get("summary", {}).get("failed") and localization.startswith("not established"):
        notes.append(f"Where the numbers first go wrong: {localization}.")
    interval = speed_interval(data["benchmark"])
    if interval and interval[0] <= 1 <= interval[1]:
        notes.append(f"Whether it is faster or slower: the speed-up's 95 % interval, {short(interval[0])} to "
                     f"{short(interval[1])}, contains 1.")  # fmt: skip
    verdict = numerics.get("summary", {}).get("verdict")
    if verdict in ("not_established", "not_exercised"):
        notes.append(f"The comparison's verdict is {verdict}.")
    return notes


def speed_interval(benchmark: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """The speed-up's 95 % interval, where there is one."""
    found = (benchmark or {}).get("speedup_ci95")
    return (float(found[0]), float(found[1])) if found and None not in found else None


def short(value: Any) -> str:
    """A number to three digits, four-digit whole numbers in full; ``unknown`` where there is none."""
    if value is None:
        return "unknown"
    number = float(value)
    return f"{number:.0f}" if 1000 <= abs(number) < 1e6 else f"{number:.3g}"


def _was(status: str) -> str:
    return {"timed_out": "timed out", "crashed": "crashed", "passed": "passed", "failed": "failed"}.get(
        status, f"was {status}"
    )


def _empty(section: Any) -> bool:
    if isinstance(section, dict):
        return all(_empty(value) for value in section.values())
    return section in (None, [], "")


def _run_of(settings: Settings) -> Row:
    return {
        "id": None, "model": settings.model.name, "accel": settings.accel.name, "backend": settings.backend.shown,
        "dtype": settings.dtype, "device": settings.device, "mode": settings.mode, "overrides": [],
    }  # fmt: skip


def _verdict(summary: Mapping[str, Any], stages: list[Row]) -> str:
    """The run's verdict; ``not_established`` where no stage has a result."""
    if not any(stage.get("status") in ("passed", "failed", "crashed", "timed_out") for stage in stages):
        return "not_established"
    return str(summary.get("verdict") or "not_established")


def _sentence(data: Mapping[str, Any]) -> str:
    """The verdict in words for someone who was not there."""
    run = data["run"]
    subject = (f"{run['model']} ({run['mode']}, {run['dtype']}, {run['device']}) against the profile {run['accel']}, "
               f"compiled by {run['backend']}")  # fmt: skip
    bad = [stage_note(data["stages"], stage["name"]) for stage in data["stages"]
           if stage.get("status") in ("failed", "crashed", "timed_out")]  # fmt: skip
    if bad:
        return f"{subject}: {'; '.join(bad)}."
    if data["verdict"] == "not_established":
        return f"{subject}: no stage left a result, so nothing is established."
    ran = [stage["name"] for stage in data["stages"] if stage.get("status") == "passed"]
    skipped = [stage["name"] for stage in data["stages"] if stage.get("status") == "skipped"]
    left = f" Skipped: {', '.join(skipped)}." if skipped else ""
    return f"{subject}: every stage that ran passed ({', '.join(ran)}).{left}"


def _findings(data: Mapping[str, Any]) -> list[str]:
    """The main answers, one sentence each."""
    found = []
    violations, numerics, benchmark = data["violations"], data["numerics"], data["benchmark"] or {}
    if violations and violations.get("total") is not None:
        by_rule = ", ".join(f"{rule} {count}" for rule, count in violations["by_rule"].items())
        mode = "strict" if violations.get("strict") else "warning"
        found.append(f"Fit: {violations['total']} findings in {mode} mode{f' ({by_rule})' if by_rule else ''}.")
    counts = (numerics or {}).get("summary", {})
    if counts.get("verdict"):
        found.append(f"Numbers: {NUMERIC_WORDS.get(counts['verdict'], counts['verdict'])}; {counts.get('failed')} of "
                     f"{counts.get('compared')} compared tensors failed, largest absolute error "
                     f"{short(counts.get('max_abs'))}.")  # fmt: skip
    if benchmark.get("speedup") is not None:
        found.append(f"Speed: {_speed(benchmark, bool(counts.get('failed')))}")
    graphs = data["graphs"]["summary"]
    if graphs.get("dynamo") is not None:
        found.append(f"Graphs: {graphs['dynamo']} from Dynamo, {graphs.get('breaks')} graph breaks.")
    return found


def _speed(benchmark: Mapping[str, Any], wrong: bool) -> str:
    """The speed-up, with what weakens it said beside it."""
    sides = [(benchmark.get(side) or {}).get("median_ms") for side in ("reference", "test")]
    text = f"{short(benchmark['speedup'])} times as fast as the reference"
    if None not in sides:
        text += f" (median step {short(sides[0])} ms → {short(sides[1])} ms)"
    interval = speed_interval(benchmark)
    if interval:
        text += f", 95 % interval {short(interval[0])} to {short(interval[1])}"
        text += "; the interval contains 1, so no difference is established" if interval[0] <= 1 <= interval[1] else ""
    return text + ("; the code timed failed the comparison of numbers." if wrong else ".")


def _versions(manifest: Mapping[str, Any]) -> Row:
    versions = dict(manifest.get("versions") or {})
    if manifest.get("git"):
        versions["git"] = manifest["git"]
    return versions


def _graphs(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row:
    breaks = _json(artifacts, "capture/breaks.json") or []
    recompiles = _json(artifacts, "capture/recompiles.json")
    statistics = _table(artifacts, "capture/statistics.csv") or []
    return {
        "summary": summary.get("graphs") or {},
        "recompiles": len(recompiles) if isinstance(recompiles, list) else None,
        "totals": [row for row in statistics if row.get("scope") == "graph"],
        "statistics": _capped(artifacts, "capture/statistics.csv", max_rows),
        "breaks": breaks if isinstance(breaks, list) else breaks.get("breaks", [breaks]),
    }


def _violations(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row | None:
    name = "constrain/violations.csv"
    rows = _table(artifacts, name)
    if rows is None:
        return None
    stored = summary.get("violations") or {}
    by = {f"by_{key}": dict(Counter(row[key] for row in rows)) for key in ("rule", "effect", "severity")}
    return {
        **by,
        "total": len(rows),
        "strict": stored.get("strict"),
        "top_lines": top_lines(rows, _code(artifacts) if rows else {}),
        "rows": rows[:max_rows],
        "rows_total": len(rows),
        "file": name,
    }


def top_lines(rows: list[Row], code: Mapping[str, str]) -> list[Row]:
    """Source lines that would repay a change most: by bytes that the findings there cost, then by their number."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["severity"] != "waived":
            groups[row["source"]].append(row)
    lines = [
        {
            "source": source or "(no source line recorded)",
            "code": code.get(source, ""),
            "findings": len(group),
            "rules": ", ".join(sorted({row["rule"] for row in group})),
            "cost_bytes": sum(int(row["cost_bytes"]) for row in group if row["cost_bytes"]),
            "suggestion": Counter(row["suggestion"] for row in group).most_common(1)[0][0],
        }
        for source, group in groups.items()
    ]
    return sorted(lines, key=lambda line: (-line["cost_bytes"], -line["findings"], line["source"]))[:LINES]


def _code(artifacts: Artifacts) -> dict[str, str]:
    """``file:line`` → the code there, from the captured graphs."""
    found = {}
    for name in artifacts.names("capture/graphs/"):
        if name.endswith(".json"):
            for node in artifacts.read_json(name)["nodes"]:
                source = node.get("source")
                if source:
                    found[f"{source['file']}:{source['line']}"] = source.get("code", "")
    return found


def _lowering(artifacts: Artifacts, max_rows: int) -> list[Row]:
    graphs = []
    for name in artifacts.names("lower/"):
        if not name.endswith("/provenance.json"):
            continue
        stored = artifacts.read_json(name)
        kernels = stored.get("kernels", [])
        graphs.append({
            "graph": name.split("/")[1],
            "kernels_mapped_share": stored.get("kernels_mapped_share"),
            "nodes_mapped_share": stored.get("nodes_mapped_share"),
            "distinct": len({kernel.get("name") for kernel in kernels}),
            "kinds": dict(Counter(str(kernel.get("kind")) for kernel in kernels)),
            "kernels": [_kernel(kernel) for kernel in kernels[:max_rows]],
            "not_established": [str(note) for note in stored.get("not_established") or []],
            "rows_total": len(kernels),
            "file": name,
        })  # fmt: skip
    return graphs


def _kernel(kernel: Mapping[str, Any]) -> Row:
    lines = kernel.get("sources") or []
    return {
        "name": kernel.get("name"),
        "kind": kernel.get("kind"),
        "nodes": [str(node) for node in kernel.get("nodes") or []],
        "sources": list(dict.fromkeys(_line(line) for line in lines)),
    }


def _line(line: Any) -> str:
    return f"{line.get('file')}:{line.get('line')}" if isinstance(line, Mapping) else str(line)


def _numerics(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row | None:
    table = _capped(artifacts, "kerneldiff/outputs.csv", max_rows, order=_worst_first)
    stored = summary.get("numerics") or {}
    diagnosis = _json(artifacts, "kerneldiff/diagnosis.json")
    if table is None and stored.get("verdict") is None and diagnosis is None:
        return None
    plots = [name for name in artifacts.names("kerneldiff/plots/") if name.endswith(".png")]
    return {"summary": stored, "diagnosis": diagnosis, "table": table, "plots": plots}


def _worst_first(row: Row) -> tuple[bool, float]:
    """Defects before the rest, each by how far beyond its bound; no ratio among the worst of its kind."""
    ratio = row.get("ratio")
    return row.get("verdict") != "defect", -float(ratio) if ratio and ratio != "nan" else float("-inf")


def _capped(artifacts: Artifacts, name: str, max_rows: int, order: Any = None) -> Row | None:
    rows = _table(artifacts, name)
    if rows is None:
        return None
    ordered = sorted(rows, key=order) if order else rows
    return {"columns": list(rows[0]) if rows else [], "rows": ordered[:max_rows], "rows_total": len(rows), "file": name}


def _table(artifacts: Artifacts, name: str) -> list[Row] | None:
    try:
        text = artifacts.read_text(name)
    except FileNotFoundError:
        return None
    return list(csv.DictReader(io.StringIO(text)))


def _json(artifacts: Artifacts, name: str) -> Any:
    try:
        return artifacts.read_json(name)
    except FileNotFoundError:
        return None
