"""Whether this checkout finds what another commit finds: ten frozen jobs on both, the same machine, no cache.

Each job (``frozen_jobs.yaml``) runs once with the code of the commit, in a worktree of its own, and once with that of
this checkout as it stands. It compares the exit codes, the stages' statuses, every part of ``summary.json`` that is no
time, place or version, and what a run's digest covers: graphs, violations, figures, verdicts. Where the digests'
content is read, this checkout's code reads both.

Usage: ``make same-as COMMIT=HEAD~1`` or ``python tests/trials/same_as.py COMMIT [--jobs bert,strict] [--keep FOLDER]
[--parallel 2]``. Prints a line for each job, and what differs. Exit code 0 where all are equal, 1 otherwise.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from inductor_debug.pipeline.directory.digest import canonical
from inductor_debug.pipeline.directory.rundir import RunDirectory

CHECKOUT = Path(__file__).parents[2]
JOBS = Path(__file__).with_name("frozen_jobs.yaml")
STAGES = "stages=[capture,constrain,lower,kerneldiff]"
COMPARED = ("verdict", "graphs", "violations", "numerics", "guards", "repros")
"""Parts of ``summary.json`` without times, places and versions."""
SHOWN = 8
"""Differences of a job that are printed."""


def frozen_jobs() -> dict[str, list[str]]:
    """Name → overrides."""
    stored = yaml.safe_load(JOBS.read_text())
    return {name: [word for line in lines for word in shlex.split(line)] for name, lines in stored.items()}


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """A worktree of ``commit``, removed at the end; CalledProcessError where there is no such commit."""
    git = ["git", "-C", str(CHECKOUT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def run(code: Path, overrides: list[str], directory: Path) -> dict[str, Any]:
    """What one job finds with the code in a folder.

    Raises:
        SystemExit: the run left no summary, or another folder's code ran.
    """
    # one thread: TorchInductor adds an embedding's gradient up by atomic additions, in no order on several
    variables = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    stages = [] if any(item.startswith("stages=") for item in overrides) else [STAGES]
    command = [sys.executable, "-P", "-m", "pipeline", *overrides, *stages, "runner.cache=false"]
    which = [sys.executable, "-P", "-c", "import pipeline; print(pipeline.__file__)"]
    found = subprocess.run(which, env=variables, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_relative_to(code):
        sys.exit(f"the code of {found} would run in place of that in {code}; give no PYTHONPATH that hides it")
    finished = subprocess.run(
        [*command, f"hydra.run.dir={directory}"], env=variables, cwd=directory.parent, capture_output=True, text=True
    )
    if not (directory / "summary.json").is_file():
        sys.exit(f"{shlex.join(command)} in {code}\n{finished.stdout}{finished.stderr}")
    return findings(directory, code / "models") | {"exit code": finished.returncode}


def findings(directory: Path, own_models: Path) -> dict[str, Any]:
    """All of a stored run that is compared, by name; ``own_models`` is the folder of our models that it used."""
    summary = json.loads((directory / "summary.json").read_text())
    inputs = json.loads((directory / "manifest.json").read_text())["digest_inputs"]
    covered, _ = canonical(RunDirectory(directory), inputs, own_models)
    statuses = {stage["name"]: stage["status"] for stage in summary["stages"]}
    return {"statuses": statuses, **{name: summary[name] for name in COMPARED}, **covered}


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Each value that is not the same on both sides, by its place."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            if key not in before or key not in after:
                yield f"{where}{key}: only {'before' if key in before else 'after'}"
            else:
                yield from differences(before[key], after[key], f"{where}{key}: ")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}{index}: ")
    elif type(before) is not type(after) or before != after:
        yield f"{where}{json.dumps(before)[:200]} → {json.dumps(after)[:200]}"


def main() -> int:
    jobs = frozen_jobs()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--jobs", default=",".join(jobs))
    parser.add_argument("--keep", type=Path, help="an empty folder for the runs; they are removed where none is given")
    parser.add_argument("--parallel", type=int, default=2, help="runs at the same time")
    options = parser.parse_args()
    chosen = options.jobs.split(",")
    if unknown := [name for name in chosen if name not in jobs]:
        parser.error(f"--jobs: got {', '.join(unknown)}; valid: {', '.join(jobs)}")
    equal = 0
    with tempfile.TemporaryDirectory() as scratch, worktree(options.commit, Path(scratch) / "code") as code:
        folder = (options.keep or Path(scratch) / "runs").absolute()
        sides = {"before": code, "after": CHECKOUT}
        for side in sides:
            (folder / side).mkdir(parents=True)
        with ThreadPoolExecutor(options.parallel) as pool:
            started = {
                name: [pool.submit(run, tree, jobs[name], folder / side / name) for side, tree in sides.items()]
                for name in chosen
            }
            for name, both in started.items():
                before, after = (future.result() for future in both)
                found = list(differences(before, after))
                equal += not found
                figures = sum(len(part) for key, part in after.items() if key.endswith((".csv", ".json")))
                told = f"{len(found)} differences" if found else f"equal: {after['verdict']}, {figures} rows and graphs"
                sys.stdout.write(f"{name}: {told}\n")
                sys.stdout.writelines(f"  {line}\n" for line in found[:SHOWN])
                sys.stdout.flush()
    sys.stdout.write(f"{equal} of {len(chosen)} jobs are equal\n")
    return int(equal < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
