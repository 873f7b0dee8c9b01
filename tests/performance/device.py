"""Bandwidth of ``compare_tensors`` on a CUDA device over that of the device's own copy, in one process.

Usage: ``python tests/performance/device.py [--elements 268435456] [--rounds 7] [--pairs 32]``. Prints medians in GB/s
(bytes read, and for the copy read and written, by wall time), their ratio to the copy, and memory beyond the inputs:
for one pair, for several pairs as one structure (whose comparisons follow each other without waiting), with a
histogram, for ``torch.testing.assert_close``, and for one pair transposed, in int32, with one side alone transposed,
with every other column, and in 16-bit floats of twice as many elements. Of the first also by the device's clock, queued
while it was busy: what is left without the host's part.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from inductor_debug.stages.numerics.comparison import KernelDiff, compare_tensors
from inductor_debug.stages.numerics.one_pass import begin


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Median wall time of ``work`` with the device idle before and after."""
    work()
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def on_device(work: Callable[[], object], rounds: int) -> float:
    """Median time of ``work`` on the device, which is kept busy until all of it is queued."""
    found = []
    for _ in range(rounds):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)
        begun.record()
        kept = work()
        ended.record()
        torch.cuda.synchronize()
        del kept
        found.append(begun.elapsed_time(ended) / 1e3)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=2**28, help="elements of each float32 tensor")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    reference = torch.randn(options.elements, device="cuda")
    test = reference * (1 + 1e-6 * torch.randn(options.elements, device="cuda"))
    pairs = [(reference, test)] + [(reference.clone(), test.clone()) for _ in range(options.pairs - 1)]
    target = torch.empty_like(reference)
    size = 2 * reference.nbytes
    tolerance = {"atol": 1e-5, "rtol": 1e-5}

    def structure() -> None:
        KernelDiff(**tolerance).compare([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    half = tuple(torch.cat([side, side.flip(0)]).bfloat16() for side in (reference, test))
    whole = (1000 * reference).int(), (1000 * test).int()
    turned = reference.view(2**10, -1).t(), test.view(2**10, -1).t()
    other = turned[1].contiguous()
    columns = reference.view(2**10, -1)[:, ::2], test.view(2**10, -1)[:, ::2]
    works: dict[str, tuple[Callable[[], object], float]] = {
        "copy": (lambda: target.copy_(reference), 1),
        "compare_tensors": (lambda: compare_tensors(reference, test, **tolerance), 1),
        f"{len(pairs)} pairs at once": (structure, len(pairs)),
        "with a histogram": (lambda: compare_tensors(reference, test, histogram=True, **tolerance), 1),
        "torch.testing.assert_close": (lambda: torch.testing.assert_close(test, reference, **tolerance), 1),
        "transposed": (lambda: compare_tensors(*turned, **tolerance), 1),
        "int32": (lambda: compare_tensors(*whole, **tolerance), 1),
        "bfloat16": (lambda: compare_tensors(*half, **tolerance), 1),
        "one side transposed": (lambda: compare_tensors(turned[0], other, **tolerance), 1),
        "every other column": (lambda: compare_tensors(*columns, **tolerance), 0.5),
    }
    print(torch.cuda.get_device_name(), f"torch {torch.__version__}, {options.elements} float32 elements a tensor")
    copied = 0.0
    for name, (work, times) in works.items():
        taken = seconds(work, options.rounds)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        extra = torch.cuda.max_memory_allocated() - before
        rate = size * times / taken / 1e9
        copied = copied or rate
        print(f"{name}: {rate:.0f} GB/s, {rate / copied:.3f} of the copy, {extra / 2**20:.1f} MiB beyond the inputs")
    moved = on_device(lambda: target.copy_(reference), options.rounds)
    for name, pair in (("float32", (reference, test)), ("int32", whole), ("bfloat16", half)):
        taken = on_device(lambda pair=pair: begin(*pair, None, **tolerance, alone=True), options.rounds)
        print(f"{name} by the device's clock: {1e6 * taken:.0f} us, the copy {1e6 * moved:.0f} us, {moved / taken:.3f}")


if __name__ == "__main__":
    main()
