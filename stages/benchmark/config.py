"""Options of the benchmark stage."""

from dataclasses import dataclass

from inductor_debug.models.errors import wrong_value
from inductor_debug.models.options import INT64, Range, chosen, real, whole

MOST_REPEATS = 20
"""Timed calls of each side in each process at most, where nothing else is asked for."""
BATCH_SIZES = "stages.benchmark.batch_sizes"
_SIZE = Range(1, INT64, whole=True)


@dataclass
class BenchmarkConfig:
    """Attributes:
    processes: fresh processes that sample, one after the other; the 95 % intervals cover their spread. With
        ``interval`` they are the least.
    warmup: untimed calls of each side in each process at least; more follow until the calls get no faster.
    max_warmup: untimed calls at most, also where ``warmup`` is more; null: until steady, for a quarter of the process's
        share of ``budget_s`` at most.
    repeats: timed calls of each side in each process at least.
    max_repeats: timed calls of each side in each process at most, also where ``repeats`` is more; null: 20, or
        ``repeats`` where that is more; with ``interval`` as many as the budget holds.
    relative_ci: a process stops once the 95 % interval of its own ratio of medians is this narrow, relative to it.
    interval: wanted half-width of the speed-up's 95 % interval, relative to the speed-up: 0.02 for ±2 %. Further
        processes sample until it is reached, or ``budget_s`` of wall time is spent, their start included. null: as
        many processes as ``processes`` says.
    flush_l2: on CUDA, write over the L2 cache before each timed call, outside its time.
    cuda_graphs: on CUDA, compile the test side of this stage with TorchInductor's ``triton.cudagraphs``.
    optimizer: in training, whose step is timed as a part of its own, after all others: sgd, adamw or none. It is eager
        on both sides, and in no latency.
    batch_sizes: further values of ``model.batch_size``, each measured on both sides in a fresh process of its own, for
        ``benchmark/throughput.csv``. Each has one process's share of ``budget_s``. null or empty: none.
    budget_s: seconds of timing after which it stops, even without ``repeats``: of all processes together, without their
        start. Each side gets at least 3 samples in each process.
    """

    processes: int = whole(5, least=2)
    warmup: int = whole(3)
    max_warmup: int | None = whole(None, least=1)
    repeats: int = whole(5, least=1)
    max_repeats: int | None = whole(None, least=1)
    relative_ci: float = real(0.05, above=0)
    interval: float | None = real(None, above=0, example="0.02")
    flush_l2: bool = False
    cuda_graphs: bool = False
    optimizer: str = chosen("sgd", ("sgd", "adamw", "none"))
    batch_sizes: list[int] | None = None
    budget_s: float = real(60.0, above=0)

    def check(self) -> None:
        """ConfigurationError for a batch size that is no whole number above 0, or that is there twice."""
        sizes = list(self.batch_sizes or ())
        fitting = list(dict.fromkeys(size for size in sizes if _SIZE.holds(size)))
        if fitting != sizes:
            example = f"[{','.join(map(str, fitting or (1, 4, 16)))}]"
            raise wrong_value(BATCH_SIZES, sizes, "whole numbers above 0, each of them once", example)

    @property
    def most_repeats(self) -> int | None:
        """Timed calls of a side in a process at most; None: as many as the budget holds."""
        if self.max_repeats is not None:
            return self.max_repeats
        return None if self.interval is not None else max(MOST_REPEATS, self.repeats)

    @property
    def process_width(self) -> float:
        """Width of a process's own interval at which it stops, relative to its ratio."""
        return self.relative_ci if self.interval is None else min(self.relative_ci, 2 * self.interval)
