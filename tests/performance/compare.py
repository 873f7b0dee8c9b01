"""CPU time of ``compare_tensors`` over plain torch's ``assert_close`` and the main figures, in one process.

Usage: ``python tests/performance/compare.py [--elements 16700000] [--rounds 3] [--no-gold]``. Prints CPU seconds (user
and system, all threads) of both sides and their ratio for each round. With ``--pairs 2000`` compares so many small
pairs, and with ``--cases`` large ones of other strides and dtypes, each by turns with ``torch.testing.assert_close``
alone; prints medians by CPU and by wall time. With ``--layout csc`` (coo, csr, csc, duplicates;
``--stored 0.01``) compares two sparse tensors instead, as they are and after they were made dense.
"""

import argparse
import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable

import torch

from inductor_debug.stages.numerics.comparison import KernelDiff, compare_tensors


def plain(reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor | None) -> dict[str, float]:
    """The main figures as one would write them by hand, whole tensors at a time."""
    torch.testing.assert_close(test, reference, rtol=1e-2, atol=1e-2)
    left, right = reference.double(), test.double()
    error = (right - left).abs()
    bits = [side.view(torch.int32).long() for side in (reference, test)]
    order = [torch.where(side < 0, -(side & 0x7FFFFFFF), side) for side in bits]
    found = {
        "max_abs": error.max().item(),
        "mean_abs": error.mean().item(),
        "rmse": error.square().mean().sqrt().item(),
        "max_rel": (error / left.abs()).max().item(),
        "mean_rel": (error / left.abs()).mean().item(),
        "max_ulp": (order[0] - order[1]).abs().max().item(),
        "mismatched": int((error > 1e-5 + 1.3e-6 * left.abs()).sum()),
        "cosine": (left.dot(right) / (left.norm() * right.norm())).item(),
        "worst": error.topk(8).indices[0].item(),
    }
    if gold is not None:
        for name, side in (("floor", left), ("error", right)):
            gap = (side - gold).abs()
            found |= {f"{name}_max": gap.max().item(), f"{name}_rms": gap.square().mean().sqrt().item()}
    return found


def sparse(layout: str, elements: int, stored: float) -> torch.Tensor:
    """A square float32 matrix of about so many elements; ``duplicates`` is COO that is not coalesced."""
    side = math.isqrt(elements)
    count = int(stored * side * side)
    tensor = torch.sparse_coo_tensor(torch.randint(0, side, (2, count)), torch.randn(count), (side, side))
    if layout == "duplicates":
        return tensor
    tensor = tensor.coalesce()
    return tensor if layout == "coo" else getattr(tensor, f"to_sparse_{layout}")()


Case = tuple[Callable[[], object], Callable[[], object]]
"""Our comparison, and torch's of the same tensors."""


def close(reference: torch.Tensor, test: torch.Tensor) -> None:
    """torch's own verdict, which is not asked for."""
    with contextlib.suppress(AssertionError):
        torch.testing.assert_close(test, reference, rtol=1e-2, atol=1e-2)


def small_pairs(count: int) -> dict[str, Case]:
    """Many pairs of a few hundred elements, as one structure."""

    def case(sides: list[tuple[torch.Tensor, torch.Tensor]]) -> Case:
        reference, test = ({str(place): pair[side] for place, pair in enumerate(sides)} for side in (0, 1))
        tolerance = {"rtol": 1e-2, "atol": 1e-2}
        return (
            lambda: KernelDiff(**tolerance).compare_leaves(reference, test, {}, kind="output"),
            lambda: [close(*pair) for pair in sides],
        )

    drawn = [torch.randn(256) for _ in range(count)]
    whole = [(9 * each).long() for each in drawn]
    return {
        "equal": case([(each, each.clone()) for each in drawn]),
        "different": case([(each, each * (1 + 1e-3 * torch.randn(256))) for each in drawn]),
        "bfloat16": case([(each.bfloat16(), (each * 1.001).bfloat16()) for each in drawn]),
        "int64": case([(each, each.clone()) for each in whole]),
        "int32 different": case([(each.int(), each.int() + 1) for each in whole]),
    }


def large_pairs(elements: int) -> dict[str, Case]:
    """Pairs of about so many elements each, by what is special about them."""
    side = math.isqrt(elements)
    reference = torch.randn(side, side)
    test = reference * (1 + 1e-6 * torch.randn(side, side))
    whole = torch.randint(-1000, 1000, (side, side), dtype=torch.int32)
    image = torch.randn(elements // 2**14 // 16, 16, 128, 128)
    pairs = {
        "contiguous": (reference, test),
        "transposed": (reference.t(), test.t()),
        "one transposed": (reference, test.t().contiguous().t()),
        "channels last": (image, image.to(memory_format=torch.channels_last) * 1.001),
        "every other column": (reference[:, ::2], test[:, ::2]),
        "expanded": (reference[:1].expand(side, side), test[:1].expand(side, side)),
        "bfloat16": (reference.bfloat16(), test.bfloat16()),
        "int32": (whole, whole.clone()),
        "int32 transposed": (whole.t(), whole.clone().t()),
        "int64": (whole.long(), whole.long()),
    }
    options = {"rtol": 1e-2, "atol": 1e-2}
    return {
        name: (functools.partial(compare_tensors, *pair, **options), functools.partial(close, *pair))
        for name, pair in pairs.items()
    }


def side_by_side(cases: dict[str, Case], rounds: int, scale: float, unit: str) -> None:
    """Print the median time of each case's two sides, by turns after a first round, and the ratio of the medians."""
    for name, works in cases.items():
        cpu, wall = [[], []], [[], []]
        for turn in range(2 * (rounds + 1)):
            began, began_cpu = time.perf_counter(), time.process_time()
            works[turn % 2]()
            if turn > 1:
                wall[turn % 2].append(time.perf_counter() - began)
                cpu[turn % 2].append(time.process_time() - began_cpu)
        for kind, times in (("CPU", cpu), ("wall", wall)):
            ours, theirs = (scale * statistics.median(side) for side in times)
            ratio = ours / theirs
            print(f"{name}: {kind} {ours:.0f} {unit}, assert_close {theirs:.0f} {unit}, ratio {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=16_700_000, help="elements of each float32 tensor")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-gold", action="store_true", help="compare without a float64 gold")
    parser.add_argument("--layout", choices=["coo", "csr", "csc", "duplicates"], help="compare sparse tensors")
    parser.add_argument("--stored", type=float, default=0.01, help="share of a sparse tensor's elements that is stored")
    parser.add_argument("--pairs", type=int, help="compare so many small pairs")
    parser.add_argument("--cases", action="store_true", help="compare pairs of other strides and dtypes")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.pairs:
        side_by_side(small_pairs(options.pairs), options.rounds, 1e6 / options.pairs, "us a pair")
    if options.cases:
        side_by_side(large_pairs(options.elements), options.rounds, 1e3, "ms")
    if options.pairs or options.cases:
        return
    if options.layout:
        pair = [sparse(options.layout, options.elements, options.stored) for _ in range(2)]
        compare_tensors(torch.eye(9).to_sparse(), torch.eye(9))
        for _ in range(options.rounds):
            began = time.process_time()
            compare_tensors(*pair)
            middle = time.process_time()
            compare_tensors(*(tensor.to_dense() for tensor in pair))
            ours, whole = middle - began, time.process_time() - middle
            print(f"sparse {ours:.2f} s, made dense {whole:.2f} s, ratio {ours / whole:.2f}", flush=True)
        return
    gold = torch.randn(options.elements, dtype=torch.float64)
    reference = gold.float() * (1 + 1e-6 * torch.randn(options.elements))
    test = reference * (1 + 1e-6 * torch.randn(options.elements))
    judge = None if options.no_gold else gold
    compare_tensors(reference[:10], test[:10])
    for _ in range(options.rounds):
        began = time.process_time()
        compare_tensors(reference, test, gold=judge)
        middle = time.process_time()
        plain_began = time.process_time()
        plain(reference, test, judge)
        ours, bare = middle - began, time.process_time() - plain_began
        print(f"compare_tensors {ours:.2f} s, plain torch {bare:.2f} s, ratio {ours / bare:.2f}", flush=True)


if __name__ == "__main__":
    main()
