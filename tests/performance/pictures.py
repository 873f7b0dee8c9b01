"""CPU time and extra memory of everything that is drawn of one pair of tensors.

Usage: ``python tests/performance/pictures.py [--elements 100000000] [--rounds 1]``. For each shape prints CPU seconds
(user and system, all threads) of the picture, and by how much the process's peak memory (VmHWM, Linux) rose above
what it held with both tensors. matplotlib is imported, and a small picture drawn, before.
"""

import argparse
import time
from pathlib import Path

import torch

from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures.plots import draw

SHAPES: list[tuple[int, ...]] = [
    (100_000_000,), (10_000, 10_000), (64, 1250, 1250), (100, 100, 100, 100), (50_000_000, 2),
]  # fmt: skip


def status(field: str) -> float:
    """A field of this process's ``/proc/self/status`` in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(name: str, reference: torch.Tensor, test: torch.Tensor) -> None:
    row = TensorComparison("output", name, list(reference.shape), "float32", "defect", atol=1e-5, rtol=1e-6)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held, began = status("VmRSS"), time.process_time()
    size = len(draw(reference, test, row))
    taken, extra = time.process_time() - began, status("VmHWM") - held
    print(f"{name:32} {taken:6.2f} s CPU {extra:7.1f} MiB extra, {size} bytes of PNG", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=100_000_000, help="at most so many, by a shorter first dim")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    reference = torch.randn(min(options.elements, 100_000_000))
    test = torch.randn(len(reference)).mul_(1e-6).add_(1).mul_(reference)
    measure("a small one before", reference[:1000].view(10, 100), test[:1000].view(10, 100))
    for _ in range(options.rounds):
        for shape in SHAPES:
            inner = torch.Size(shape[1:]).numel()
            count = min(shape[0], len(reference) // inner)
            pair = [side[: count * inner].view(count, *shape[1:]) for side in (reference, test)]
            measure(str(list(pair[0].shape)), *pair)
            if len(shape) == 4:
                pair = [side.contiguous(memory_format=torch.channels_last) for side in pair]
                measure(f"{list(pair[0].shape)} channels last", *pair)
            del pair


if __name__ == "__main__":
    main()
