"""Stored runs of a small model with everything that ``compare`` holds, and what changes in them."""

import copy
import json
from pathlib import Path
from typing import Any

from stored_analysis import table, write

from inductor_debug.pipeline import cli
from inductor_debug.stages.artifacts import files as artifacts

SETTINGS: dict[str, Any] = {
    "model": {"name": "nets", "batch_size": 1, "build": {"_target_": "nets.build"}},
    "accel": {"name": "warn16", "alignment": 16}, "backend": {"name": "inductor", "inductor": {}},
    "dtype": "float32", "device": "cpu", "mode": "inference", "seed": 0, "stages": {"kerneldiff": {"factor": 4.0}},
}  # fmt: skip
STAGES = ("capture", "constrain", "lower", "kerneldiff", "benchmark", "report")
MACHINE = {
    "platform": "Linux", "architecture": "x86_64", "cpu": "a cpu", "cores_physical": 2, "cores_logical": 2,
    "cores_usable": 2, "memory_bytes": 2**33, "hostname": "ci",
}  # fmt: skip
SUMMARY: dict[str, Any] = {
    "schema": 1, "verdict": "passed",
    "run": {"id": "run", "model": "nets", "backend": "inductor", "dtype": "float32", "device": "cpu"},
    "stages": [{"name": name, "status": "passed", "seconds": 1.0, "message": "done"} for name in STAGES],
    "compiled_by": {
        "versions": {"python": "3.12", "torch": "2.13.0", "numpy": "2.4"}, "variables": {}, "settings": {},
        "model": {"libraries": {}, "files": {"nets": "abc"}}, "device": {"name": "cpu", "threads": 2},
        "options": {"inductor": {}, "dynamo": {}},
    },
    "graphs": {"dynamo": 1, "forward": 1, "backward": 0, "breaks": 1, "guards": 20, "nodes": 10},
    "violations": {"total": 2, "by_rule": {"alignment": 2}, "by_effect": {"pad": 2}, "strict": False},
    "numerics": {"compared": 1, "failed": 0, "verdict": "within_floor"},
    "benchmark": {"reference": {"median_ms": 8.0}, "speedup": 2.0, "speedup_ci95": [1.9, 2.1], "established": True,
                  "test": {"median_ms": 4.0, "compile_s": 20.0, "compile_kind": "cold", "peak_memory_bytes": 1000}},
}  # fmt: skip
LOWERING: dict[str, Any] = {
    "backend": "inductor", "compile_s": 20.0, "caches": {"kind": "cold"},
    "graphs": {"g0.forward": {"kernels": 4, "launches": 10, "kernels_mapped_share": 1.0}},
}  # fmt: skip
VIOLATION = {
    "graph": "g0.forward", "node": "mm", "target": "aten.mm.default", "operand": "args[1]", "module": "head",
    "source": "/home/me/nets.py:12", "rule": "alignment", "effect": "pad", "severity": "warning", "measured": "12",
    "limit": "16", "cost_bytes": 64, "cost_share": "", "message": "12 is not", "suggestion": "use 16", "finding": "f1",
}  # fmt: skip
OUTPUT = {"kind": "output", "path": "logits", "verdict": "within_floor", "bound": "floor_rms", "ratio": 1.5,
          "rmse": 1e-6}  # fmt: skip
NODE = dict.fromkeys(artifacts.NODES.checks(), "") | {
    "graph": "g0.forward", "call": 1, "node": "mm", "target": "aten.mm.default", "module": "head",
    "source": "/home/me/nets.py:12", "state": "right", "ratio": 1.2,
}  # fmt: skip
TIMES = {"reference": (8.0, 8.1, 7.9, 8.0, 8.05), "test": (4.0, 4.04, 3.98, 4.02, 4.0)}
"""Side → the median of each process's samples, in milliseconds."""


def violation(**changes: Any) -> dict[str, Any]:
    return VIOLATION | changes


def node(**changes: Any) -> dict[str, Any]:
    return NODE | changes


def output(**changes: Any) -> dict[str, Any]:
    return OUTPUT | changes


def csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    return table(columns, *([f'"{row[name]}"' for name in columns] for row in rows))


def changed(content: Any, path: str, value: Any) -> Any:
    """A copy of nested mappings with the value at a path with slashes replaced; a stage's status by its name."""
    result = copy.deepcopy(content)
    *parts, last = path.split("/")
    part = result
    for name in parts:
        part = part[name] if isinstance(part, dict) else next(item for item in part if item["name"] == name)
    part[last] = value
    return result


def stored_result(
    folder: Path,
    *,
    settings: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    lowering: dict[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
    violations: list[dict[str, Any]] | None = None,
    cost: int | None = 128,
    outputs: list[dict[str, Any]] | None = None,
    nodes: list[dict[str, Any]] | None = None,
    times: dict[str, tuple[float, ...]] | None = None,
    device: dict[str, float] | None = None,
    files: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Path:
    """A run's folder.

    Args:
        folder: made here.
        settings, summary, lowering, machine: path with slashes → another value than the usual run's.
        violations, outputs, nodes: rows; nothing was localized where ``nodes`` is None.
        cost: bytes that the rule's findings cost together.
        times: as :data:`TIMES`.
        device: side → the device's share of each time; None where no device did the work.
        files: further ones. without: those that it lacks.
    """
    config, told, lowered = SETTINGS, SUMMARY, LOWERING
    for path, value in (settings or {}).items():
        config = changed(config, path, value)
    for path, value in (summary or {}).items():
        told = changed(told, path, value)
    for path, value in (lowering or {}).items():
        lowered = changed(lowered, path, value)
    samples = [
        {"process": process, "side": side, "index": index, "ms": median * (0.9 + 0.1 * index), "started": 0.0,
         "device_ms": median * (0.9 + 0.1 * index) * device[side] if device else ""}
        for side, medians in (times or TIMES).items() for process, median in enumerate(medians) for index in range(3)
    ]  # fmt: skip
    rules = dict.fromkeys(artifacts.BY_RULE.checks(), "")
    rules |= {"rule": "alignment", "effect": "pad", "findings": 1, "waived": 0, "undecided": 0}
    contents: dict[str, Any] = {
        "run.log": "", ".hydra/config.yaml": json.dumps(config), "summary.json": told, "lower/summary.json": lowered,
        "manifest.json": {"machine": MACHINE | (machine or {})},
        "constrain/violations.csv": csv([VIOLATION] if violations is None else violations, list(VIOLATION)),
        "constrain/summary.csv": csv([rules | {"cost_bytes": "" if cost is None else cost}], list(rules)),
        "kerneldiff/outputs.csv": csv([OUTPUT] if outputs is None else outputs, list(OUTPUT)),
        "benchmark/samples.csv": csv(samples, list(samples[0])),
    }  # fmt: skip
    if nodes is not None:
        contents["kerneldiff/nodes.csv"] = csv(nodes, list(NODE))
    kept = contents | (files or {})
    write(folder, {name: content for name, content in kept.items() if name not in without})
    return folder


def compare_as_json(*words: str | Path, capsys: Any) -> dict[str, Any]:
    """What ``compare --format json`` printed, with its exit code, which is the same as in JSON."""
    code = cli.main(["compare", *map(str, words), "--format", "json"])
    printed = capsys.readouterr()
    assert code in (0, 1), printed.err
    found: dict[str, Any] = json.loads(printed.out)
    assert found.get("exit_code", 0) == code
    return found
