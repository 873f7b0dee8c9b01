"""Options of the benchmark stage. Free of torch."""

from dataclasses import dataclass


@dataclass
class BenchmarkConfig:
    """Attributes:
    warmup: untimed calls of each side.
    repeats: timed calls of each side at least.
    max_repeats: timed calls of each side at most.
    relative_ci: stop once the 95 % interval of the ratio of medians is this narrow, relative to the ratio.
    budget_s: seconds after which timing stops, ``repeats`` or not, once each side has at least 3 samples.
    """

    warmup: int = 3
    repeats: int = 10
    max_repeats: int = 20
    relative_ci: float = 0.05
    budget_s: float = 60.0
