"""How often a benchmark's interval tells the truth: fresh commands, the same code on both sides or 1.2 times the work.

Each command is a whole run of the stage ``benchmark`` on a small model, both sides behind ``aot_eager``. In a planted
pair the test side does one product in five twice. Commands run ``--parallel`` at a time, each on ``--cores`` cores of
its own, with ``--busy`` further processes on the same cores that never rest.

Usage: ``python tests/performance/aa_pairs.py [--pairs 40] [--planted 40] [--parallel 1] [--cores 1] [--busy 0]
[--json FILE]``. Prints counts with 95 % Wilson intervals:

- covered: the A/A interval holds 1.0 (of those that claim to be established, and of all)
- wrong: established, and the interval does not hold the truth's side: 1.0 outside in A/A
- silent: not established because of interference
- found: planted, established, and the whole interval below 1.0
"""

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAME, MORE = "backend=aot_eager", "backend._target_=paired_models.OneFifthMore"
_SPIN = "while True: pass"


def command(backend: str, run: Path, processes: int) -> list[str]:
    """One benchmark of ``paired_models.chain``."""
    return [
        sys.executable, "-P", "-m", "inductor_debug.pipeline", "runner.cache=false", "model=custom",
        "model.build._target_=paired_models.chain",
        "model.name=chain", "model.batch_size=512", backend, "reference.backend=aot_eager", "stages=[benchmark]",
        f"stages.benchmark.processes={processes}", f"hydra.run.dir={run}",
    ]  # fmt: skip


@contextmanager
def neighbours(count: int, cores: Sequence[int]) -> Iterator[None]:
    """That many processes on these cores that never rest."""
    started = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        for process in started:
            os.sched_setaffinity(process.pid, set(cores))
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(backend: str, run: Path, cores: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """One command's interval and whether it is established."""
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    variables |= {"OMP_NUM_THREADS": str(options.threads)} if options.threads else {}
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command(backend, run, options.processes)]
    with neighbours(options.busy, cores):
        finished = subprocess.run(pinned, env=variables, cwd=run.parent, capture_output=True, text=True)
    if not (run / "summary.json").is_file():
        sys.exit(finished.stdout + finished.stderr)
    result = json.loads((run / "summary.json").read_text())
    found = result["benchmark"]
    if found["speedup"] is None:
        sys.exit(finished.stdout + finished.stderr)
    return {
        "backend": backend,
        "speedup": found["speedup"],
        "interval": found["speedup_ci95"],
        "established": found["established"],
        "reason": found["not_established"],
        "medians_ms": [found[side]["median_ms"] for side in ("reference", "test")],
        "seconds": result["run"]["seconds"],
    }


def wilson(hits: int, of: int) -> str:
    """``38 of 40 (95 %: 84 to 99 %)``."""
    if not of:
        return "0 of 0"
    z = 1.959964
    center, half = hits / of + z * z / (2 * of), z * math.sqrt(hits * (of - hits) / of**3 + z * z / (4 * of * of))
    low, high = ((center + sign * half) / (1 + z * z / of) for sign in (-1, 1))
    return f"{hits} of {of} (95 %: {100 * low:.0f} to {100 * high:.0f} %)"


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print the counts."""
    same = [row for row in rows if row["backend"] == SAME]
    planted = [row for row in rows if row["backend"] == MORE]
    holds = {id(row): row["interval"][0] <= 1 <= row["interval"][1] for row in rows}
    claimed = [row for row in same if row["established"]]
    for name, count, of in (
        ("A/A covered, of all", sum(holds[id(row)] for row in same), len(same)),
        ("A/A covered, of the established", sum(holds[id(row)] for row in claimed), len(claimed)),
        ("A/A wrong (established, 1.0 outside)", sum(not holds[id(row)] for row in claimed), len(same)),
        ("A/A silent (interference)", len(same) - len(claimed), len(same)),
        (
            "planted found (established, below 1.0)",
            sum(row["established"] and row["interval"][1] < 1 for row in planted),
            len(planted),
        ),
    ):  # fmt: skip
        if of:
            print(f"{name:42} {wilson(count, of)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--planted", type=int, default=40)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=1, help="commands at a time")
    parser.add_argument("--cores", type=int, default=1, help="of each command")
    parser.add_argument("--threads", type=int, default=0, help="torch's threads; 0: as many as torch takes")
    parser.add_argument("--busy", type=int, default=0, help="neighbours on each command's cores")
    parser.add_argument("--json", type=Path, help="where to store the rows")
    options = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    if options.parallel * options.cores > len(usable):
        sys.exit(
            f"{options.parallel} x {options.cores} cores are more than the {len(usable)} that this process may use"
        )
    free: queue.Queue[list[int]] = queue.Queue()
    for slot in range(options.parallel):
        free.put(usable[slot * options.cores : (slot + 1) * options.cores])
    kinds = ((SAME, options.pairs), (MORE, options.planted))
    most = max(options.pairs, options.planted)
    wanted = [kind for index in range(most) for kind, count in kinds if index < count]
    rows: list[dict[str, Any]] = []

    def one(job: tuple[int, str]) -> None:
        cores = free.get()
        try:
            rows.append(measure(job[1], Path(folder) / f"{job[0]}", cores, options))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
        finally:
            free.put(cores)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.parallel) as pool:
        list(pool.map(one, enumerate(wanted)))
    report(rows)


if __name__ == "__main__":
    main()
