"""What a report says, as data: read from what the stages stored, with what is missing named. Free of torch."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import breaks_in_words, calls_in_words, counted, stage_note
from inductor_debug.stages.reading import Row, capped, read_json, read_table
from inductor_debug.stages.report import bisection, emulation, fit, guards, numbers, profiling
from inductor_debug.stages.settings import Settings

ALL_STAGES = ("capture", "constrain", "lower", "kerneldiff", "benchmark")
VERDICTS = {
    "passed": "Passed",
    "failed": "Failed",
    "crashed": "Crashed",
    "not_established": "Not established",
}


def collect(artifacts: Artifacts, settings: Settings, *, title: str | None, max_rows: int) -> dict[str, Any]:
    """Everything the report shows.

    Args:
        artifacts: what the run's stages stored; ``summary.json`` in its preliminary form, if the runner gave one.
        settings: the run's settings, used where ``summary.json`` does not tell.
        title: heading; made from the run where it is None.
        max_rows: rows kept of each table; ``rows_total`` says how many there are and ``file`` where.

    Returns:
        A JSON-able dict: ``title, verdict, sentence, findings, run, compiled_by, versions, stages, graphs,
        violations, lowering, emulation, guards, numerics, bisection, benchmark, profile, repros, not_established,
        reproduce, files``.
    """
    summary = read_json(artifacts, "summary.json") or {}
    manifest = read_json(artifacts, "manifest.json") or {}
    run = {**_run_of(settings), **summary.get("run", {})}
    if "seconds" in run:  # the run isn't over: summary.json's final figure has the report's time in it too
        run["seconds_before_report"] = run.pop("seconds")
    stages = [stage for stage in summary.get("stages", []) if stage.get("name") != "report"]
    data: dict[str, Any] = {
        "title": title or f"{run['model']} on {run['accel']}, {run['backend']}",
        "verdict": _verdict(summary, stages),
        "run": run,
        "compiled_by": summary.get("compiled_by") or {},
        "versions": _versions(manifest),
        "stages": stages,
        "graphs": _graphs(artifacts, summary, max_rows),
        "violations": fit.violations(artifacts, summary, max_rows),
        "lowering": _lowering(artifacts, max_rows),
        "emulation": emulation.emulation(artifacts, max_rows),
        "guards": guards.guards(artifacts, max_rows),
        "numerics": numbers.numerics(artifacts, summary, max_rows),
        "bisection": bisection.bisection(artifacts, max_rows),
        "benchmark": summary.get("benchmark") or None,
        "profile": profiling.profiling(artifacts, max_rows),
        "repros": summary.get("repros") or [],
        "reproduce": reproduce(run, (summary.get("compiled_by") or {}).get("variables") or {}),
        "files": artifacts.names(),
    }
    data["findings"] = _findings(data)
    data["not_established"] = not_established(data)
    data["sentence"] = _sentence(data)
    return data


def reproduce(run: Mapping[str, Any], variables: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Commands that make this run again: as it was typed, with the variables that matter, and from what is stored."""
    overrides = [str(item) for item in run.get("overrides") or []]
    flags = [str(item) for item in run.get("flags") or []]
    words = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    commands = [" ".join([*words, shlex.join(["inductor-debug", "run", *flags, *overrides])])]
    if run.get("id"):
        commands.append(shlex.join(["inductor-debug", "rerun", str(run["id"])]))
    return commands


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
        elif name == "lower" and data["emulation"]:
            notes.extend(emulation.not_established(data["emulation"]))
        elif statuses[name] == "passed" and _empty(data[sections[name]]):
            notes.append(f"{what[name]}: the stage {name} passed but stored nothing that this report can show.")
    if data["violations"] and data["violations"]["total"] is None:
        notes.append(f"Whether the model fits: nothing was checked, the profile {data['run']['accel']} has no rules.")
    if data["graphs"]["breaks_in_words"]:
        notes.append(f"What runs outside the graphs ({data['graphs']['breaks_in_words']}): Dynamo left it to Python, "
                     "so it is in no graph and was not checked against the profile.")  # fmt: skip
    notes.extend(guards.not_established(data["guards"]))
    undecided = (data["violations"] or {}).get("by_severity", {}).get("undecided", 0)
    if undecided:
        checks = counted(undecided, "check")
        notes.append(f"{checks} against the profile could not be decided (severity undecided).")
    not_verified = Counter(str(row.get("reason") or "") for row in data["repros"] if not row.get("verified"))
    for reason, count in not_verified.items():
        scripts = counted(count, "reproduction")
        notes.append(f"Whether {scripts} would show the fault elsewhere{f': {reason}' if reason else ''}.")
    for graph in data["lowering"]:
        notes.extend(f"{graph['graph']}, lowering: {note}." for note in graph["not_established"])
    numerics = data["numerics"] or {}
    localization = str((numerics.get("diagnosis") or {}).get("localization") or "")
    if numerics.get("summary", {}).get("failed") and localization.startswith("not established"):
        notes.append(f"Where the numbers first go wrong: {localization}.")
    notes.extend(bisection.not_established(data["bisection"]))
    notes.extend(profiling.not_established(data["profile"]))
    interval, doubt = speed_interval(data["benchmark"]), speed_doubt(data["benchmark"])
    if doubt:
        notes.append(f"How fast it is: {doubt}.")
    elif interval and interval[0] <= 1 <= interval[1]:
        notes.append(f"Whether it is faster or slower: the speed-up's 95 % interval, {short(interval[0])} to "
                     f"{short(interval[1])}, contains 1.")  # fmt: skip
    verdict = numerics.get("summary", {}).get("verdict")
    if verdict in ("not_established", "not_exercised") and statuses.get("kerneldiff") in ("passed", "failed"):
        notes.append(f"The comparison's verdict is {verdict}.")
    return notes


def speed_interval(benchmark: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """The speed-up's 95 % interval, where there is one."""
    found = (benchmark or {}).get("speedup_ci95")
    return (float(found[0]), float(found[1])) if found and None not in found else None


def speed_doubt(benchmark: Mapping[str, Any] | None) -> str:
    """Why the speed-up is not established, whatever its interval; empty where it is."""
    found = benchmark or {}
    if found.get("established") is not False:
        return ""
    return str(found.get("not_established") or "the run does not say why")


def short(value: Any) -> str:
    """A number to three digits, four-digit whole numbers in full; ``unknown`` where there is none."""
    if value is None:
        return "unknown"
    number = float(value)
    return f"{number:.0f}" if 1000 <= abs(number) < 1e6 else f"{number:.3g}"


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
    rules = "the rules of its backend" if fit.of_backend(data["violations"]) else f"the profile {run['accel']}"
    subject = (f"{run['model']} ({run['mode']}, {run['dtype']}, {run['device']}) against {rules}, "
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
    counts, benchmark = (data["numerics"] or {}).get("summary", {}), data["benchmark"] or {}
    note, largest = stage_note(data["stages"], "kerneldiff"), short(counts.get("max_abs"))
    found = [
        fit.finding(data["violations"], data["run"]["accel"], data["graphs"]["breaks_in_words"]),
        fit.reproductions(data["repros"]),
        emulation.finding(data["emulation"]),
        guards.finding(data["guards"]),
        numbers.finding(data["numerics"], note, largest),
        bisection.finding(data["bisection"]),
    ]
    if benchmark.get("speedup") is not None:
        found.append(f"Speed: {_speed(benchmark, bool(counts.get('failed')))}")
    found.append(profiling.finding(data["profile"]))
    graphs = data["graphs"]["summary"]
    if graphs.get("dynamo") is not None:
        breaks = data["graphs"]["breaks_in_words"] or counted(graphs.get("breaks") or 0, "graph break")
        found.append(f"Graphs: {graphs['dynamo']} from Dynamo, {breaks}.")
    return [sentence for sentence in found if sentence]


def _speed(benchmark: Mapping[str, Any], wrong: bool) -> str:
    """The speed-up, with what weakens it said beside it."""
    sides = [(benchmark.get(side) or {}).get("median_ms") for side in ("reference", "test")]
    doubt = speed_doubt(benchmark)
    text = f"{short(benchmark['speedup'])} times as fast as the reference"
    text = f"not established, {doubt}; measured {text}" if doubt else text
    if None not in sides:
        text += f" (median step {short(sides[0])} ms → {short(sides[1])} ms)"
    interval = speed_interval(benchmark)
    if interval:
        text += f", 95 % interval {short(interval[0])} to {short(interval[1])}"
        unclear = not doubt and interval[0] <= 1 <= interval[1]
        text += "; the interval contains 1, so no difference is established" if unclear else ""
    return text + ("; the code timed failed the comparison of numbers." if wrong else ".")


def _versions(manifest: Mapping[str, Any]) -> Row:
    versions = dict(manifest.get("versions") or {})
    if manifest.get("git"):
        versions["git"] = manifest["git"]
    return versions


def _graphs(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row:
    breaks = read_json(artifacts, "capture/breaks.json") or []
    recompiles = read_json(artifacts, "capture/recompiles.json")
    statistics = read_table(artifacts, "capture/statistics.csv")
    return {
        "summary": summary.get("graphs") or {},
        "recompiles": len(recompiles) if isinstance(recompiles, list) else None,
        "totals": [row for row in statistics or [] if row.get("scope") == "graph"],
        "statistics": capped(statistics, "capture/statistics.csv", max_rows),
        "breaks_in_words": breaks_in_words([item for item in breaks if isinstance(item, Mapping)]),
        "breaks": _folded(breaks),
    }


PLACE = ("file", "line", "function", "code")
"""Where a graph broke; what else is stored of a break says why."""


def _folded(breaks: list[Any]) -> list[Row]:
    """Graph breaks with those of one reason together: ``count``, ``places`` and ``graphs`` say which they were."""
    groups: dict[str, Row] = {}
    for item in breaks:
        known = dict(item) if isinstance(item, Mapping) else {"reason": item}
        place = {key: known.pop(key) for key in PLACE if key in known}
        graph, stack = known.pop("graph", None), known.pop("stack", None)
        row = groups.setdefault(
            json.dumps(known, sort_keys=True), known | {"count": 0, "places": [], "graphs": [], "stack": stack}
        )
        row["count"] += 1
        where = f"{place['file']}:{place.get('line')}  {place.get('code') or ''}".rstrip() if place.get("file") else ""
        row["places"] += [where] * (where not in ("", *row["places"]))
        row["graphs"] += [graph] * (graph not in (None, *row["graphs"]))
    return list(groups.values())


def _lowering(artifacts: Artifacts, max_rows: int) -> list[Row]:
    graphs = []
    stored = artifacts.names("lower/")
    for name in stored:
        if not name.endswith("/provenance.json"):
            continue
        found = artifacts.read_json(name)
        kernels = found.get("kernels", [])
        library = [kernel for kernel in kernels if kernel.get("kind") == "extern"]
        generated = {kernel.get("name") for kernel in kernels if kernel.get("kind") != "extern"}
        graphs.append({
            "graph": name.split("/")[1],
            "kernels_mapped_share": found.get("kernels_mapped_share"),
            "nodes_mapped_share": found.get("nodes_mapped_share"),
            "calls": calls_in_words(len(generated), len(kernels), len(library)),
            "kinds": dict(Counter(str(kernel.get("kind")) for kernel in kernels)),
            "kernels": [_kernel(kernel) for kernel in kernels[:max_rows]],
            "not_established": [str(note) for note in found.get("not_established") or []],
            "rows_total": len(kernels),
            "file": name,
            "picture": picture if (picture := name.replace("provenance.json", "post_grad.svg")) in stored else None,
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
