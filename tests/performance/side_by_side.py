"""Two programs compared in rounds: in each they run at once, a core and a thread each, and the cores change hands.

What else a shared machine does, and how fast it happens to be, then falls on both. (Samples of one program, taken in
turns with those of the other, differed by a quarter.) Where there are more cores, as many rounds run at once. Bytecode
is cached, as after an installation, in a folder of its own, which one round fills that does not count.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

Figures = dict[str, float]


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Variables for programs that are compared."""
    with tempfile.TemporaryDirectory() as folder:
        found = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "OMP_NUM_THREADS": "1"}
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        yield found


def core_pairs() -> list[tuple[int, int]]:
    """Cores that this process may use, by two; ends the program where there is one alone."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        sys.exit("this process may use one core; two are needed, to run two programs side by side")
    return list(zip(found[::2], found[1::2], strict=False))


def start(arguments: Sequence[str], variables: dict[str, str], core: int) -> subprocess.Popen[str]:
    """``python ARGUMENTS`` on ``core``."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
    )
    os.sched_setaffinity(process.pid, {core})
    return process


def finish(process: subprocess.Popen[str]) -> Figures:
    """The figures in JSON that the program prints last; this one ends with its error where it failed."""
    printed, error = process.communicate()
    if process.returncode:
        sys.exit(error)
    figures: Figures = json.loads(printed.splitlines()[-1])
    return figures


def interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of the median: the order statistics that the binomial distribution names; None below 6."""
    ordered, n = sorted(values), len(values)
    tail, lowest = 0.5**n, 0
    while n >= 6 and tail + math.comb(n, lowest + 1) * 0.5**n <= 0.025:
        lowest += 1
        tail += math.comb(n, lowest) * 0.5**n
    return [round(ordered[lowest], 3), round(ordered[n - 1 - lowest], 3)] if n >= 6 else None


def compare(
    reference: Sequence[str], test: Sequence[str], *, rounds: int, variables: dict[str, str], cold: str = ""
) -> dict[str, Any]:
    """The two programs' figures over ``rounds`` rounds.

    Args:
        reference: arguments of Python; ``test`` likewise.
        cold: an environment variable that names an empty folder, another one for each process.

    Returns:
        Of each figure that both print: its ``ratio`` (the median of the rounds' ratios, test over reference), its
        ``interval``, ``ratios``, the ``medians`` of reference and test, and ``least``, the least of each. Other work on
        the machine only ever adds to CPU time. Each round is told on the standard error.
    """
    pairs = core_pairs()
    found = [_round(reference, test, pairs[0], variables, cold)]
    with ThreadPoolExecutor(len(pairs)) as pool:
        for begun in range(0, rounds, len(pairs)):
            turned = [
                pair[::-1] if (begun // len(pairs) + index) % 2 else pair
                for index, pair in enumerate(pairs[: rounds - begun])
            ]
            found += pool.map(lambda cores: _round(reference, test, cores, variables, cold), turned)
            print(f"{len(found) - 1} of {rounds} rounds; the last: {found[-1]}", file=sys.stderr, flush=True)
    return {key: _figure([(first[key], second[key]) for first, second in found[1:]]) for key in found[0][0]}


def _round(
    reference: Sequence[str], test: Sequence[str], cores: Sequence[int], variables: dict[str, str], cold: str
) -> list[Figures]:
    with ExitStack() as stack:
        running = []
        for arguments, core in zip((reference, test), cores, strict=True):
            own = {cold: stack.enter_context(tempfile.TemporaryDirectory())} if cold else {}
            running.append(start(arguments, variables | own, core))
        return [finish(process) for process in running]


def _figure(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ratios = [test / reference for reference, test in pairs]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "interval": interval(ratios),
        "medians": [round(statistics.median(side), 3) for side in zip(*pairs, strict=True)],
        "least": [round(min(side), 3) for side in zip(*pairs, strict=True)],
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
