"""Latency and peak memory on CUDA by the pipeline and by a script that imports nothing of it, turn by turn.

First each model is compiled once on either side, so that all that is timed loads its code. TorchInductor times a few
launch configurations of each Triton kernel and keeps the fastest. Two compilations of the state-space model chose
differently for six of its nine kernels, which moves the device's time by up to 9 %. So the pipeline compiles first, and
the script takes over its choices.

Then a repetition runs the pipeline's stage ``benchmark`` on each model, and beside each of its sampling processes a
fresh process of ``cuda_bare.py``. When both are ready, they share one core, and take turns of ``--slice`` seconds:
while the one runs, the other is stopped (SIGSTOP). So both meet the same speed of the machine, which on a shared host
can double or halve from one second to the next. A call that a stop interrupts is one of many, and medians leave it out.
The models' processes start at the same time; one pair at a time is let run once it is ready.

Both sides are compared as geometric means over the processes. Of times the first quartile is judged, and the median
is shown beside it: where the machine has two speeds, each about half of the time, the median jumps from the one to
the other. Both are of the same calls, and it is checked that the median of ours is what ``summary.json`` says. Peak
memory is of the processes that held that side alone. ``--json`` keeps each process's calls too, and the load of the
machine as the stage saw it.

Usage: ``python tests/performance/cuda_agreement.py [--models bert,resnet18,ssm] [--repetitions 3] [--processes 2]
[--core 2] [--caches FOLDER] [--set NAME=VALUE] [--json FILE]``. Prints a row for each repetition, model and side:
ours, the script's, and the ratio. Exit code 1 where one judged differs by more than ``--limit`` (0.05).
"""

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import psutil

HERE = Path(__file__).parent
SIDES = {"reference": "eager", "test": "inductor"}
MEASURES = {"wall_ms": "median_ms", "events_ms": "device_ms", "peak_bytes": "peak_memory_bytes"}
"""The script's figure → the pipeline's."""
JUDGED = ("ratio_wall_quartile", "ratio_events_quartile", "ratio_peak_bytes")
TIMES = re.compile(r"sampling process (\d+) times both sides")


@dataclass
class Script:
    """One process of ``cuda_bare.py``."""

    process: "subprocess.Popen[str]"

    @classmethod
    def start(cls, model: str, index: int, cache: Path, variables: dict[str, str]) -> "Script":
        """It begins with eager where ``index`` is even."""
        command = [sys.executable, str(HERE / "cuda_bare.py"), model, "--wait"]
        command += ["--first", list(SIDES.values())[index % 2]]
        own = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=variables | own, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        return cls(process)

    def line(self) -> str:
        """What it prints next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the script ended with {self.process.wait()}; what it said is above")
        return line

    def begin(self) -> None:
        """Let it sample."""
        assert self.process.stdin is not None
        self.process.stdin.write("begin\n")

    def end(self) -> dict[str, Any]:
        """Let it finish; what it found."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        found: dict[str, Any] = json.loads(self.line())
        self.process.wait()
        return found


def sampling_process(command: int) -> psutil.Process:
    """The stage's sampling process of a command that runs."""
    for child in psutil.Process(command).children(recursive=True):
        if "inductor_debug.stages.benchmark.process" in child.as_dict(["cmdline"], ad_value=[])["cmdline"]:
            return child
    raise RuntimeError("the stage has no sampling process")


def said(pattern: re.Pattern[str], log: Path, command: "subprocess.Popen[str]") -> Iterator[re.Match[str]]:
    """What a command's log says, as soon as it says it, until it ends."""
    seen = 0
    while command.poll() is None:
        matches = list(pattern.finditer(log.read_text(errors="replace"))) if log.is_file() else []
        yield from matches[seen:]
        seen = len(matches)
        time.sleep(0.02)


def pin(process: int, core: int) -> None:
    """Let all threads of a process run on one core."""
    for thread in os.listdir(f"/proc/{process}/task"):
        os.sched_setaffinity(int(thread), {core})


def take_turns(ours: psutil.Process, script: Script, core: int, seconds: float) -> dict[str, Any]:
    """Let the two run in turn on one core until the stage's process ends; what the script found."""
    pin(ours.pid, core)
    pin(script.process.pid, core)
    script.process.send_signal(signal.SIGSTOP)
    script.begin()
    try:
        while ours.is_running() and ours.status() != psutil.STATUS_ZOMBIE:
            ours.send_signal(signal.SIGCONT)
            time.sleep(seconds)
            ours.send_signal(signal.SIGSTOP)
            script.process.send_signal(signal.SIGCONT)
            time.sleep(seconds)
            script.process.send_signal(signal.SIGSTOP)
    except psutil.NoSuchProcess:
        pass  # it ended, and its parent has waited for it
    script.process.send_signal(signal.SIGCONT)
    return script.end()


class Comparison:
    """All repetitions of all models."""

    def __init__(self, options: argparse.Namespace, folder: Path, caches: Path) -> None:
        self.options, self.folder, self.caches = options, folder, caches
        self.variables = {**os.environ, **dict(item.split("=", 1) for item in options.set)}
        self.device = threading.Lock()
        self.rows: list[dict[str, Any]] = []

    def stage(self, model: str, repetition: int, processes: int, rounds: int) -> "subprocess.Popen[str]":
        """Start the pipeline; its output can be read."""
        command = [
            sys.executable, "-P", "-m", "inductor_debug.pipeline", f"model={model}", "device=cuda",
            "stages=[benchmark]", f"stages.benchmark.processes={processes}", f"stages.benchmark.repeats={rounds}",
            f"stages.benchmark.max_repeats={rounds}", "stages.benchmark.budget_s=3600",
            f"hydra.run.dir={self.run(model, repetition)}", "runner.cache=false", "runner.compiler_cache=true",
            f"runner.cache_dir={self.caches / 'ours'}",
        ]  # fmt: skip
        return subprocess.Popen(
            command, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, model: str, repetition: int) -> Path:
        """The run's directory."""
        return self.folder / f"{model}-{repetition}"

    def fill(self, model: str) -> None:
        """Compile a model once on either side, the script's with the launch configurations of the pipeline's."""
        with self.device:
            output, _ = self.stage(model, 0, 2, 3).communicate()
            if not (self.run(model, 0) / "benchmark/samples.csv").is_file():
                raise RuntimeError(output)
            tuned = self.caches / "ours/inductor"
            for chosen in tuned.rglob("*.best_config"):
                copy = self.caches / model / "inductor" / chosen.relative_to(tuned)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(chosen, copy)
            script = Script.start(model, 0, self.caches / model, self.variables)
            script.line()
            script.begin()
            script.end()

    def compare(self, model: str, repetition: int) -> None:
        """One repetition of one model."""
        stage = self.stage(model, repetition, self.options.processes, self.options.rounds)
        script = Script.start(model, 0, self.caches / model, self.variables)
        found: list[dict[str, Any]] = []
        for times in said(TIMES, self.run(model, repetition) / "run.log", stage):
            ours = sampling_process(stage.pid)
            ours.send_signal(signal.SIGSTOP)
            script.line()  # it is ready
            with self.device:
                found.append(take_turns(ours, script, self.options.core, self.options.slice))
            if int(times[1]) < self.options.processes:
                script = Script.start(model, int(times[1]), self.caches / model, self.variables)
        output, _ = stage.communicate()
        if len(found) != self.options.processes or not (self.run(model, repetition) / "summary.json").is_file():
            raise RuntimeError(output)
        self.rows += rows(model, repetition, self.run(model, repetition), found)
        if self.options.json:
            self.options.json.write_text(json.dumps(self.rows, indent=1))


def rows(model: str, repetition: int, run: Path, scripts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What both found of one model, side by side; printed too."""
    summary = json.loads((run / "summary.json").read_text())["benchmark"]
    told = json.loads((run / "benchmark/environment.json").read_text())["processes"]
    samples = pandas.read_csv(run / "benchmark/samples.csv")
    medians = samples.groupby(["process", "side"])[["ms", "device_ms"]].median()
    made = []
    for side, name in SIDES.items():
        row: dict[str, Any] = {"repetition": repetition, "model": model, "side": name}
        for theirs, mine in MEASURES.items():
            values = [script[name][theirs] for script in scripts if theirs in script[name]]
            row |= {f"ours_{theirs}": summary[side][mine], f"script_{theirs}": mean(values), f"each_{theirs}": values}
            row[f"ratio_{theirs}"] = summary[side][mine] / mean(values)
        row |= {
            "ours_ci95_ms": summary[side]["ci95_ms"],
            "ours_each": medians.xs(side, level="side").to_dict("list"),
            "script_samples": [script[name]["samples"] for script in scripts],
            "ours_samples": by_process(samples, side, "ms"),
            "script_device": [script[name]["device_samples"] for script in scripts],
            "ours_device": by_process(samples, side, "device_ms"),
            "processes": told,
            "verdict": summary.get("headline") or summary.get("reason"),
        }
        made.append(row)
        if not math.isclose(mean([statistics.median(each) for each in row["ours_samples"]]), row["ours_wall_ms"]):
            raise RuntimeError(f"{run}: the median of {side} is not that of its samples")
        for measure, kind in (("wall", "samples"), ("events", "device")):
            values = {who: mean(list(map(quartile, row[f"{who}_{kind}"]))) for who in ("ours", "script")}
            row |= {f"{who}_{measure}_quartile": value for who, value in values.items()}
            row[f"ratio_{measure}_quartile"] = values["ours"] / values["script"]
        shown = ", ".join(
            f"{measure} {row[f'ours_{measure}']:.4g} / {row[f'script_{measure}']:.4g} = {row[f'ratio_{measure}']:.3f}"
            for measure in (*MEASURES, "wall_quartile", "events_quartile")
        )
        print(f"{repetition} {model:9} {name:9} {shown}", flush=True)
    return made


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def by_process(samples: pandas.DataFrame, side: str, column: str) -> list[list[float]]:
    """Of one side, the values of each process."""
    return [list(rest[column]) for _, rest in samples[samples.side == side].groupby("process")]


def quartile(values: Sequence[float]) -> float:
    """The first."""
    return statistics.quantiles(values, n=4)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="bert,resnet18,ssm")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2, help="of each of the two, in each repetition")
    parser.add_argument("--rounds", type=int, default=60, help="timed steps of each side in each process of the stage")
    parser.add_argument("--slice", type=float, default=0.1, help="seconds of a turn")
    parser.add_argument("--core", type=int, default=2, help="the one that both are on while they are timed")
    parser.add_argument("--limit", type=float, default=0.05)
    parser.add_argument(
        "--caches", type=Path, help="where compiled code stays, for the next command (default: nowhere)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable for both")
    parser.add_argument("--json", type=Path, help="where to store the rows")
    options = parser.parse_args()
    models = options.models.split(",")
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {options.core})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(models)) as pool:
        comparison = Comparison(options, Path(folder), options.caches or Path(folder) / "caches")
        try:
            list(pool.map(comparison.fill, models))
            for repetition in range(1, options.repetitions + 1):
                list(pool.map(comparison.compare, models, [repetition] * len(models)))
        finally:  # where one failed, the others' processes may be stopped
            for child in psutil.Process().children(recursive=True):
                child.kill()
    found = comparison.rows
    far = [row for row in found if any(abs(row[name] - 1) > options.limit for name in JUDGED)]
    print(f"{len(found) - len(far)} of {len(found)} rows agree within {100 * options.limit:g} %")
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
