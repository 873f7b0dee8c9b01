"""What the shares of the final error cost in memory: ``python tests/trials/shares_memory.py [BACKEND …]``.

A training step of BERT with random weights is taken in eager, and looked at with shares by each BACKEND (``aot_eager``
and ``inductor``, if none is named). Each is a process of its own. It prints a line each: the largest memory of the
process, how often that is eager's, processor time, and the closure. ``--layers 4 --batch 16 --sequence 128`` says how
large the model and its inputs are. The C library is told to give back at once what is freed, so that the memory is what
is in use; else it keeps more the more a process does.
"""

import argparse
import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from inductor_debug import localize
from inductor_debug.models.case import Case
from inductor_debug.models.compat import prepare_torchvision

EAGER = "eager"


def measured(backend: str, options: argparse.Namespace) -> tuple[float, float, float | None]:
    """Megabytes, seconds of processor time and the closure; to be run in a process of its own."""
    prepare_torchvision()
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=options.layers)
    module = transformers.BertModel(config).train()
    inputs: dict[str, Any] = {"input_ids": torch.randint(0, config.vocab_size, (options.batch, options.sequence))}
    began, closure = time.process_time(), None
    if backend == EAGER:
        Case.of(module, (), inputs, "training").step()
    else:
        closure = localize(module, (), inputs, backend=backend, mode="training").localization.closure
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return peak, time.process_time() - began, closure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=128)
    options = parser.parse_args()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "1000000"  # read by processes that are started
    least = None
    for backend in (EAGER, *(options.backends or ("aot_eager", "inductor"))):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            peak, seconds, closure = pool.submit(measured, backend, options).result()
        least = least or peak
        told = "" if closure is None else f", closure {closure:.4f}"
        print(f"{backend}: {peak:.0f} MB, {peak / least:.2f} of eager, {seconds:.0f} s{told}", flush=True)


if __name__ == "__main__":
    main()
