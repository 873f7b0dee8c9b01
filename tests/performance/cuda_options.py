"""Whether the benchmark's options for CUDA do what they say, on a CUDA device.

- ``flush_l2``: the sum of a buffer of a quarter of the L2 cache is timed by CUDA events, with a flush before it and
  without. It has to be slower with it.
- ``cuda_graphs``: the stage times a small model with many short kernels, in inference and in training. Each process
  has to record a graph, and eager stays as it is. Beside it the same without, and with L2 flushed.

Usage: ``python tests/performance/cuda_options.py [--processes 2]``. Prints a line for each; exit code 1 where one does
not hold.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from inductor_debug.stages.benchmark.calls import L2Flush

TARGET = "cuda_options.deep"


def deep() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Forty layers of 64 by 64: the host's launches take longer than the device's work."""
    layers = [layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers), (torch.randn(8, 64),)


def sum_ms(flush: L2Flush | None) -> float:
    """Median milliseconds of the device for the sum of a buffer that fits into L2."""
    size = torch.cuda.get_device_properties(0).L2_cache_size // 4
    buffer, times = torch.ones(size // 4, device="cuda"), []
    for _ in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if flush is not None:
            flush.queue()
        torch.cuda._sleep(1_000_000)  # the host is ahead of the device in either case: the events time no launch
        begin.record()
        buffer.sum()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[10:])


def benchmark(*words: str) -> dict[str, Any]:
    """``benchmark`` of the summary of one run of the stage."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "inductor_debug.pipeline", "model=custom", f"model.build._target_={TARGET}",
                   "model.name=deep", "device=cuda", "stages=[lower,benchmark]", f"hydra.run.dir={folder}/run",
                   *words]  # fmt: skip
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        found: dict[str, Any] = json.loads(Path(folder, "run", "summary.json").read_text())["benchmark"]
    return found


def main() -> int:
    """Print what was measured; 1 where an option did not do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    warm, flushed = sum_ms(None), sum_ms(L2Flush(torch.device("cuda", 0)))
    print(f"sum of a quarter of L2: {warm:.4f} ms in it, {flushed:.4f} ms flushed")
    holds = flushed > warm
    for mode in ("inference", "training"):
        for words in ([], ["stages.benchmark.cuda_graphs=true"], ["stages.benchmark.flush_l2=true"]):
            found = benchmark(f"mode={mode}", f"stages.benchmark.processes={options.processes}", *words)
            sides = [f"{side} {found[side]['median_ms']:.3f} ms, device {found[side]['device_ms']:.3f} ms"
                     for side in ("reference", "test")]  # fmt: skip
            graphs, l2 = found.get("cuda_graphs"), found.get("l2_flushed")
            print(f"{mode} {' '.join(words) or 'as it is'}: {'; '.join(sides)}; CUDA graphs {graphs}, L2 flushed {l2}, "
                  f"not established: {found['not_established']}")  # fmt: skip
            holds = holds and bool(graphs) == any("cuda_graphs" in word for word in words)
            holds = holds and bool(l2) == any("flush_l2" in word for word in words)
    print("both options do what they say" if holds else "an option does not do what it says")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
