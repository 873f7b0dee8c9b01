"""CPU time of ``compare_tensors`` over plain torch's ``assert_close`` and the main figures, in one process.

Usage: ``python tests/performance/compare.py [--elements 16700000] [--rounds 3] [--no-gold]``. Prints CPU seconds (user
and system, all threads) of both sides and their ratio for each round. With ``--layout csc`` (coo, csr, csc, duplicates;
``--stored 0.01``) compares two sparse tensors instead, as they are and after they were made dense.
"""

import argparse
import math
import time

import torch

from inductor_debug.stages.numerics.comparison import compare_tensors


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=16_700_000, help="elements of each float32 tensor")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-gold", action="store_true", help="compare without a float64 gold")
    parser.add_argument("--layout", choices=["coo", "csr", "csc", "duplicates"], help="compare sparse tensors")
    parser.add_argument("--stored", type=float, default=0.01, help="share of a sparse tensor's elements that is stored")
    options = parser.parse_args()
    torch.manual_seed(0)
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
