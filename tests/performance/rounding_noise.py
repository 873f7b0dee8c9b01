"""How far eager and clean TorchInductor are from gold, over the noise of references that round otherwise.

Usage: ``python tests/performance/rounding_noise.py [--model resnet18 bert ssm] [--mode inference training]
[--dtype float32 bfloat16] [--runs 3]``. Prints a line for each case and kind of tensor: how many, and of their RMS
over that of the runs the least, the middle and the largest, of eager and of TorchInductor; and the CPU time of a run
over an eager step's. Tensors in which a run took another branch (its RMS is above 4 times the least run's) are counted
and left out.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from detection import BUILDS

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.sides.gold import gold_side
from inductor_debug.stages.sides.mirrored import one_step
from inductor_debug.stages.sides.rounded import rounded_reference
from inductor_debug.stages.sides.running import Side, run_side

INDUCTOR = BackendConfig("inductor", "inductor_debug.stages.backends.inductor.InductorAdapter")


def timed(run: Callable[[], Side]) -> tuple[Side, float]:
    """What it gives, and its CPU seconds."""
    began = time.process_time()
    side = run()
    if side.error:
        raise RuntimeError(side.error["message"])
    return side, time.process_time() - began


def rms(side: Side, gold: Side, kind: str, path: str) -> float:
    """A tensor's distance from gold."""
    return (side.leaves[kind][path].double() - gold.leaves[kind][path]).square().mean().sqrt().item()


def study(model: str, mode: str, dtype: str, runs: int) -> None:
    """Print the lines of one case."""
    case = build_case(ModelConfig(model, BUILDS[model]), mode=mode, dtype=dtype)
    compiled = compile_case(case, build_adapter(INDUCTOR))
    one_step("warm up", case)
    eager, seconds = timed(lambda: one_step("eager", case))
    gold = gold_side(case, wanted=True, drew=eager.drew)
    inductor, _ = timed(lambda: run_side("inductor", case, lambda: compiled))
    others, costs = zip(
        *(timed(lambda number=number: rounded_reference(case, number, one_step)) for number in range(runs)), strict=True
    )
    print(f"{model} {mode} {dtype}: a run takes {statistics.median(costs) / seconds:.3g} eager steps of CPU time")
    ratios, branched = defaultdict(list), defaultdict(int)
    for kind, leaves in gold.leaves.items():
        for path, leaf in leaves.items():
            if not leaf.is_floating_point() or not leaf.numel():
                continue
            noise = [rms(other, gold, kind, path) for other in others]
            if leaf.numel() > 1 and max(noise) > 4 * min(noise):
                branched[kind] += 1
                continue
            floor = max(
                statistics.fmean(value**2 for value in noise) ** 0.5,
                case.unit_roundoff * leaf.square().mean().sqrt().item(),
            )
            if floor:
                ratios[kind].append([rms(side, gold, kind, path) / floor for side in (eager, inductor)])
    for kind, found in ratios.items():
        told = [
            f"{name} {min(part):.2f} {statistics.median(part):.2f} {max(part):.2f}"
            for name, part in zip(("eager", "inductor"), zip(*found, strict=True), strict=True)
        ]
        print(f"  {kind:9} {len(found):3}, {', '.join(told)}; another branch in {branched[kind]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["resnet18", "bert", "ssm"])
    parser.add_argument("--mode", nargs="+", default=["inference", "training"])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for model in options.model:
        for mode in options.mode:
            for dtype in options.dtype:
                torch.compiler.reset()
                study(model, mode, dtype, options.runs)


if __name__ == "__main__":
    main()
