"""What planting faults (``stages.kerneldiff.sensitivity``) adds to the stage ``kerneldiff``, compilation apart.

In one process a model is built and compiled by TorchInductor. The stage runs twice without and then once with planted
faults, on what was compiled. Prints the CPU seconds of the last two, and their ratio.

Usage: ``python tests/performance/sensitivity.py [--model resnet18] [--mode inference] [--dtype float32] [--sites 5]``.
"""

import argparse

from detection import BUILDS
from input_draws import compiled_context, cpu_seconds

from inductor_debug.stages.kerneldiff.config import KernelDiffConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=list(BUILDS), default="resnet18")
    parser.add_argument("--mode", choices=["inference", "training"], default="inference")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sites", type=int, default=KernelDiffConfig.sensitivity_sites)
    options = parser.parse_args()
    context = compiled_context(options.model, options.mode, options.dtype)
    cpu_seconds("first", context, KernelDiffConfig())
    without = cpu_seconds("without", context, KernelDiffConfig())
    planted = cpu_seconds("with", context, KernelDiffConfig(sensitivity=True, sensitivity_sites=options.sites))
    case = f"{options.model} {options.mode} {options.dtype}"
    print(f"{case}: {without:.2f} s, {planted:.2f} s, {planted / without:.1f} times")


if __name__ == "__main__":
    main()
