"""What localization costs, in runs of the model in float64: ``python tests/trials/localization_cost.py [BACKEND …]``.

BERT with random weights is run in float64, and looked at behind each BACKEND (``aot_eager``, if none is named), in
inference and in training. Each is a process of its own, of one thread. It prints a line each: the processor time of a
run in float64 (in training, a step), how often that each part of localization takes, and the closure. ``--layers 12
--batch 4 --sequence 128`` says how large the model and its inputs are.
"""

import argparse
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from inductor_debug import localize
from inductor_debug.models.case import Case
from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.stages.localize import engine

PARTS = {"_look": "checking", "_accounted": "shares", "_decomposed": "decompositions"}
"""Methods of the engine whose time is told."""


def timed(spent: dict[str, float], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which adds the processor time that it takes."""

    def run(*args: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return method(*args, **options)
        finally:
            spent[name] += time.process_time() - began

    return run


def measured(backend: str, mode: str, options: argparse.Namespace) -> tuple[float, dict[str, float], float | None]:
    """Seconds of processor time of a run in float64 and of each part, and the closure; in a process of its own."""
    prepare_torchvision()
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=options.layers)
    module = transformers.BertModel(config).train(mode == "training").to(getattr(torch, options.dtype))
    inputs: dict[str, Any] = {"input_ids": torch.randint(0, config.vocab_size, (options.batch, options.sequence))}
    spent: dict[str, float] = defaultdict(float)
    for name, part in PARTS.items():
        setattr(engine.Engine, name, timed(spent, part, getattr(engine.Engine, name)))
    found = localize(module, (), inputs, backend=backend, mode=mode)
    case = Case.of(module.double(), (), inputs, mode)
    case.step()
    began = time.process_time()
    case.step()
    return time.process_time() - began, dict(spent), found.localization.closure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--modes", nargs="+", default=["inference", "training"])
    options = parser.parse_args()
    for backend in options.backends or ["aot_eager"]:
        for mode in options.modes:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                gold, spent, closure = pool.submit(measured, backend, mode, options).result()
            told = ", ".join(f"{part} {seconds / gold:.1f}" for part, seconds in spent.items())
            closed = "" if closure is None else f", closure {closure:.4f}"
            print(f"{backend} {mode}: float64 {gold:.1f} s; {told}{closed}", flush=True)


if __name__ == "__main__":
    main()
