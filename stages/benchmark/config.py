"""Options of the benchmark stage. Free of torch."""

from dataclasses import dataclass

from models.options import real, whole


@dataclass
class BenchmarkConfig:
    """Attributes:
    warmup: untimed calls of each side.
    repeats: timed calls of each side at least.
    max_repeats: timed calls of each side at most.
    relative_ci: stop once the 95 % interval of the ratio of medians is this narrow, relative to the ratio.
    budget_s: seconds after which timing stops, ``repeats`` or not, once each side has at least 3 samples.
    """

    warmup: int = whole(3)
    repeats: int = whole(10, least=1)
    max_repeats: int = whole(20, least=1)
    relative_ci: float = real(0.05, above=0)
    budget_s: float = real(60.0, above=0)
