"""Are faults seen that initial weights hide? Planted in models that ``conf/`` does not have.

Each fault is what a backend may do at one site: drop a bias or add it twice, drop the affine part of a norm, leave a
batch norm's running statistics out, ignore a padding mask. The site is drawn by seed. Its effect is computed without
this project's comparison: RMS change of the outputs of the float64 model, over the RMS rounding error of the float32
one, at the output where that is largest. With 8 or more the comparison must call it a defect.

Usage: ``python tests/trials/planted_constants.py [--sites 5] [--model gpt2]``. Prints one CSV line a fault: model,
fault, site, effect in floors, the verdict with the exercised model, and with the model as it was initialized. Exit
code 1 where a fault of 8 floors or more was no defect.
"""

import argparse
import copy
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from inductor_debug import diff
from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig

OURS = "inductor_debug.models"
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"_target_": f"{OURS}.huggingface.build", "config": "GPT2Config", "overrides": {"n_layer": 4}},
    "distilbert": {"_target_": f"{OURS}.huggingface.build", "config": "DistilBertConfig", "overrides": {"n_layers": 3}},
    "mobilenet_v3_small": {"_target_": f"{OURS}.torchvision_models.build", "name": "mobilenet_v3_small"},
    "vit_b_32": {"_target_": f"{OURS}.torchvision_models.build", "name": "vit_b_32"},
}
TESTABLE = 8.0
"""Effect in floors from which a fault must be seen."""


def zero(name: str) -> Callable[[nn.Module], None]:
    """Drop a parameter that is added."""
    return lambda module: module.get_parameter(name).zero_()  # type: ignore[func-returns-value]


def double(name: str) -> Callable[[nn.Module], None]:
    """Add a parameter twice."""
    return lambda module: module.get_parameter(name).mul_(2)  # type: ignore[func-returns-value]


def reset(path: str, **values: float) -> Callable[[nn.Module], None]:
    """Give tensors of one part their neutral values."""

    def plant(module: nn.Module) -> None:
        for name, value in values.items():
            getattr(module.get_submodule(path), name).fill_(value)

    return plant


def ignore_mask(module: nn.Module) -> None:
    """Read a padding mask as all ones."""

    def ones(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs | {"attention_mask": torch.ones_like(kwargs["attention_mask"])}

    module.register_forward_pre_hook(ones, with_kwargs=True)


def faults(module: nn.Module, kwargs: dict[str, Any]) -> Iterator[tuple[str, str, Callable[[nn.Module], None]]]:
    """Every fault at every site: its kind, where, and what plants it."""
    for path, part in module.named_modules():
        if isinstance(part, (nn.LayerNorm, nn.modules.batchnorm._BatchNorm)) and part.weight is not None:
            yield "norm's affine part dropped", path, reset(path, weight=1.0, bias=0.0)
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
            yield "running statistics ignored", path, reset(path, running_mean=0.0, running_var=1.0)
    for name, parameter in module.named_parameters():
        if name.endswith("bias") and parameter.numel() > 1:
            yield "bias dropped", name, zero(name)
            yield "bias added twice", name, double(name)
    if "attention_mask" in kwargs:
        yield "padding mask ignored", "attention_mask", ignore_mask


def drawn(found: list[tuple[str, str, Callable[[nn.Module], None]]], sites: int, seed: int) -> Iterator[Any]:
    """Of each kind of fault so many sites, by seed."""
    numbers = random.Random(seed)
    for kind in dict.fromkeys(kind for kind, _, _ in found):
        of_kind = [item for item in found if item[0] == kind]
        yield from numbers.sample(of_kind, min(sites, len(of_kind)))


def outputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Floating outputs of a copy of the module in ``dtype``, in float64."""
    wide = copy.deepcopy(module).to(dtype)
    inputs = [item.to(dtype) if item.is_floating_point() else item for item in args]
    with torch.no_grad():
        found = wide(*inputs, **kwargs)
    values = [found] if isinstance(found, torch.Tensor) else list(found.values())
    return [value.double() for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()]


def rms(tensor: torch.Tensor) -> float:
    return tensor.square().mean().sqrt().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=list(MODELS), action="append")
    options = parser.parse_args()
    missed = 0
    sys.stdout.write("model,fault,site,effect_floors,verdict,verdict_initial\n")
    for name in options.model or MODELS:
        case, initial = (
            build_case(ModelConfig(name, MODELS[name], exercise=exercise), seed=options.seed)
            for exercise in (True, False)
        )
        gold = outputs(case.module, case.args, case.kwargs, torch.float64)
        floors = [
            rms(narrow - wide)
            for narrow, wide in zip(outputs(case.module, case.args, case.kwargs, torch.float32), gold, strict=True)
        ]
        for kind, site, plant in drawn(list(faults(case.module, case.kwargs)), options.sites, options.seed):
            verdicts = []
            for made in (case, initial):
                faulty = copy.deepcopy(made.module)
                with torch.no_grad():
                    plant(faulty)
                torch._dynamo.reset()
                found = diff(faulty, made.args, made.kwargs, backend="aot_eager", reference=made.module)
                verdicts.append(found.verdict)
                if made is case:
                    wrong = outputs(faulty, made.args, made.kwargs, torch.float64)
                    pairs = zip(wrong, gold, floors, strict=True)
                    effect = max(rms(left - right) / floor for left, right, floor in pairs)
            missed += effect >= TESTABLE and verdicts[0] != "defect"
            sys.stdout.write(f"{name},{kind},{site},{effect:.3g},{','.join(verdicts)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"# {missed} of {TESTABLE:g} floors or more were missed\n")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
