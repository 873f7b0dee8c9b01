"""The pipeline's CPU time on a default BERT run over the bare work's, interleaved, each from an empty cache.

Usage: ``python tests/performance/ratio.py [--rounds 1]``. Prints both figures of each round and the median ratio.
The bare side takes as many timed samples as the pipeline took in the same round, so that both do the same work.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BARE = Path(__file__).with_name("bare.py")


def cpu_seconds(command: list[str], cwd: Path, environment: dict[str, str]) -> float:
    """User and system seconds of a command and of all its reaped descendants; CalledProcessError where it fails."""
    before = os.times()
    subprocess.run(command, cwd=cwd, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user + after.children_system) - (before.children_user + before.children_system)


def one_round() -> tuple[float, float]:
    """CPU seconds of the pipeline and of the bare work."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(work / "cache")}
        command = [sys.executable, "-P", "-m", "inductor_debug.pipeline", "model=bert", "runner.cache=false"]
        pipeline = cpu_seconds(command, work, environment)
        (summary,) = work.glob("outputs/*/*/summary.json")
        samples = json.loads(summary.read_text())["benchmark"]["test"]["samples"]
        bare = cpu_seconds([sys.executable, str(BARE), "--samples", str(samples)], work, environment)
    return pipeline, bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    ratios = []
    for _ in range(parser.parse_args().rounds):
        pipeline, bare = one_round()
        ratios.append(pipeline / bare)
        print(f"pipeline {pipeline:.1f} s, bare {bare:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
