"""Sweeps that are killed at random and started again: ``python tests/trials/resumed.py --kills 100 --seed 0``.

A sweep over four alignments runs once undisturbed. Then it is started in another directory, with a cache of its own,
and killed by SIGKILL at random moments: its first process alone, or all of its session. It is started again by the same
words until it ends by itself. Then its exit code, its table and the digests of all jobs are those of the undisturbed
one, but for times, ids and folders. Every file of the runs has its SHA-256, and every kept result can be given out.
"""

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.cache.key import content_of
from inductor_debug.pipeline.cache.store import Cache
from inductor_debug.pipeline.directory.rundir import RunDirectory

MODELS = Path(__file__).resolve().parents[1] / "end_to_end"
WORDS = (
    "model=custom", "model.build._target_=small_models.perceptron", "backend=aot_eager", "accel=warn16",
    "stages=[capture,constrain,kerneldiff,report]", "--multirun", "accel.alignment=8,16,32,64",
)  # fmt: skip
DIFFER = re.compile(r"id|dir|override\.runner\.cache_dir|seconds|started|cached|.*_ms|.*peak_memory_bytes|error")
END_S = 600.0


def start(folder: Path, work: Path) -> "subprocess.Popen[bytes]":
    """The sweep in a folder, in a session of its own."""
    path = os.pathsep.join(filter(None, (str(MODELS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", "inductor_debug.pipeline", *WORDS, f"hydra.sweep.dir={folder}/sweep",
               f"runner.cache_dir={folder}/cache"]  # fmt: skip
    with (folder / "printed.txt").open("ab") as printed:
        return subprocess.Popen(command, cwd=work, env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
                                stdout=printed, stderr=printed)  # fmt: skip


def found(folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The sweep's table without what may differ, and the digest of each job."""
    with (folder / "sweep" / "sweep.csv").open() as file:
        rows = [{key: value for key, value in row.items() if not DIFFER.fullmatch(key)} for row in csv.DictReader(file)]
    jobs = sorted((folder / "sweep").glob("*/manifest.json"))
    return rows, [json.loads(job.read_text())["digest"] for job in jobs]


def wrong_files(folder: Path) -> list[str]:
    """Files that are not what the runs' manifests say, and kept results that can't be given out."""
    told = []
    for path in (folder / "sweep").glob("*/manifest.json"):
        listed: dict[str, Any] = json.loads(path.read_text())["files"]
        told += [f"{path.parent.name}/{name}" for name, known in listed.items()
                 if content_of(str(path.parent / name)) != known]  # fmt: skip
    cache = Cache(folder / "cache")
    for item in cache.kept():
        for place, entry in cache.entries(item.stage, item.path.parent.name):
            damage = "it can't be read" if entry is None else cache.give(place, entry, RunDirectory(folder / "given"))
            told += [f"cache: {damage}"] if damage else []
    return told


def disturbed(folder: Path, work: Path, chance: random.Random, longest_s: float, kills: int) -> int:
    """Run the sweep to its end, killed on its way so many times at most; how often it was."""
    for count in range(kills + 1):
        process = start(folder, work)
        try:
            process.wait(chance.uniform(0, longest_s) if count < kills else END_S)
        except subprocess.TimeoutExpired:
            if chance.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
            continue
        if process.returncode == 0:
            return count
        raise SystemExit(f"exit code {process.returncode}: {(folder / 'printed.txt').read_text()[-2000:]}")
    raise SystemExit("it did not end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "work").mkdir()
        (root / "undisturbed").mkdir()
        began = time.monotonic()
        assert start(root / "undisturbed", root / "work").wait() == 0, "the undisturbed sweep failed"
        took, wanted, done, number = time.monotonic() - began, found(root / "undisturbed"), 0, 0
        while done < options.kills:
            folder = root / str(number)
            folder.mkdir()
            kills = disturbed(folder, root / "work", chance, took, min(10, options.kills - done))
            done, number = done + kills, number + 1
            left = found(folder)
            problems = wrong_files(folder) + ([] if left == wanted else [f"{left} is not {wanted}"])
            print(
                f"sweep {number}: {kills} kills, {done} in all: {'; '.join(problems) or 'as undisturbed'}", flush=True
            )
            if problems:
                sys.exit(1)


if __name__ == "__main__":
    main()
