"""The mock backends' first call on BERT over that of torch's own backends that execute alike, in fresh processes.

Usage: ``python tests/performance/mock_first_call.py [--runs 12] [--pairs eager:mock ...] [--layers 12]``. Rounds as in
:mod:`side_by_side`. Each process imports torch and transformers, builds BertModel (random weights, batch 1, 128 tokens,
inference) and runs it once without compiling. The figure is then the CPU seconds (user + system) of ``torch.compile``
and the first call. ``whole`` is the CPU of the process from its start to the end of that call. Prints one JSON line a
pair.

``own_share``: in ``--own`` further processes of each test backend, the CPU of its import and of its call, as a share of
the rest of the first call. (What ``aot_mock`` is called for holds AOTAutograd too.)

Profiles: ``mock`` (the default; strict, BERT keeps it) and ``keeps``: alignment 8, dtypes, memory and operations, in
warning mode, which BERT keeps too. A backend is written ``name`` or ``name+profile``.
"""

import argparse
import json
import statistics

import side_by_side

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12, help="rounds of each pair")
    parser.add_argument("--layers", type=int, default=12, help="BERT's layers")
    parser.add_argument("--pairs", nargs="+", default=DEFAULT_PAIRS, help="reference:test")
    parser.add_argument("--own", type=int, default=3, help="further processes of each test backend, for its own work")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.layers, options.timed)
        return
    script = [__file__, "--layers", str(options.layers), "--child"]
    with side_by_side.environment() as variables:
        for pair in options.pairs:
            reference, test = pair.split(":")
            found = side_by_side.compare(
                [*script, reference], [*script, test], rounds=options.runs, variables=variables
            )
            timed = [*script, test, "--timed"]
            core = side_by_side.core_pairs()[0][0]
            own = [side_by_side.finish(side_by_side.start(timed, variables, core)) for _ in range(options.own)]
            shares = [item["own_cpu_s"] / (item["first_cpu_s"] - item["own_cpu_s"]) for item in own]
            share = round(statistics.median(shares), 3) if shares else None
            print(json.dumps({"pair": pair, "own_share": share, **found}), flush=True)


if __name__ == "__main__":
    main()
