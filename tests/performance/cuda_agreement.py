"""Latency and peak memory on CUDA by the pipeline and by a script that imports nothing of it, in turn.

First each model is compiled once on either side. Then, for each model, each repetition runs the pipeline's stage
``benchmark`` (``--processes`` fresh sampling processes) and as many fresh processes of ``cuda_bare.py``, half of them
before and half after. Both sides are compared as geometric means over the processes' medians; peak memory is of the
processes that held that side alone.

``--json`` keeps the medians of each process too, and what the stage saw of the machine's load beside it.

Usage: ``python tests/performance/cuda_agreement.py [--models bert,resnet18,ssm] [--repetitions 3] [--processes 4]
[--cores 2,3] [--caches FOLDER] [--set NAME=VALUE] [--json FILE]``. Prints a row for each repetition, model and side:
ours, the script's, and the ratio. Exit code 1 where one differs by more than ``--limit`` (0.05).
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

HERE = Path(__file__).parent
SIDES = {"reference": "eager", "test": "inductor"}
MEASURES = {"wall_ms": "median_ms", "events_ms": "device_ms", "peak_bytes": "peak_memory_bytes"}
"""The script's figure → the pipeline's."""


@dataclass
class Ours:
    """What the stage ``benchmark`` found: its part of the summary, and of each process medians and surroundings."""

    summary: dict[str, Any]
    processes: list[dict[str, Any]]


def pipeline(model: str, options: argparse.Namespace, run: Path, cache: Path, variables: dict[str, str]) -> Ours:
    """One run of the stage."""
    command = [
        sys.executable, "-P", "-m", "inductor_debug.pipeline", f"model={model}", "device=cuda", "stages=[benchmark]",
        f"stages.benchmark.processes={options.processes}", f"stages.benchmark.repeats={options.rounds}",
        f"stages.benchmark.max_repeats={options.rounds}", f"hydra.run.dir={run}", "runner.cache=true",
        f"runner.cache_dir={cache}",
    ]  # fmt: skip
    finished = subprocess.run(command, env=variables, capture_output=True, text=True)
    if not (run / "summary.json").is_file():
        sys.exit(finished.stdout + finished.stderr)
    result = json.loads((run / "summary.json").read_text())["benchmark"]
    if result["speedup"] is None:
        sys.exit(finished.stdout + finished.stderr)
    told = json.loads((run / "benchmark/environment.json").read_text())["processes"]
    samples = pandas.read_csv(run / "benchmark/samples.csv")
    medians = samples.groupby(["process", "side"])[["ms", "device_ms"]].median()
    for index, process in enumerate(told):
        process["medians"] = {side: dict(medians.loc[(index, side)]) for side in SIDES}
    return Ours(result, told)


def bare(model: str, index: int, rounds: int, cache: Path, variables: dict[str, str]) -> dict[str, Any]:
    """What one process of the script prints."""
    first = list(SIDES.values())[index % 2]
    command = [sys.executable, str(HERE / "cuda_bare.py"), model, "--first", first, "--rounds", str(rounds)]
    own = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    finished = subprocess.run(command, env=variables | own, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(finished.stderr)
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def compare(
    model: str, options: argparse.Namespace, folder: Path, caches: Path, repetition: int
) -> list[dict[str, Any]]:
    """One repetition's rows."""
    variables = {**os.environ, **dict(item.split("=", 1) for item in options.set)}
    half, scripts = options.processes // 2, []
    for index in range(half):
        scripts.append(bare(model, index, options.rounds, caches / model, variables))
    run = folder / f"{model}-{repetition}"
    ours = pipeline(model, options, run, caches / "ours", variables)
    for index in range(half, options.processes):
        scripts.append(bare(model, index, options.rounds, caches / model, variables))
    rows = []
    for side, name in SIDES.items():
        row: dict[str, Any] = {"repetition": repetition, "model": model, "side": name}
        for theirs, mine in MEASURES.items():
            values = [script[name][theirs] for script in scripts if theirs in script[name]]
            row |= {
                f"ours_{theirs}": ours.summary[side][mine],
                f"script_{theirs}": mean(values),
                f"each_{theirs}": values,
            }
            row[f"ratio_{theirs}"] = ours.summary[side][mine] / mean(values)
        row |= {"ours_ci95_ms": ours.summary[side]["ci95_ms"], "ours_processes": ours.processes}
        rows.append(row)
        shown = ", ".join(
            f"{measure} {row[f'ours_{measure}']:.4g} / {row[f'script_{measure}']:.4g} = {row[f'ratio_{measure}']:.3f}"
            for measure in MEASURES
        )
        print(f"{repetition} {model:9} {name:9} {shown}", flush=True)
    return rows


def fill_caches(options: argparse.Namespace, folder: Path, caches: Path) -> None:
    """Compile each model once on either side, all at the same time, so that what is timed later loads its code."""
    least = argparse.Namespace(processes=2, rounds=3)
    variables = {**os.environ, **dict(item.split("=", 1) for item in options.set)}
    with ThreadPoolExecutor() as pool:
        started = []
        for model in options.models.split(","):
            run = folder / f"{model}-0"
            started.append(pool.submit(pipeline, model, least, run, caches / "ours", variables))
            started.append(pool.submit(bare, model, 0, 3, caches / model, variables))
        for item in started:
            item.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="bert,resnet18,ssm")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--processes", type=int, default=4, help="of each of the two, in each repetition")
    parser.add_argument("--rounds", type=int, default=20, help="timed steps of each side in each process")
    parser.add_argument("--cores", help="all that is timed runs on these: launching work varies with the core")
    parser.add_argument("--limit", type=float, default=0.05)
    parser.add_argument(
        "--caches", type=Path, help="where compiled code stays, for the next command (default: nowhere)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable for both")
    parser.add_argument("--json", type=Path, help="where to store the rows")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        caches = options.caches or Path(folder) / "caches"
        fill_caches(options, Path(folder), caches)
        if options.cores:
            os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
        for repetition in range(1, options.repetitions + 1):
            for model in options.models.split(","):
                rows += compare(model, options, Path(folder), caches, repetition)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))
    far = [row for row in rows if any(abs(row[f"ratio_{measure}"] - 1) > options.limit for measure in MEASURES)]
    print(f"{len(rows) - len(far)} of {len(rows)} rows agree within {100 * options.limit:g} %")
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
