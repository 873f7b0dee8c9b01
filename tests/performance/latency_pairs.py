"""How often ``compare`` would call the latency of the same code worse: every pair of the runs that are named.

The runs have to be of one machine and of the same code. For each pair, the first one named first, the 95 % interval of
the ratio of their latencies is printed: of each process over its reference, and of the latencies alone. Runs whose
timing is not established, of which `compare` would judge none, count too, and are told.

Usage: ``python tests/performance/latency_pairs.py RUN RUN...``
"""

import argparse
import itertools
import sys
from pathlib import Path

from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.gate.limits import Limits
from inductor_debug.pipeline.query.gate.times import medians, ratio_of
from inductor_debug.stages.benchmark.interval import Interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    runs = [open_run(folder) for folder in parser.parse_args().runs]
    limit = Limits().latency
    assert limit is not None
    found: dict[str, list[Interval]] = {"over the reference": [], "latencies alone": []}
    for first, second in itertools.combinations(runs, 2):
        samples = [medians(run, "ms") for run in (first, second)]
        told = []
        for (words, every), paired in zip(found.items(), (True, False), strict=True):
            ratio = ratio_of(samples[0], samples[1], paired=paired)
            every.append(ratio)
            told.append(f"{words} {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
        doubts = [run.folder.name for run in (first, second)
                  if run.head.benchmark and not run.head.benchmark.established]  # fmt: skip
        doubted = f"; not established: {', '.join(doubts)}" if doubts else ""
        sys.stdout.write(f"{first.folder.name} {second.folder.name}: {', '.join(told)}{doubted}\n")
    for words, every in found.items():
        ends = [ratio.ends for ratio in every if ratio.ends is not None]
        holds, worse = sum(low <= 1 <= high for low, high in ends), sum(low > limit for low, _ in ends)
        sys.stdout.write(f"{words}: 1 is in {holds} of {len(every)} intervals, {worse} beyond {limit}\n")


if __name__ == "__main__":
    main()
