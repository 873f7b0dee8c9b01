"""Options of the benchmark stage."""

from dataclasses import dataclass

from inductor_debug.models.options import real, whole


@dataclass
class BenchmarkConfig:
    """Attributes:
    processes: fresh processes that sample, one after the other; the 95 % intervals cover their spread.
    warmup: untimed calls of each side in each process.
    repeats: timed calls of each side in each process at least.
    max_repeats: timed calls of each side in each process at most.
    relative_ci: a process stops once the 95 % interval of its own ratio of medians is this narrow, relative to it.
    budget_s: seconds of timing after which it stops, even without ``repeats``: of all processes together, without their
        start. Each side gets at least 3 samples in each process.
    """

    processes: int = whole(5, least=2)
    warmup: int = whole(3)
    repeats: int = whole(5, least=1)
    max_repeats: int = whole(20, least=1)
    relative_ci: float = real(0.05, above=0)
    budget_s: float = real(60.0, above=0)
