"""Are faults of one gradient seen in bfloat16? One weight's gradient is set to zero, or is half again too large.

Planted in training steps of models that are small and have several layers. The noise of each gradient is computed
without this project's comparison: RMS difference of eager's gradient in bfloat16 from that of float64, over the RMS of
the latter. The fault's effect is 1 or 0.5 of the gradient. Where it is 8 times the noise or more, the comparison must
call it a defect; where it passes, the row's ``resolution`` must be the effect or more: the run said that it could not
have seen it.

Usage: ``python tests/trials/planted_gradients.py [--sites 6] [--seed 0] [--model llama]``. Prints one CSV line a fault:
model, site, factor, the effect in units of the noise, the verdict, the row's resolution. Exit code 1 where one is
missed.
"""

import argparse
import copy
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from inductor_debug import diff
from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.loss import training_loss

BUILD = "inductor_debug.models.huggingface.build"
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "_target_": BUILD,
        "config": "LlamaConfig",
        "overrides": {
            "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 512, "attention_dropout": 0.0,
        },
    },
    "gpt2": {
        "_target_": BUILD,
        "config": "GPT2Config",
        "overrides": {
            "n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 512, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
            "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        },
    },
    "bert": {
        "_target_": BUILD,
        "config": "BertConfig",
        "overrides": {
            "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
            "vocab_size": 512, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        },
    },
}  # fmt: skip
TESTABLE = 8.0
"""Effect over noise from which a fault must be seen."""


class Scaled(torch.autograd.Function):
    """The tensor itself, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * ctx.factor, None


CALLS: dict[type[nn.Module], Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    nn.Linear: lambda part, x, weight: functional.linear(x, weight, part.bias),
    Conv1D: lambda part, x, weight: torch.addmm(part.bias, x.view(-1, x.size(-1)), weight).view(
        (*x.size()[:-1], part.nf)
    ),
    nn.LayerNorm: lambda part, x, weight: functional.layer_norm(x, part.normalized_shape, weight, part.bias, part.eps),
}


def faulty(module: nn.Module, site: str, factor: float) -> nn.Module:
    """A copy in which one part's weight has its gradient multiplied."""
    found = copy.deepcopy(module)
    part = found.get_submodule(site)
    call = CALLS[type(part)]
    part.__class__ = type(
        "Faulty", (type(part),), {"forward": lambda self, x: call(self, x, Scaled.apply(self.weight, factor))}
    )
    return found


def gradients(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Of a training step of a copy in ``dtype``: path → gradient in float64."""
    made = copy.deepcopy(module).to(dtype).train()
    inputs = [item.to(dtype) if item.is_floating_point() else item for item in args]
    training_loss(made(*inputs, **kwargs), {}).backward()
    return {name: value.grad.double() for name, value in made.named_parameters() if value.grad is not None}


def rms(tensor: torch.Tensor) -> float:
    return tensor.square().mean().sqrt().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=list(MODELS), action="append")
    options = parser.parse_args()
    missed = 0
    sys.stdout.write("model,site,factor,effect_over_noise,verdict,row,resolution\n")
    for name in options.model or MODELS:
        case = build_case(ModelConfig(name, MODELS[name], sequence_length=32), seed=options.seed, mode="training")
        narrow, wide = (
            gradients(case.module, case.args, case.kwargs, dtype) for dtype in (torch.bfloat16, torch.float64)
        )
        sites = [site for site, part in case.module.named_modules() if type(part) in CALLS and f"{site}.weight" in wide]
        for site in random.Random(options.seed).sample(sites, min(options.sites, len(sites))):
            path = f"{site}.weight"
            noise = rms(narrow[path] - wide[path]) / rms(wide[path])
            for factor in (0.0, 1.5):
                torch._dynamo.reset()
                found = diff(
                    faulty(case.module, site, factor), case.args, case.kwargs, backend="aot_eager",
                    reference=case.module, mode="training", dtype=torch.bfloat16,
                )  # fmt: skip
                row = next(row for row in found.rows if row.kind == "gradient" and row.path == path)
                effect = abs(1 - factor)
                told = row.resolution is not None and row.resolution >= effect
                wrong = row.verdict != "defect" and (effect / noise >= TESTABLE or not told)
                missed += wrong
                sys.stdout.write(
                    f"{name},{path},{factor},{effect / noise:.3g},{found.verdict},{row.verdict},{row.resolution}\n"
                )
                sys.stdout.flush()
    sys.stdout.write(f"# {missed} were missed\n")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
