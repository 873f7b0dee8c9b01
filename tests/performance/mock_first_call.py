"""The mock backends' first call on BERT over that of torch's own backends that execute alike, in fresh processes.

Usage: ``python tests/performance/mock_first_call.py [--runs 5] [--pairs eager:mock ...] [--layers 12]``. The backends
take turns, each second round in the other order, after one round that is not counted. Bytecode is cached, as after an
installation, in a folder of its own. Each process imports torch and transformers, builds BertModel (random weights,
batch 1, 128 tokens, inference), runs it once without compiling, and then takes the figure: CPU seconds (user + system,
all threads) of ``torch.compile`` and the first call. ``whole`` is the CPU of the process from its start to the end of
that call. Prints one JSON line a backend with the median and every sample, and one with the ratio of medians a pair.

Where samples differ by more than the ratio does, ``own_share`` tells more: in ``--own`` further processes of each test
backend, the CPU of its import and of its call, as a share of the rest of the first call. (What ``aot_mock`` is called
for holds AOTAutograd too.)

Profiles: ``mock`` (the default; strict, BERT keeps it) and ``keeps``: alignment 8, dtypes, memory and operations, in
warning mode, which BERT keeps too. A backend is written ``name`` or ``name+profile``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

DEFAULT_PAIRS = ("eager:mock", "eager:mock+keeps", "aot_eager:aot_mock")
KEEPS = {"profile": "warn8", "dtypes": ["float32", "int64", "bool"], "max_tensor_bytes": 1 << 34,
         "denied": ["aten.convolution", "aten.*lu*", "aten.prelu"]}  # fmt: skip


def measure_own() -> dict[str, float]:
    """From now on, the CPU seconds of importing a backend of an installed package and of its calls, as they add up."""
    import functools
    import importlib.metadata
    import time

    spent = {"own_cpu_s": 0.0}
    load = importlib.metadata.EntryPoint.load

    def timed(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent["own_cpu_s"] += time.process_time() - began

        return call

    importlib.metadata.EntryPoint.load = timed(lambda entry: timed(load(entry)))
    return spent


def child(backend: str, layers: int, own: bool) -> None:
    """One first call in this process; prints its figures as JSON."""
    import time

    import torch

    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(vocab_size=119_547, num_hidden_layers=layers)
    model = BertModel(config).eval()
    inputs = {
        "input_ids": torch.randint(0, config.vocab_size, (1, 128)),
        "attention_mask": torch.ones(1, 128, dtype=torch.int64),
    }
    name, _, profile = backend.partition("+")
    options = {"options": KEEPS} if profile == "keeps" else {}
    spent = measure_own() if own else {}
    with torch.no_grad():
        model(**inputs)
        before, wall = time.process_time(), time.perf_counter()
        torch.compile(model, backend=name, **options)(**inputs)
        first, wall = time.process_time() - before, time.perf_counter() - wall
    print(json.dumps({"first_cpu_s": first, "first_wall_s": wall, "whole_cpu_s": time.process_time()} | spent))


def fresh(name: str, layers: int, environment: dict[str, str], *options: str) -> dict[str, float]:
    """One first call in a process of its own."""
    command = [sys.executable, "-P", __file__, "--layers", str(layers), "--child", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="fresh processes of each backend")
    parser.add_argument("--layers", type=int, default=12, help="BERT's layers")
    parser.add_argument("--pairs", nargs="+", default=DEFAULT_PAIRS, help="reference:test")
    parser.add_argument("--own", type=int, default=3, help="further processes of each test backend, for its own work")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.layers, options.timed)
        return
    pairs = [tuple(pair.split(":")) for pair in options.pairs]
    backends = list(dict.fromkeys(name for pair in pairs for name in pair))
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in backends}
    own: dict[str, list[dict[str, float]]] = {test: [] for _, test in pairs}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(options.runs + 1):
            for name in backends if turn % 2 else reversed(backends):
                found = fresh(name, options.layers, environment)
                if turn:
                    samples[name].append(found)
        for test in own:
            own[test] = [fresh(test, options.layers, environment, "--timed") for _ in range(options.own)]
    medians = {}
    for name, found in samples.items():
        medians[name] = {key: statistics.median(item[key] for item in found) for key in found[0]}
        spread = [round(item["first_cpu_s"], 3) for item in found]
        print(json.dumps({"backend": name, **{k: round(v, 3) for k, v in medians[name].items()}, "samples": spread}))
    for reference, test in pairs:
        ratios = {key: round(medians[test][key] / medians[reference][key], 3) for key in medians[test]}
        shares = [item["own_cpu_s"] / (item["first_cpu_s"] - item["own_cpu_s"]) for item in own[test]]
        ratios["own_share"] = round(statistics.median(shares), 3) if shares else None
        print(json.dumps({"test": test, "reference": reference, "ratio": ratios}))


if __name__ == "__main__":
    main()
