"""What recording a compilation costs: the CPU time of BERT's compilation by Inductor, bare and by the lower stage.

Usage: ``python tests/performance/lowering.py [--runs 6] [--layers 12] [--mode training] [--caches]``. Rounds as in
:mod:`side_by_side`, each process with an empty compiler cache of its own and compiling in one thread. The figures are
CPU seconds (user + system) of the first step: ``cpu_s`` with the C++ compiler that Inductor starts, ``python_cpu_s``
without it. The reference is ``torch.compile(model, backend="inductor")`` with the same options, the test the lower
stage with the captured graphs of a process before, its files' contents included. The lower stage keeps no graph in a
cache; nor does the reference, unless ``--caches``. Prints a JSON line.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import side_by_side

CAPTURED = "LOWERING_CAPTURED"
"""Environment variable: the file of the captured graphs, by path in a run."""


def child(kind: str, layers: int, mode: str) -> None:
    """One cold compilation in this process; prints its figure as JSON."""
    import resource

    import torch

    from inductor_debug.models.build import build_case
    from inductor_debug.models.config import ModelConfig
    from inductor_debug.stages.contract import MemoryArtifacts, StageContext
    from inductor_debug.stages.lower.config import LowerConfig
    from inductor_debug.stages.lower.stage import LowerStage
    from inductor_debug.stages.settings import BackendConfig, Settings

    build = {"_target_": "models.bert.build", "layers": layers}
    case = build_case(ModelConfig("bert", build), mode=mode)
    case.step(case.module)
    if kind == "capture":
        from inductor_debug.stages.capture.compilation import capture

        graphs = {f"capture/graphs/{graph.id}.json": graph.to_json() for graph in capture(case, None).graphs}
        Path(os.environ[CAPTURED]).write_text(json.dumps(graphs))
        print("{}")
        return
    captured = json.loads(Path(os.environ[CAPTURED]).read_text()) if kind == "lower" else {}

    def spent() -> list[float]:
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return [item.ru_utime + item.ru_stime for item in usage]

    began = spent()
    if kind == "bare":
        case.step(torch.compile(case.module, backend="inductor", options={"fallback_random": True}))
    else:
        settings = Settings(ModelConfig("bert", build), backend=BackendConfig(), mode=mode)
        artifacts = MemoryArtifacts(captured)
        result = LowerStage(LowerConfig()).run(StageContext(settings, artifacts, {"case": case}))
        artifacts.add(result)
    python, compiler = (after - before for before, after in zip(began, spent(), strict=True))
    print(json.dumps({"cpu_s": python + compiler, "python_cpu_s": python}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6, help="rounds")
    parser.add_argument("--layers", type=int, default=12, help="BERT's layers")
    parser.add_argument("--mode", default="training", choices=("training", "inference"))
    parser.add_argument("--caches", action="store_true", help="the reference keeps its graphs in torch's caches")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.layers, options.mode)
        return
    script = [__file__, "--layers", str(options.layers), "--mode", options.mode, "--child"]
    with side_by_side.environment() as variables, tempfile.TemporaryDirectory() as folder:
        variables |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", CAPTURED: str(Path(folder, "captured.json"))}
        if not options.caches:
            variables |= {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
        side_by_side.finish(side_by_side.start([*script, "capture"], variables, side_by_side.core_pairs()[0][0]))
        found = side_by_side.compare(
            [*script, "bare"],
            [*script, "lower"],
            rounds=options.runs,
            variables=variables,
            cold="TORCHINDUCTOR_CACHE_DIR",
        )
    print(json.dumps({"mode": options.mode, "layers": options.layers, "caches": options.caches, **found}))


if __name__ == "__main__":
    main()
