"""The CPU time of a sweep over a constraint, and of a whole run of its own, each from an empty cache.

Usage: ``python tests/performance/sweep.py [WORD …]``, by default of full BERT. Sweeps of one, three and eleven
values run, each with its own cache. Printed are the ratio of three to one, and what each further value takes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ratio import cpu_seconds

VALUES = (8, 16, 32, 64, 128, 256, 24, 40, 48, 56, 72)


def sweep(words: list[str], count: int) -> float:
    """CPU seconds of a sweep over so many alignments."""
    with tempfile.TemporaryDirectory() as folder:
        values = ",".join(map(str, VALUES[:count]))
        command = [
            *(sys.executable, "-P", "-m", "inductor_debug.pipeline", *words, "accel=warn16", "--multirun"),
            *(f"accel.alignment={values}", f"runner.cache_dir={folder}/cache"),
        ]
        return cpu_seconds(command, Path(folder), dict(os.environ))


def main() -> None:
    words = sys.argv[1:] or ["model=bert"]
    one, three, eleven = (sweep(words, count) for count in (1, 3, 11))
    print(f"1 value {one:.1f} s, 3 values {three:.1f} s, 11 values {eleven:.1f} s of CPU")
    print(f"3 values are {three / one:.2f} of 1; each further value takes {(eleven - three) / 8:.2f} s")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: its output is above")
