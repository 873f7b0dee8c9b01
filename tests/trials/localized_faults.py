"""Faults planted in TorchInductor's own lowerings at nodes drawn by seed: is the node named that was planted?

Usage: ``python tests/trials/localized_faults.py [--models gpt2 resnet …] [--faults 4] [--seed 0] [--device cuda]``.
Each fault is one call of one lowering, whose result is wrong by a factor, an offset or a sign. The generated code
commits it: what is fused, and what is never stored, is as TorchInductor makes it. Its effect is measured without this
project: the distance that it makes in an output or a gradient, over that of the right code from float64. Prints a line
a fault: model, mode, dtype, what was planted, its effect, and what was named; then how many were named exactly, how
many of the others have an effect of 8 or more, and how many clean runs named anything.
"""

import argparse
import copy
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.stages.localize.api import localize

sys.path.append(str(Path(__file__).resolve().parents[1] / "stages"))
from inductor_faults import LOWERINGS, wrong_lowering_at

prepare_torchvision()
import torchvision  # noqa: E402 - after its operators are known
import transformers  # noqa: E402


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=999
    )
    return transformers.BertModel(config), (torch.randint(0, 999, (2, 32)),)


def gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    config = transformers.GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=999, use_cache=False)
    return transformers.GPT2Model(config), (torch.randint(0, 999, (2, 32)),)


def resnet() -> tuple[nn.Module, tuple[Any, ...]]:
    return torchvision.models.resnet18(num_classes=10), (torch.randn(2, 3, 64, 64),)


def vit() -> tuple[nn.Module, tuple[Any, ...]]:
    model = torchvision.models.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=10)
    return model, (torch.randn(2, 3, 32, 32),)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "bert": bert, "gpt2": gpt2, "resnet": resnet, "vit": vit,
}  # fmt: skip


def case_of(name: str, mode: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    module, args = MODELS[name]()
    with torch.no_grad():
        for parameter in module.parameters():  # zeros and ones would hide what is done to them
            parameter.add_(0.05 * torch.randn_like(parameter) * (parameter.max() == parameter.min()))
    module = module.to(dtype).train(mode == "training")
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module, tuple(item.to(dtype) if item.is_floating_point() else item for item in args)


def results(call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], mode: str) -> list[torch.Tensor]:
    """What a call gives, in float64, and in training the gradients of its product with fixed random numbers."""
    module.zero_grad()
    with torch.set_grad_enabled(mode == "training"):
        leaves = [item for item in pytree.tree_leaves(call(*args)) if isinstance(item, torch.Tensor)]
    leaves = [item for item in leaves if item.is_floating_point()]
    found = [item.detach().double() for item in leaves]
    if mode == "training":
        draw = torch.Generator().manual_seed(1)
        fixed = [torch.randn(item.shape, generator=draw).to(item) for item in leaves]
        sum((item * other).sum() for item, other in zip(leaves, fixed, strict=True)).backward()  # type: ignore[union-attr]
        found += [item.grad.double() for item in module.parameters() if item.grad is not None]
    return found


def effect(right: list[torch.Tensor], wrong: list[torch.Tensor], gold: list[torch.Tensor]) -> float:
    """The largest distance between two, over that of the right one from float64, or of float64 rounded to nearest."""
    found = [0.0]
    for one, other, exact in zip(right, wrong, gold, strict=True):
        floor = max(float((one - exact).norm()), 1e-8 * float(exact.norm()))
        found.append(float((other - one).norm()) / floor if floor else 0.0)
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--faults", type=int, default=4, help="of each model, mode and dtype")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", nargs="+", default=["inference", "training"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    numbers, counts = random.Random(options.seed), {"planted": 0, "named": 0, "missed": 0, "clean": 0, "false": 0}
    for name in options.models:
        for mode in options.modes:
            for dtype in options.dtypes:
                module, args = case_of(name, mode, getattr(torch, dtype))
                module, args = module.to(options.device), tuple(item.to(options.device) for item in args)
                torch.compiler.reset()
                with wrong_lowering_at("", "scaled") as noted:
                    clean = localize(module, args, mode=mode).localization
                counts["clean"] += 1
                counts["false"] += bool(clean.culprits)
                print(f"{name} {mode} {dtype} clean: {clean.kind} {clean.message}", flush=True)
                sites = list(noted)
                wide = copy.deepcopy(module).double()
                gold = results(wide, wide, tuple(i.double() if i.is_floating_point() else i for i in args), mode)
                torch.compiler.reset()
                right = results(torch.compile(module), module, args, mode)
                for _ in range(options.faults):
                    site, kind = numbers.choice(sites), numbers.choice(list(LOWERINGS))
                    torch.compiler.reset()
                    with wrong_lowering_at(site, kind):
                        found = localize(module, args, mode=mode).localization
                        torch.compiler.reset()
                        size = effect(right, results(torch.compile(module), module, args, mode), gold)
                    named = [(item.place.graph, item.place.node, item.kind) for item in found.culprits]
                    exact = bool(named) and all(node == site for _, node, _ in named)
                    counts["planted"] += 1
                    counts["named"] += exact
                    counts["missed"] += not exact and size >= 8
                    checked = f"{found.checked} of {found.operations}"
                    print(
                        f"{name} {mode} {dtype} {kind} at {site}, effect {size:.3g}: "
                        f"{'named' if exact else 'NOT NAMED'} {found.kind} {named[:4]} {checked}",
                        flush=True,
                    )
    print(counts)


if __name__ == "__main__":
    main()
