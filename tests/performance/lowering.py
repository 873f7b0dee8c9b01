"""What recording a compilation costs: the CPU time of BERT's compilation by Inductor, bare and by the lower stage.

Usage: ``python tests/performance/lowering.py [--runs 3] [--layers 12] [--mode training]``. Each process is fresh, with
an empty compiler cache; the two take turns, each second round in the other order. The figure is CPU seconds (user +
system, children included) of the first step: ``bare`` is ``torch.compile(model, backend="inductor")`` with the same
options, ``lower`` the lower stage, its files' contents included. Prints one JSON line a kind, and the ratio of medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def child(kind: str, layers: int, mode: str) -> None:
    """One cold compilation in this process; prints its figure as JSON."""
    import resource

    import torch

    from models.build import build_case
    from models.config import ModelConfig
    from stages.contract import MemoryArtifacts, Settings, StageContext
    from stages.lower.config import BackendConfig, LowerConfig
    from stages.lower.stage import LowerStage

    build = {"_target_": "models.bert.build", "layers": layers}
    case = build_case(ModelConfig("bert", build), mode=mode)
    case.step(case.module)

    def spent() -> float:
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(item.ru_utime + item.ru_stime for item in usage)

    began = spent()
    if kind == "bare":
        case.step(torch.compile(case.module, backend="inductor", options={"fallback_random": True}))
    else:
        settings = Settings(ModelConfig("bert", build), backend=BackendConfig(), mode=mode)
        artifacts = MemoryArtifacts()
        result = LowerStage(LowerConfig()).run(StageContext(settings, artifacts, {"case": case}))
        artifacts.add(result)
    print(json.dumps({"cpu_s": spent() - began}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="fresh processes of each kind")
    parser.add_argument("--layers", type=int, default=12, help="BERT's layers")
    parser.add_argument("--mode", default="training", choices=("training", "inference"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.layers, options.mode)
        return
    samples: dict[str, list[float]] = {"bare": [], "lower": []}
    for turn in range(options.runs):
        for kind in samples if turn % 2 else reversed(samples):
            with tempfile.TemporaryDirectory() as cache:
                environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
                command = [sys.executable, "-P", __file__, "--layers", str(options.layers), "--mode", options.mode]
                done = subprocess.run([*command, "--child", kind], capture_output=True, text=True, env=environment)
            if done.returncode:
                sys.exit(done.stderr)
            samples[kind].append(json.loads(done.stdout.splitlines()[-1])["cpu_s"])
    medians = {kind: statistics.median(found) for kind, found in samples.items()}
    for kind, found in samples.items():
        print(
            json.dumps({"kind": kind, "cpu_s": round(medians[kind], 2), "samples": [round(item, 2) for item in found]})
        )
    print(json.dumps({"ratio": round(medians["lower"] / medians["bare"], 3)}))


if __name__ == "__main__":
    main()
