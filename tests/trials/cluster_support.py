"""A small sweep under a launcher, and whether its table is that of the basic one."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "end_to_end"
WORDS = ("model=custom", "model.build._target_=small_models.perceptron", "backend=aot_eager", "accel=warn16",
         "--multirun")  # fmt: skip
DIFFER = re.compile(
    r"id|dir|override\.(cluster|hydra\..*|runner\.cache_dir)|seconds|started|cached|.*_ms|.*peak_memory_bytes|error"
)


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """The sweep in ``folder/sweep``, in a session of its own; what it prints is in ``folder/printed.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(MODELS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "inductor_debug.pipeline", *WORDS, f"hydra.sweep.dir={folder}/sweep",
               f"runner.cache_dir={folder}/cache", *words]  # fmt: skip
    with (folder / "printed.txt").open("ab") as printed:
        return subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, start_new_session=True,
                                stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)  # fmt: skip


def table(folder: Path) -> list[dict[str, str]]:
    """The sweep's table, without times, ids and folders."""
    with (folder / "sweep" / "sweep.csv").open() as file:
        return [{key: value for key, value in row.items() if not DIFFER.fullmatch(key)} for row in csv.DictReader(file)]


def ended(process: "subprocess.Popen[bytes]", folder: Path, patience_s: float) -> None:
    """Wait for a sweep; SystemExit, with the end of what it printed, where it did not end with code 0."""
    code = process.wait(patience_s)
    if code != 0:
        raise SystemExit(f"exit code {code}: {(folder / 'printed.txt').read_text()[-3000:]}")


def compared(found: Path, wanted: Path) -> str:
    """``N jobs, as under the basic launcher``; SystemExit where they are not."""
    ours, theirs = table(found), table(wanted)
    different = [index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]]
    if len(ours) != len(theirs) or different:
        first = different[0] if different else 0
        raise SystemExit(f"{len(ours)} jobs for {len(theirs)}; job {first}: {ours[first]} is not {theirs[first]}")
    return f"{len(ours)} jobs, as under the basic launcher"
