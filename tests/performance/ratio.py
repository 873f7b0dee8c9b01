"""CPU time and peak memory of a default run over those of the bare work in it, interleaved, from empty caches.

Usage: ``python tests/performance/ratio.py [bert|resnet18|ssm …] [--mode inference|training] [--rounds 6]``. Each round
makes a run, reads from its directory which steps it took, and lets ``bare.py`` take the same. Prints each round, and
the medians of the ratios. A further word with ``=`` is an override of the run. ``--record FILE`` adds each round to a
file of JSON lines, and takes the medians over all rounds in it of one commit, torch and processor: rounds add up over
days, and over processes that run side by side. ``--rounds 0`` prints the medians of a record.

Memory is the highest sum of proportional set sizes of all processes (``peak.py``).
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peak import Peak, peak_of_children

BARE = Path(__file__).with_name("bare.py")
MODES = ("inference", "training")
STEPS = {
    "reference": ["eager"],
    "gold": ["gold"],
    "test": ["test"],
    "rounding the reference otherwise": ["gold"],  # each operation in float64: at least one such step
    "moving float64's weights": ["gold", "gold"],
    "running the reference again": ["eager"],
    "running a copy": ["eager"],
    "draw ": ["other", "other-test"],
    "comparing": ["gold"],  # a draw that is judged has a gold of its own
}
"""How kerneldiff begins to tell what it does → the steps that this is."""


@dataclass
class Cost:
    """Seconds of user and system time, and the peak of memory, of commands and all their descendants."""

    cpu_s: float = 0.0
    peak: Peak = field(default_factory=Peak)


@contextmanager
def measured(cost: Cost) -> Iterator[None]:
    """Add what the children that run inside take."""
    before = os.times()
    try:
        with peak_of_children(cost.peak):
            yield
    finally:
        after = os.times()
        cost.cpu_s += after.children_user + after.children_system - before.children_user - before.children_system


def steps_of(run: Path) -> list[str]:
    """The steps that kerneldiff took, as ``bare.py`` names them."""
    told = re.findall(r"\[INFO\] - kerneldiff: (.*)", (run / "run.log").read_text())
    found = [step for line in told for start, steps in STEPS.items() if line.startswith(start) for step in steps]
    found.remove("gold")  # "comparing" of the first draw, whose gold is told by itself
    return [*found, "test"]  # at last the first draw again


def samples_of(run: Path) -> list[tuple[int, int]]:
    """Untimed and timed steps a side, of each sampling process."""
    if not (run / "benchmark").is_dir():
        return []
    with open(run / "benchmark/samples.csv") as file:
        timed = Counter(row["process"] for row in csv.DictReader(file) if row["side"] == "test")
    processes = json.loads((run / "benchmark/environment.json").read_text())["processes"]
    return [(max(item["warmup_calls"].values()), timed[str(item["process"])]) for item in processes]


def one_round(model: str, mode: str, overrides: list[str]) -> dict[str, Any]:
    """What was measured of what, the pipeline's cost and the bare work's."""
    pipeline, bare = Cost(), Cost()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "tmp").mkdir()

        def run(cost: Cost, command: list[str]) -> None:
            caches = {"TORCHINDUCTOR_CACHE_DIR": str(work / "cache"), "TMPDIR": str(work / "tmp")}
            with measured(cost):
                subprocess.run(
                    [sys.executable, *command], cwd=work, env=os.environ | caches, check=True, stdout=subprocess.DEVNULL
                )

        command = ["-P", "-m", "inductor_debug.pipeline", f"model={model}", f"mode={mode}", "runner.cache=false"]
        run(pipeline, [*command, *overrides])
        (summary,) = work.glob("outputs/*/*/summary.json")
        run(bare, [str(BARE), "compare", model, mode, "--steps", ",".join(steps_of(summary.parent))])
        for warmup, samples in samples_of(summary.parent):
            run(bare, [str(BARE), "sample", model, mode, f"--warmup={warmup}", f"--samples={samples}"])
        manifest = json.loads((summary.parent / "manifest.json").read_text())
    return {
        "model": model,
        "mode": mode,
        "overrides": overrides,
        "commit": (manifest["git"]["package"] or {}).get("commit"),
        "torch": manifest["versions"]["torch"],
        "processor": manifest["machine"]["cpu"],
        "cores": manifest["machine"]["cores_usable"],
        "pipeline": {"cpu_s": pipeline.cpu_s, "peak": pipeline.peak.bytes},
        "bare": {"cpu_s": bare.cpu_s, "peak": bare.peak.bytes},
    }


def ratios_of(found: dict[str, Any]) -> tuple[float, float]:
    """Of CPU time and of peak memory."""
    return found["pipeline"]["cpu_s"] / found["bare"]["cpu_s"], found["pipeline"]["peak"] / found["bare"]["peak"]


def print_medians(rounds: list[dict[str, Any]]) -> None:
    """A line for all rounds of one run on one machine, in their first one's order."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for found in rounds:
        case = {key: value for key, value in found.items() if key not in ("pipeline", "bare")}
        alike.setdefault(json.dumps(case), []).append(found)
    for case_text, group in alike.items():
        case = json.loads(case_text)
        cpu, memory = zip(*map(ratios_of, group), strict=True)
        print(
            f"{' '.join([case['model'], case['mode'], *case['overrides']])}, torch {case['torch']}, {case['cores']} "
            f"cores, commit {str(case['commit'])[:8]}: median of {len(group)}: CPU {statistics.median(cpu):.3f} "
            f"({min(cpu):.3f} to {max(cpu):.3f}), memory {statistics.median(memory):.3f} "
            f"({min(memory):.3f} to {max(memory):.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL|OVERRIDE")
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--record", type=Path, help="a file of JSON lines that rounds are added to")
    options = parser.parse_intermixed_args()
    overrides = [word for word in options.models if "=" in word]
    models = [word for word in options.models if "=" not in word] or ["bert", "resnet18", "ssm"]
    rounds: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        for model in models:
            for mode in options.mode or MODES:
                found = one_round(model, mode, overrides)
                rounds.append(found)
                if options.record:
                    with options.record.open("a") as file:
                        file.write(json.dumps(found) + "\n")
                pipeline, bare = found["pipeline"], found["bare"]
                cpu, memory = ratios_of(found)
                print(
                    f"{model} {mode}: {pipeline['cpu_s']:.1f} s of CPU over {bare['cpu_s']:.1f} s is {cpu:.3f}; "
                    f"{pipeline['peak'] / 2**20:.0f} MiB over {bare['peak'] / 2**20:.0f} MiB is {memory:.3f}",
                    flush=True,
                )
    if options.record:
        rounds = [json.loads(line) for line in options.record.read_text().splitlines()]
    print_medians(rounds)


if __name__ == "__main__":
    main()
