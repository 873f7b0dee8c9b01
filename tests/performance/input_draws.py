"""What further draws of the inputs add to the stage ``kerneldiff``, compilation apart.

In one process a model is built and compiled by TorchInductor. Then the stage runs in turn with one draw and with the
default, on what was compiled; the first round is not counted. Prints the CPU seconds of each, and the ratio of their
medians.

Usage: ``python tests/performance/input_draws.py [--model bert] [--mode inference] [--dtype float32] [--rounds 3]``.
"""

import argparse
import statistics
import time

from detection import BUILDS

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.compiled import compiled_case
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=list(BUILDS), default="bert")
    parser.add_argument("--mode", choices=["inference", "training"], default="inference")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    context = compiled_context(options.model, options.mode, options.dtype)
    taken: dict[str, list[float]] = {"one draw": [], "default": []}
    for index in range(options.rounds + 1):
        for name, draws in (("one draw", 1), ("default", None)):
            seconds = cpu_seconds(name, context, KernelDiffConfig(draws=draws))
            taken[name] += [seconds] if index else []
    one, default = (statistics.median(seconds) for seconds in taken.values())
    print(f"{options.model} {options.mode} {options.dtype}: {one:.2f} s, {default:.2f} s, {default / one:.2f} times")


def compiled_context(name: str, mode: str, dtype: str) -> StageContext:
    """A stage's context with a model that TorchInductor compiled."""
    model = ModelConfig(name, BUILDS[name])
    case = build_case(model, mode=mode, dtype=dtype, device="cpu", seed=0)
    backend = BackendConfig("inductor", "inductor_debug.stages.backends.inductor.InductorAdapter")
    settings = Settings(model, backend=backend, mode=mode, dtype=dtype)
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    compiled_case(context)
    return context


def cpu_seconds(name: str, context: StageContext, config: KernelDiffConfig) -> float:
    """CPU seconds of the stage; what it said is printed."""
    began = time.process_time()
    result = KernelDiffStage(config).run(context)
    seconds = time.process_time() - began
    print(f"{name}: {seconds:.2f} s, {result.message}", flush=True)
    return seconds


if __name__ == "__main__":
    main()
