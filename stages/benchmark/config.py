"""Options of the benchmark stage. Free of torch."""

from dataclasses import dataclass


@dataclass
class BenchmarkConfig:
    """Attributes:
    processes: fresh processes that sample, one after the other; the 95 % intervals cover their spread.
    warmup: untimed calls of each side in each process.
    repeats: timed calls of each side in each process at least.
    max_repeats: timed calls of each side in each process at most.
    relative_ci: a process stops once the 95 % interval of its own ratio of medians is this narrow, relative to it.
    budget_s: seconds of timing after which it stops, ``repeats`` or not, all processes together and their start aside;
        each side gets at least 3 samples in each process.
    """

    processes: int = 5
    warmup: int = 3
    repeats: int = 5
    max_repeats: int = 20
    relative_ci: float = 0.05
    budget_s: float = 60.0
