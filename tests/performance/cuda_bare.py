"""Latency and peak memory of one model on CUDA, eager and TorchInductor, in one fresh process, without this project.

The other half of ``cuda_agreement.py``. It imports torch, transformers and torchvision; of this project only the model
under test, ``models/ssm.py``, where that is asked for. In one process it samples both sides in turn, as
the pipeline does: 3 warm-up steps of each, then rounds of one step of each.

- wall: the clock around a call and the device's synchronization
- events: CUDA events around a call that was queued while the device was busy, so that it does not wait for the host
- both once TorchInductor's compile workers have ended, as in the pipeline
- memory: ``max_memory_allocated`` over one step of the side that the process began with, before the other was run

Usage: ``python tests/performance/cuda_bare.py bert|resnet18|ssm [--first eager|inductor] [--rounds 20] [--wait]``.
Prints one JSON line: side → ``wall_ms`` and ``events_ms`` (medians), ``samples`` and ``device_samples`` (all of
either), and of the first side ``peak_bytes``.
With ``--wait`` it prints ``ready`` before it samples, begins at a line on its input, and ends at the input's end.
"""

import argparse
import json
import select
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._inductor.async_compile import shutdown_compile_workers

SIDES = ("eager", "inductor")


def bert() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """bert-base-multilingual-cased's architecture with random weights, 128 tokens of two types, padded."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=119_547)
    tokens = torch.randint(config.vocab_size, (1, 128))
    places = torch.arange(128)[None]
    inputs = {"input_ids": tokens, "attention_mask": (places < 96).long(), "token_type_ids": (places >= 64).long()}
    return BertModel(config), (), inputs


def resnet18() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """torchvision's ResNet-18 with random weights, one image of 224 x 224."""
    import torchvision

    return torchvision.models.resnet18(weights=None), (torch.randn(1, 3, 224, 224),), {}


def ssm() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The state-space model of ``models/ssm.py`` with its configuration's sizes, 128 tokens."""
    sys.path.append(str(Path(__file__).parents[2]))
    from inductor_debug.models.ssm import SelectiveStateSpaceModel, SSMConfig

    config = SSMConfig(vocabulary=16384, width=512, layers=11, state=16, expand=2, convolution=4, chunk=16)
    return SelectiveStateSpaceModel(config), (torch.randint(16384, (1, 128)),), {}


def wall_ms(call: Callable[[], object]) -> float:
    """Milliseconds of a call, the device idle before and after."""
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def events_ms(call: Callable[[], object], lead_ms: float) -> float:
    """Milliseconds that the device took for a call, queued while it was busy for ``lead_ms``."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(lead_ms * 2_000_000))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def ends(waits: bool, index: int, rounds: int) -> bool:
    """Whether no round follows the first ``index``."""
    if waits:
        return index > 0 and bool(select.select([sys.stdin], [], [], 0)[0])
    return index >= rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["bert", "resnet18", "ssm"])
    parser.add_argument("--first", choices=SIDES, default="eager")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--wait", action="store_true", help="begin and end when told on standard input")
    options = parser.parse_args()

    torch.backends.cudnn.allow_tf32 = False  # as the pipeline's tf32=none; matrix products are float32 by default
    torch.manual_seed(0)
    module, args, kwargs = {"bert": bert, "resnet18": resnet18, "ssm": ssm}[options.model]()
    module = module.eval().cuda()
    args, kwargs = tuple(value.cuda() for value in args), {name: value.cuda() for name, value in kwargs.items()}
    functions: dict[str, Callable[..., Any]] = {"eager": module, "inductor": torch.compile(module)}
    order = SIDES if options.first == "eager" else SIDES[::-1]
    found: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    with torch.no_grad():
        calls = {side: lambda side=side: functions[side](*args, **kwargs) for side in SIDES}
        for side in order:
            for _ in range(4):
                calls[side]()
                torch.cuda.synchronize()
            if side == options.first:
                torch.cuda.reset_peak_memory_stats()
                calls[side]()
                torch.cuda.synchronize()
                found[side]["peak_bytes"] = torch.cuda.max_memory_allocated()
        shutdown_compile_workers()  # else they start beside what is timed, for as long as they take to import torch
        lead = {side: 1.5 * wall_ms(calls[side]) for side in SIDES}
        walls: dict[str, list[float]] = {side: [] for side in SIDES}
        events: dict[str, list[float]] = {side: [] for side in SIDES}
        if options.wait:
            print("ready", flush=True)
            sys.stdin.readline()
        index = 0
        while not ends(options.wait, index, options.rounds):
            turn = order if index % 2 == 0 else order[::-1]
            for side in turn:
                walls[side].append(wall_ms(calls[side]))
            for side in turn:
                events[side].append(events_ms(calls[side], lead[side]))
            index += 1
    for side in SIDES:
        times = {"wall_ms": statistics.median(walls[side]), "events_ms": statistics.median(events[side])}
        found[side] |= times | {"samples": walls[side], "device_samples": events[side]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
