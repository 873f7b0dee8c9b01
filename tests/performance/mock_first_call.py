"""The mock backends' first call on BERT over that of torch's own backends that execute alike, in fresh processes.

Usage: ``python tests/performance/mock_first_call.py [--runs 12] [--pairs eager:mock ...] [--layers 12]``. A round runs
the two backends of a pair side by side, each on a core of its own and with one thread, and the cores change hands each
round: what else the machine does, and how fast it happens to be, then falls on both. (In turns, samples of one backend
differed by a quarter.) One round is not counted. Bytecode is cached, as after an installation, in a folder of its own.
Each process imports torch and transformers, builds BertModel (random weights, batch 1, 128 tokens, inference), runs it
once without compiling, and then takes the figure: CPU seconds (user + system) of ``torch.compile`` and the first call.
``whole`` is the CPU of the process from its start to the end of that call. Prints one JSON line a pair: every round's
ratio of first calls, the median of them with the 95 % interval of that median (by order statistics), and the medians
of the seconds.

``own_share``: in ``--own`` further processes of each test backend, the CPU of its import and of its call, as a share of
the rest of the first call. (What ``aot_mock`` is called for holds AOTAutograd too.)

Profiles: ``mock`` (the default; strict, BERT keeps it) and ``keeps``: alignment 8, dtypes, memory and operations, in
warning mode, which BERT keeps too. A backend is written ``name`` or ``name+profile``.
"""

import argparse
import json
import math
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


def start(name: str, layers: int, environment: dict[str, str], core: int, *options: str) -> subprocess.Popen:
    """One first call in a process of its own on ``core``."""
    command = [sys.executable, "-P", __file__, "--layers", str(layers), "--core", str(core), "--child", name, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen) -> dict[str, float]:
    """The figures that the process prints; this program ends with its error if it failed."""
    printed, error = process.communicate()
    if process.returncode:
        sys.exit(error)
    return json.loads(printed.splitlines()[-1])


def interval(values: list[float]) -> list[float] | None:
    """The 95 % interval of the median: the order statistics that the binomial distribution names; None below 6."""
    ordered, n = sorted(values), len(values)
    tail, lowest = 0.5**n, 0
    while tail + math.comb(n, lowest + 1) * 0.5**n <= 0.025:
        lowest += 1
        tail += math.comb(n, lowest) * 0.5**n
    return [round(ordered[lowest], 3), round(ordered[n - 1 - lowest], 3)] if n >= 6 else None


def compare(pair: str, options: argparse.Namespace, environment: dict[str, str], cores: list[int]) -> dict:
    """One pair's line."""
    names = pair.split(":")
    rounds = []
    for turn in range(options.runs + 1):
        order = cores if turn % 2 else cores[::-1]
        running = [start(name, options.layers, environment, core) for name, core in zip(names, order, strict=True)]
        rounds.append([finish(process) for process in running])
    rounds = rounds[1:]
    ratios = [test["first_cpu_s"] / reference["first_cpu_s"] for reference, test in rounds]
    own = [finish(start(names[1], options.layers, environment, cores[0], "--timed")) for _ in range(options.own)]
    shares = [item["own_cpu_s"] / (item["first_cpu_s"] - item["own_cpu_s"]) for item in own]
    seconds = {
        name: {key: round(statistics.median(item[side][key] for item in rounds), 3) for key in rounds[0][side]}
        for side, name in enumerate(names)
    }
    return {
        "pair": pair,
        "ratio": round(statistics.median(ratios), 3),
        "interval": interval(ratios),
        "own_share": round(statistics.median(shares), 3) if shares else None,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "medians": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12, help="rounds of each pair")
    parser.add_argument("--layers", type=int, default=12, help="BERT's layers")
    parser.add_argument("--pairs", nargs="+", default=DEFAULT_PAIRS, help="reference:test")
    parser.add_argument("--own", type=int, default=3, help="further processes of each test backend, for its own work")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, {options.core})
        child(options.child, options.layers, options.timed)
        return
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("this process may use one core; two are needed, to run the backends of a pair side by side")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for pair in options.pairs:
            print(json.dumps(compare(pair, options, environment, cores)), flush=True)


if __name__ == "__main__":
    main()
