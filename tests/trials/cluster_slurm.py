"""A sweep as an array of SLURM jobs, some of which are requeued or killed: ``python tests/trials/cluster_slurm.py``.

While the sweep runs (``cluster=slurm``), every ``--disturb-every`` seconds a random job of it is taken from its node:
it is requeued, as a lost node's is; sent the signal that SLURM sends before the time limit; or killed by SIGKILL with
all its processes, and then requeued. The sweep ends with exit code 0, and its table is that of the basic launcher but
for times and ids. Where the scheduler gives up on a job, the sweep is started again by the words with which its
message ends.

    pip install 'inductor-debug[slurm]'; apt-get install -y slurm-wlm munge; tests/trials/slurm_here.sh
    python tests/trials/cluster_slurm.py --jobs 6 --disturb-every 10
"""

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

import cluster_support as support


def running(least_s: int = 0) -> list[str]:
    """Ids of this sweep's jobs that have run for so many seconds: one that has just started handles no signal yet."""
    asked = ["squeue", "--noheader", "--states=RUNNING", "--name=inductor-debug", "--format=%i %M"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    times = [sum(60**place * int(part) for place, part in enumerate(reversed(text.split(":")))) for text in found[1::2]]
    return [job for job, seconds in zip(found[::2], times, strict=True) if seconds >= least_s]


def disturb(job: str, how: str) -> None:
    """Take a job from its node; that it has just ended is no error."""
    commands = {
        "requeue": [["scontrol", "requeue", job]],
        "signal": [["scancel", "--signal=USR2", job]],
        "kill": [["scancel", "--signal=KILL", "--full", job], ["scontrol", "requeue", job]],
    }
    for command in commands[how]:
        subprocess.run(command, capture_output=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--disturb-every", type=float, default=10.0)
    parser.add_argument("--kinds", default="requeue,signal,kill")
    parser.add_argument("--stages", default="capture,constrain,kerneldiff,report")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    words = (f"stages=[{options.stages}]", f"accel.alignment=range(1,{options.jobs + 1})")
    cluster = ("cluster=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
    with tempfile.TemporaryDirectory() as temporary:
        root, done, starts = Path(temporary), 0, 0
        began = time.monotonic()
        while True:
            sweep, starts = support.start(root / "slurm", *words, *cluster), starts + 1
            while sweep.poll() is None:
                try:
                    sweep.wait(options.disturb_every)
                except subprocess.TimeoutExpired:
                    how = chance.choice(options.kinds.split(","))
                    jobs = running(5 if how == "signal" else 0)
                    if jobs:
                        disturb(chance.choice(jobs), how)
                        done += 1
            if sweep.returncode == 0:
                break
            if starts == 5:
                support.ended(sweep, root / "slurm", 0)
            while running():  # of a sweep that gave up on another of its jobs
                time.sleep(1)
        took = time.monotonic() - began
        basic = support.start(root / "basic", *words)
        support.ended(basic, root / "basic", 3600)
        told = support.compared(root / "slurm", root / "basic")
        print(f"{told}; {done} disturbances in {took:.0f} s, started {starts} times")


if __name__ == "__main__":
    main()
