"""The CPU time of a whole run, and of each further value of a constraint that is swept.

Usage: ``python tests/performance/sweep.py [WORD …]``, by default of full BERT. A run fills an empty cache. Then two
sweeps over alignments that are new to it run, of three and of forty values, with the same cache.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from ratio import Cost, measured

FIRST, THREE, FORTY = (8,), (16, 32, 64), tuple(range(129, 169))


def sweep(words: list[str], values: tuple[int, ...], folder: Path) -> float:
    """CPU seconds of a sweep over alignments."""
    command = [
        *(sys.executable, "-P", "-m", "inductor_debug.pipeline", *words, "accel=warn16", "--multirun"),
        *(f"accel.alignment={','.join(map(str, values))}", f"runner.cache_dir={folder}/cache"),
    ]
    cost = Cost()
    with measured(cost):
        subprocess.run(command, cwd=folder, check=True)
    return cost.cpu_s


def main() -> None:
    words = sys.argv[1:] or ["model=bert"]
    with tempfile.TemporaryDirectory() as folder:
        one, three, forty = (sweep(words, values, Path(folder)) for values in (FIRST, THREE, FORTY))
    further = (forty - three) / (len(FORTY) - len(THREE))
    print(
        f"1 value {one:.1f} s of CPU, each further {further:.2f} s: 3 values are {(one + 2 * further) / one:.3f} of 1"
    )


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: its output is above")
