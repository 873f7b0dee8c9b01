"""The bare work inside a default run, in fresh processes, with nothing of this project but the model under test.

What any tool must do to answer the pipeline's questions about a model on the CPU. One process (``compare``) imports
torch, builds the model, compiles it once with TorchInductor from an empty cache, and takes each step that the verdict
rests on: eager, float64, compiled, on as many draws of the inputs. Then processes (``sample``) build the model, load
the compiled code, and time both sides. The pipeline is held against it: ``tests/performance/ratio.py``.

Usage: ``python tests/performance/bare.py compare bert|resnet18|ssm MODE --steps eager,gold,test,eager``, then
``… sample bert|resnet18|ssm MODE --warmup 4 --samples 20``, with the same ``TORCHINDUCTOR_CACHE_DIR``. Prints one JSON
line. ``other`` among the steps is eager on other inputs, ``other-test`` the compiled side on them.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, Any]]


def without_nms() -> None:
    """PyPI's torchvision can't load its library beside a CPU-only torch, and transformers imports torchvision."""
    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        globals()["_library"] = library  # its definitions live as long as it does


def bert() -> Built:
    """bert-base-multilingual-cased's architecture with random weights, 128 tokens of two types, padded."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=119_547)
    tokens, places = torch.randint(config.vocab_size, (1, 128)), torch.arange(128)[None]
    inputs = {"input_ids": tokens, "attention_mask": (places < 96).long(), "token_type_ids": (places >= 64).long()}
    return BertModel(config), inputs


def resnet18() -> Built:
    """torchvision's ResNet-18 with random weights, one image of 224 x 224."""
    import torchvision

    return torchvision.models.resnet18(weights=None), {"x": torch.randn(1, 3, 224, 224)}


def ssm() -> Built:
    """The state-space model of ``models/ssm.py`` with its configuration's sizes, 128 tokens."""
    from inductor_debug.models.ssm import SelectiveStateSpaceModel, SSMConfig

    config = SSMConfig(vocabulary=16384, width=512, layers=11, state=16, expand=2, convolution=4, chunk=16)
    return SelectiveStateSpaceModel(config), {"inputs": torch.randint(16384, (1, 128))}


def draw_constants(module: nn.Module) -> None:
    """Give weights that hold one value throughout other values, as the pipeline does before it judges anything."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(torch.randn_like(parameter), alpha=0.02)


def step(function: Callable[..., Any], module: nn.Module, inputs: dict[str, Any], mode: str) -> list[torch.Tensor]:
    """The output of a forward; in training of a forward, a loss and a backward, then all gradients."""
    if mode == "inference":
        with torch.no_grad():
            return [first(function(**inputs))]
    for parameter in module.parameters():
        parameter.grad = None
    output = first(function(**inputs))
    output.square().mean().backward()
    return [output.detach(), *(parameter.grad for parameter in module.parameters() if parameter.grad is not None)]


def first(output: Any) -> torch.Tensor:
    """A model's tensor, or the first of those that it returns."""
    return output if isinstance(output, torch.Tensor) else output[0]


def build(model: str, mode: str) -> Built:
    """The model in the mode, with inputs."""
    without_nms()
    torch.manual_seed(0)
    module, inputs = {"bert": bert, "resnet18": resnet18, "ssm": ssm}[model]()
    draw_constants(module)
    return module.train(mode == "training"), inputs


def compare(model: str, mode: str, steps: list[str]) -> dict[str, Any]:
    """Take the steps; the error of the compiled side over the noise floor, and how long its first step took."""
    module, inputs = build(model, mode)
    others = {name: value.flatten().roll(1).view_as(value) for name, value in inputs.items()}
    compiled = torch.compile(module)
    found: dict[str, list[torch.Tensor]] = {}
    compile_s = 0.0
    for name in steps:
        began = time.perf_counter()
        if name == "gold":
            wide = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
            ideal = copy.deepcopy(module).double()
            results = step(ideal, ideal, wide, mode)
            del ideal
        else:
            function = compiled if name.endswith("test") else module
            results = step(function, module, others if name.startswith("other") else inputs, mode)
        found.setdefault(name, results)
        del results
        if name == "test":
            compile_s = compile_s or time.perf_counter() - began
    sides = [found.get(name, found["eager"]) for name in ("eager", "gold", "test")]
    worst = max(map(over_floor, *sides))
    return {"compile_s": compile_s, "error_over_floor": worst}


def over_floor(eager: torch.Tensor, gold: torch.Tensor, test: torch.Tensor) -> float:
    """RMS of the compiled side's error over that of eager's."""
    floor, error = ((side.double() - gold).square().mean().sqrt().item() for side in (eager, test))
    return error / floor if floor else float(error > 0)


def sample(model: str, mode: str, warmup: int, samples: int) -> dict[str, Any]:
    """Median milliseconds of both sides."""
    module, inputs = build(model, mode)
    sides: dict[str, Callable[..., Any]] = {"eager": module, "test": torch.compile(module)}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for index in range(warmup + samples):
        for side, function in sides.items():
            began = time.perf_counter()
            step(function, module, inputs, mode)
            if index >= warmup:
                seconds[side].append(time.perf_counter() - began)
    return {"median_ms": {side: statistics.median(values) * 1e3 for side, values in seconds.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=["compare", "sample"])
    parser.add_argument("model", choices=["bert", "resnet18", "ssm"])
    parser.add_argument("mode", choices=["inference", "training"])
    parser.add_argument("--steps", default="eager,gold,test,eager,other,other-test,other,other-test,test")
    parser.add_argument("--warmup", type=int, default=4, help="untimed steps of each side")
    parser.add_argument("--samples", type=int, default=20, help="timed steps of each side")
    options = parser.parse_args()
    if options.work == "compare":
        found = compare(options.model, options.mode, options.steps.split(","))
    else:
        found = sample(options.model, options.mode, options.warmup, options.samples)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
