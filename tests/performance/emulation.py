"""BERT's forward emulated over the same in eager: CPU time, interleaved, medians.

Usage: ``python tests/performance/emulation.py [--rounds 5] [--format bfloat16] [--accumulate bfloat16 --block 64]``.
Prints the ratio with a storage format and rounded weights cached, and, apart, with narrow accumulation as well.
"""

import argparse
import statistics
import time

import torch

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig
from inductor_debug.stages.backends.emulated import EmulatedAdapter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", default="bfloat16", help="storage format of float32")
    parser.add_argument("--accumulate", default="bfloat16", help="format of partial sums, for the second figure")
    parser.add_argument("--block", type=int, default=64, help="terms between two roundings of a partial sum")
    options = parser.parse_args()
    case = build_case(
        ModelConfig("bert", {"_target_": "models.bert.build"}, batch_size=1, sequence_length=128),
        dtype="float32", device="cpu", mode="inference", precision="cast", tf32="none", seed=0,
    )  # fmt: skip
    storage = {"float32": options.format}
    numerics = {
        f"{options.format} storage": NumericsConfig(storage=storage),
        f"{options.format} storage, sums in {options.accumulate} every {options.block} terms": NumericsConfig(
            storage=storage, accumulate=options.accumulate, accumulate_block=options.block
        ),
    }
    calls = {"eager": case.module}
    for name, config in numerics.items():
        torch._dynamo.reset_code_caches() if hasattr(torch._dynamo, "reset_code_caches") else None
        adapter = EmulatedAdapter(AccelConfig("measured", numerics=config))
        calls[name] = torch.compile(case.module, backend=adapter.dynamo_backend())
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(options.rounds + 1):
        for name, call in calls.items():
            began = time.process_time()
            case.step(call)
            if index:  # the first call compiles and rounds the weights
                seconds[name].append(time.process_time() - began)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name}: {median * 1e3:.0f} ms CPU, {median / medians['eager']:.2f} times eager", flush=True)


if __name__ == "__main__":
    main()
